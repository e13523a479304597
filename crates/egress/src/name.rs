use std::{fmt, sync::Arc};

/// The name of a host: in lower case, without a dot at its end.
///
/// Copies share the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// What cannot be the name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("the name of a host is 1 to 253 characters long")]
    Length,
    #[error("every part of a name between dots is 1 to 63 characters long")]
    Label,
    #[error("{0:?} cannot be in the name of a host; write other scripts as `xn--…`")]
    Character(char),
}

impl Name {
    const LONGEST: usize = 253;
    const LONGEST_LABEL: usize = 63;

    /// Reads a name in any case, with or without the dot at its end.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() || text.len() > Self::LONGEST {
            return Err(BadName::Length);
        }
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(other) = text.chars().find(|c| !allowed(c)) {
            return Err(BadName::Character(other));
        }
        if text.split('.').any(|label| label.is_empty() || label.len() > Self::LONGEST_LABEL) {
            return Err(BadName::Label);
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The domains that it is below, the nearest first: `b.c` and `c` for `a.b.c`.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('.').filter_map(|(dot, _)| self.0.get(dot + 1..))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case_and_with_a_dot_at_the_end() {
        let name = Name::parse("Api.Example.COM.").unwrap();
        assert_eq!(name.as_str(), "api.example.com");
        assert_eq!(name.domains().collect::<Vec<_>>(), ["example.com", "com"]);
    }

    #[test]
    fn what_no_host_is_called_is_refused() {
        let long = "a".repeat(64);
        for text in ["", ".", "a..b", ".a", "a b", "a/b", "a:443", "*.a", "ä.de", &long] {
            assert!(Name::parse(text).is_err(), "{text:?} was accepted");
        }
        assert!(Name::parse(&vec!["a"; 127].join(".")).is_ok());
        assert!(Name::parse(&vec!["a"; 128].join(".")).is_err());
    }
}
