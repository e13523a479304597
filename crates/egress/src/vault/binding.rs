//! What a binding may say. Everything is checked in the order in which it is written, so that of
//! several mistakes the same one is always reported.

use http::HeaderName;
use osb_api::egress::{Binding, CredentialAuth, CustomHeader, Match, Scheme, Substitution};

use super::{host::HostPattern, path::PathPattern};

/// The longest name of a credential or binding.
pub(super) const LONGEST_NAME: usize = 256;
/// The longest text that stands for a secret.
const LONGEST_PLACEHOLDER: usize = 256;
/// The most hosts, methods, paths, headers or substitutions of one binding.
const MOST: usize = 32;
/// Those that only read or write what a path names.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Headers that say how a message travels, and not what it asks for.
const RESERVED: [&str; 14] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "proxy-authorization",
    "proxy-authenticate",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// A trimmed name that is not blank.
pub(super) fn name(what: &str, text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(format!("the name of a {what} is 1 to {LONGEST_NAME} bytes and not blank"));
    }
    Ok(name.to_owned())
}

/// The binding with its defaults filled in and every text in one form.
pub(super) fn normalise(binding: Binding) -> Result<Binding, String> {
    let name = name("binding", &binding.name)?;
    let within = |message: String| format!("binding {name:?}: {message}");
    let requests = requests(binding.requests).map_err(within)?;
    let auth = auth(binding.auth).map_err(within)?;
    Ok(Binding { name, requests, auth })
}

fn requests(requests: Match) -> Result<Match, String> {
    if let Some(port) = requests.ports.iter().find(|port| !matches!(port, 80 | 443)) {
        return Err(format!(
            "port {port} is not 80 or 443: credentials are given at 443 and 80 only; leave ports \
             out, schemes decide"
        ));
    }
    let schemes = if requests.schemes.is_empty() { vec![Scheme::Https] } else { requests.schemes };
    if requests.hosts.is_empty() {
        return Err("it needs at least one host".to_owned());
    }
    let host = |text: String| match HostPattern::parse(&text) {
        Ok(host) => Ok(host.to_string()),
        Err(error) => Err(format!("host {text:?}: {error}")),
    };
    let method = |text: String| {
        let method = text.trim().to_ascii_uppercase();
        let is_token = HeaderName::from_bytes(method.as_bytes()).is_ok();
        if is_token { Ok(method) } else { Err(format!("{text:?} is not a method")) }
    };
    let path = |text: String| match PathPattern::parse(text.trim()) {
        Ok(path) => Ok(path.to_string()),
        Err(error) => Err(format!("path {text:?}: {error}")),
    };
    Ok(Match {
        schemes: distinct("schemes", schemes, Ok)?,
        hosts: distinct("hosts", requests.hosts, host)?,
        methods: distinct("methods", or(requests.methods, &METHODS), method)?,
        paths: distinct("paths", or(requests.paths, &["/*"]), path)?,
        ports: Vec::new(),
    })
}

fn or(given: Vec<String>, default: &[&str]) -> Vec<String> {
    if given.is_empty() { default.iter().map(|&text| text.to_owned()).collect() } else { given }
}

fn distinct<T, U: PartialEq>(
    what: &str,
    given: Vec<T>,
    read: impl Fn(T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    if given.len() > MOST {
        return Err(format!("it has more than {MOST} {what}"));
    }
    let mut all = Vec::with_capacity(given.len());
    for one in given {
        let one = read(one)?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(all)
}

fn auth(auth: CredentialAuth) -> Result<CredentialAuth, String> {
    let credential = |text: String| name("credential", &text);
    Ok(match auth {
        CredentialAuth::Bearer { credential: of, substitutions } => CredentialAuth::Bearer {
            credential: credential(of)?,
            substitutions: substituted(substitutions)?,
        },
        CredentialAuth::Basic { credential: of, substitutions } => CredentialAuth::Basic {
            credential: credential(of)?,
            substitutions: substituted(substitutions)?,
        },
        CredentialAuth::ApiKey { name, .. } if name.trim().is_empty() => {
            return Err("apiKey needs a name: that of the header".to_owned());
        }
        CredentialAuth::ApiKey { name, credential: of, substitutions } => CredentialAuth::ApiKey {
            name: header(&name)?,
            credential: credential(of)?,
            substitutions: substituted(substitutions)?,
        },
        CredentialAuth::CustomHeaders { headers, substitutions } => CredentialAuth::CustomHeaders {
            headers: custom(headers)?,
            substitutions: substituted(substitutions)?,
        },
        CredentialAuth::Passthrough { substitutions } => {
            CredentialAuth::Passthrough { substitutions: substituted(substitutions)? }
        }
    })
}

fn custom(headers: Vec<CustomHeader>) -> Result<Vec<CustomHeader>, String> {
    if headers.is_empty() || headers.len() > MOST {
        return Err(format!("customHeaders needs 1 to {MOST} headers"));
    }
    let mut all: Vec<CustomHeader> = Vec::with_capacity(headers.len());
    for CustomHeader { name: of, credential } in headers {
        let one = CustomHeader { name: header(&of)?, credential: name("credential", &credential)? };
        if all.iter().any(|known| known.name == one.name) {
            return Err(format!("header {} is there twice", one.name));
        }
        all.push(one);
    }
    Ok(all)
}

fn substituted(substitutions: Vec<Substitution>) -> Result<Vec<Substitution>, String> {
    if substitutions.len() > MOST {
        return Err(format!("it has more than {MOST} substitutions"));
    }
    let mut all: Vec<Substitution> = Vec::with_capacity(substitutions.len());
    for Substitution { credential, placeholder, mut places } in substitutions {
        let credential = name("credential", &credential)?;
        let placeholder = placeholder.trim().to_owned();
        if placeholder.is_empty() || placeholder.len() > LONGEST_PLACEHOLDER {
            return Err(format!("a placeholder is 1 to {LONGEST_PLACEHOLDER} bytes and not blank"));
        }
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            return Err(format!(
                "placeholder {placeholder:?} is looked for nowhere: `in` is empty"
            ));
        }
        let twice = all.iter().any(|known| {
            known.placeholder == placeholder
                && known.places.iter().any(|place| places.contains(place))
        });
        if twice {
            return Err(format!("placeholder {placeholder:?} is there twice for the same place"));
        }
        all.push(Substitution { credential, placeholder, places });
    }
    Ok(all)
}

/// A header that may carry a secret, written as `X-Api-Key`.
fn header(text: &str) -> Result<String, String> {
    let text = text.trim();
    let header = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("{text:?} is not the name of a header"))?;
    if RESERVED.contains(&header.as_str()) {
        return Err(format!("header {header} says how a request travels and holds no credential"));
    }
    let mut begins = true;
    let canonical = header.as_str().chars().map(|c| {
        let c = if begins { c.to_ascii_uppercase() } else { c };
        begins = c == '-';
        c
    });
    Ok(canonical.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    fn normal(binding: serde_json::Value) -> Result<serde_json::Value, String> {
        normalise(from_value(binding).unwrap()).map(|binding| to_value(binding).unwrap())
    }

    #[test]
    fn defaults_are_filled_in_and_texts_have_one_form() {
        let binding = json!({
            "name": " gitlab ",
            "match": {"hosts": ["GitLab.example.com.", "gitlab.example.com"], "ports": [443]},
            "auth": {"type": "apiKey", "name": "PRIVATE-TOKEN", "credential": " t "},
        });
        let expected = json!({
            "name": "gitlab",
            "match": {
                "schemes": ["https"],
                "hosts": ["gitlab.example.com"],
                "methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
                "paths": ["/*"],
            },
            "auth": {"type": "apiKey", "name": "Private-Token", "credential": "t"},
        });
        assert_eq!(normal(binding), Ok(expected));
    }

    #[test]
    fn what_can_never_work_is_refused_with_its_reason() {
        let passthrough = json!({"type": "passthrough"});
        let substitution = |placeholder: &str, places: &[&str]| json!({"credential": "c", "placeholder": placeholder, "in": places});
        let header = |name: &str| json!({"type": "apiKey", "name": name, "credential": "c"});
        let at = |requests| json!({"name": "b", "match": requests, "auth": passthrough});
        let with = |auth| json!({"name": "b", "match": {"hosts": ["a.b"]}, "auth": auth});
        let many: Vec<_> = (0..33).map(|n| format!("h{n}.example.com")).collect();
        for (binding, reason) in [
            (json!({"name": " ", "match": {"hosts": ["a.b"]}, "auth": passthrough}), "not blank"),
            (at(json!({"hosts": []})), "at least one host"),
            (at(json!({"hosts": ["localhost"]})), "dot"),
            (at(json!({"hosts": many})), "more than 32 hosts"),
            (
                at(json!({"hosts": ["a.b"], "ports": [8443]})),
                "8443 is not 80 or 443: credentials are given at 443 and 80 only",
            ),
            (at(json!({"hosts": ["a.b"], "methods": ["GET /"]})), "method"),
            (at(json!({"hosts": ["a.b"], "paths": ["x"]})), "begins with /"),
            (with(header("Host")), "holds no credential"),
            (with(header("X Key")), "not the name of a header"),
            (
                with(json!({"type": "apiKey", "credential": "c"})),
                "binding \"b\": apiKey needs a name",
            ),
            (with(json!({"type": "bearer", "credential": ""})), "credential"),
            (with(json!({"type": "customHeaders", "headers": []})), "1 to 32 headers"),
            (
                with(json!({"type": "customHeaders", "headers": [
                    {"name": "X-A", "credential": "c"}, {"name": "x-a", "credential": "c"},
                ]})),
                "twice",
            ),
            (
                with(
                    json!({"type": "passthrough", "substitutions": [substitution(" ", &["body"])]}),
                ),
                "placeholder",
            ),
            (
                with(json!({"type": "passthrough", "substitutions": [substitution("p", &[])]})),
                "nowhere",
            ),
            (
                with(json!({"type": "passthrough", "substitutions": [
                    substitution("p", &["body"]), substitution("p", &["path", "body"]),
                ]})),
                "twice",
            ),
        ] {
            let error = normal(binding.clone()).expect_err("accepted");
            assert!(error.contains(reason), "{binding}: {error}");
        }
    }
}
