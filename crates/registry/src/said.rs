//! What a registry says in its own words, made fit to be shown.

use std::fmt;

use serde::Deserialize;

/// The longest that is shown.
const LONGEST: usize = 300;

/// A registry's explanation of an error: one line without anything that a terminal would act upon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said(String);

impl Said {
    /// From the body of an answer: the messages of the specification, or what else there is.
    pub(crate) fn read(body: &[u8]) -> Self {
        let told = match serde_json::from_slice::<Errors>(body) {
            Ok(Errors { errors, .. }) if !errors.is_empty() => {
                let each = errors.into_iter().take(5).map(|it| match it.message {
                    Some(message) if !message.is_empty() => message,
                    _ => it.code.unwrap_or_default(),
                });
                each.collect::<Vec<_>>().join("; ")
            }
            Ok(Errors { details: Some(details), .. }) => details,
            // Pages are for browsers.
            _ if body.trim_ascii_start().starts_with(b"<") => String::new(),
            _ => String::from_utf8_lossy(body).into_owned(),
        };
        Self::new(&told)
    }

    pub(crate) fn new(text: &str) -> Self {
        let mut shown = String::new();
        for word in text.split(|it: char| it.is_whitespace() || it.is_control()) {
            let word: String = word.chars().filter(|it| !is_invisible(*it)).collect();
            if word.is_empty() {
                continue;
            }
            if !shown.is_empty() {
                shown.push(' ');
            }
            shown.push_str(&word);
            if shown.len() > LONGEST {
                break;
            }
        }
        if let Some((end, _)) = shown.char_indices().find(|(at, _)| *at >= LONGEST) {
            shown.truncate(end);
            shown.push('…');
        }
        Self(shown)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Characters that change how their neighbours are shown.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// As the end of a sentence; nothing if nothing was said.
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", and says: {}", self.0) }
    }
}

#[derive(Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<Single>,
    /// What token servers write.
    details: Option<String>,
}

#[derive(Deserialize)]
struct Single {
    code: Option<String>,
    message: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_of_the_specification_are_shown() {
        let body = br#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known"},
            {"code":"DENIED"},{"code":"X","message":""}]}"#;
        assert_eq!(Said::read(body).as_str(), "repository name not known; DENIED; X");
        assert_eq!(Said::read(br#"{"details":"incorrect"}"#).to_string(), ", and says: incorrect");
        assert_eq!(Said::read(b"busy\r\n now").as_str(), "busy now");
        for nothing in [&b""[..], b"<html>500</html>", b"{\"errors\":[]}x\x1b"] {
            assert!(!Said::read(nothing).to_string().contains(['<', '\x1b']));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_moves_a_cursor(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            for said in [Said::new(&text), Said::read(&bytes), Said::new(&text.repeat(300))] {
                prop_assert!(!said.as_str().chars().any(|it| it.is_control() || is_invisible(it)));
                prop_assert!(said.as_str().len() <= LONGEST + 8);
            }
        }
    }
}
