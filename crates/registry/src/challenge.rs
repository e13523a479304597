//! What a registry answers to those who have not said who they are.

use http::{HeaderMap, header};

/// The most challenges and parameters that are looked at.
const MOST: usize = 16;

/// A way to prove who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By name and password, with each request.
    Basic,
    /// By a token that somebody gives out.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The best of those in an answer: tokens are for one repository, passwords for all.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let all = headers.get_all(header::WWW_AUTHENTICATE).into_iter().take(MOST);
        let all = all.filter_map(|value| value.to_str().ok()).flat_map(parse);
        let mut best = None;
        for (scheme, mut parameters) in all.take(MOST) {
            if scheme.eq_ignore_ascii_case("basic") {
                best = best.or(Some(Self::Basic));
            } else if scheme.eq_ignore_ascii_case("bearer") {
                let mut take = |wanted: &str| {
                    let at = parameters.iter().position(|(name, _)| name == wanted)?;
                    Some(parameters.swap_remove(at).1)
                };
                if let Some(realm) = take("realm") {
                    return Some(Self::Bearer {
                        realm,
                        service: take("service"),
                        scope: take("scope"),
                    });
                }
            }
        }
        best
    }
}

type Parsed = (String, Vec<(String, String)>);

/// Schemes with their parameters (RFC 9110, section 11.6.1). What is not understood ends the list.
fn parse(text: &str) -> Vec<Parsed> {
    let mut found: Vec<Parsed> = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() && found.len() < MOST {
        let Some((word, after)) = token(rest) else { break };
        let after = after.trim_start();
        let Some(value) = after.strip_prefix('=') else {
            // A word that has no value begins the next scheme.
            found.push((word.to_owned(), Vec::new()));
            rest = after.trim_start_matches([' ', '\t', ',']);
            continue;
        };
        let value = value.trim_start();
        let read = if value.starts_with('"') {
            quoted(value)
        } else {
            token(value).map(|(word, after)| (word.to_owned(), after))
        };
        let (Some((value, after)), Some((_, parameters))) = (read, found.last_mut()) else { break };
        if parameters.len() < MOST {
            parameters.push((word.to_ascii_lowercase(), value));
        }
        rest = after.trim_start_matches([' ', '\t', ',']);
    }
    found
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(it);
    let end = text.find(|it| !is_letter(it)).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(word, _)| !word.is_empty())
}

/// What is between quotation marks, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.strip_prefix('"')?.chars();
    loop {
        match letters.next()? {
            '"' => return Some((value, letters.as_str())),
            '\\' => value.push(letters.next()?),
            letter => value.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn challenge(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
        }
        Challenge::of(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (service, scope) = (owned(service), owned(scope));
        Challenge::Bearer { realm: realm.to_owned(), service, scope }
    }

    #[test]
    fn what_registries_send_is_understood() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull""#;
        let expected = bearer(
            "https://auth.docker.io/token",
            Some("registry.docker.io"),
            Some("repository:library/debian:pull"),
        );
        assert_eq!(challenge(&[hub]), Some(expected.clone()));
        assert_eq!(challenge(&["Basic realm=\"x\"", hub]), Some(expected.clone()));
        assert_eq!(challenge(&[&format!("Basic realm=\"a, b=c\", {hub}")]), Some(expected));
        assert_eq!(challenge(&["basic"]), Some(Challenge::Basic));
        let spaced = "BEARER  Realm = https://a/b , error=\"x\\\"y\" service=s";
        assert_eq!(challenge(&[spaced]), Some(bearer("https://a/b", Some("s"), None)));
        assert_eq!(challenge(&["Negotiate", "Basic realm=x"]), Some(Challenge::Basic));
    }

    #[test]
    fn what_is_no_challenge_is_none() {
        for text in
            ["", "Negotiate", "Bearer", "Bearer service=\"x\"", "realm=\"x\"", "Bearer realm=\"x"]
        {
            assert_eq!(challenge(&[text]), None, "{text}");
        }
        assert_eq!(challenge(&[]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in "[ -~]{0,200}") {
            let found = parse(&text);
            prop_assert!(found.len() <= MOST);
            prop_assert!(found.iter().all(|(_, parameters)| parameters.len() <= MOST));
        }
    }
}
