//! `RUN --mount=…`

use crate::problem::{Fault, meant};

const KINDS: [&str; 5] = ["bind", "cache", "secret", "ssh", "tmpfs"];
const KEYS: [&str; 18] = [
    "type",
    "from",
    "source",
    "src",
    "target",
    "dst",
    "destination",
    "ro",
    "readonly",
    "rw",
    "readwrite",
    "id",
    "sharing",
    "required",
    "size",
    "mode",
    "uid",
    "gid",
];

/// What `--mount` says, in the order in which it says it. Which keys fit together is known when
/// variables are replaced, for even the type may be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub(crate) fields: Vec<(String, Option<String>)>,
}

impl Mount {
    /// Reads the fields, and checks what needs no variables.
    pub(super) fn read(text: &str) -> Result<Self, Fault> {
        let mut fields = Vec::new();
        for field in csv(text)? {
            let (key, value) = match field.split_once('=') {
                Some((key, value)) => (key.to_ascii_lowercase(), Some(value.to_owned())),
                None => (field.to_ascii_lowercase(), None),
            };
            if !KEYS.contains(&key.as_str()) && key != "env" {
                let help = meant(&key, &KEYS).map(|key| format!(": did you mean {key}?"));
                let help = help.unwrap_or_else(|| format!(": it takes {}", KEYS.join(", ")));
                return Err(Fault::new(format!("--mount takes no {key}{help}")));
            }
            if key == "from" && value.as_deref().is_some_and(|value| value.contains('$')) {
                return Err(Fault::new(
                    "from= of a mount takes no variables: give the image a name of its own with \
                     FROM … AS name and use that",
                ));
            }
            fields.push((key, value));
        }
        Ok(Self { fields })
    }

    /// The stage or image that it is from.
    pub fn from(&self) -> Option<&str> {
        self.fields
            .iter()
            .rev()
            .find(|(key, _)| key == "from")
            .and_then(|(_, value)| value.as_deref())
    }
}

/// The kind of a mount by its name.
pub(crate) fn check_kind(kind: &str) -> Result<(), Fault> {
    if KINDS.contains(&kind) {
        return Ok(());
    }
    let help = meant(kind, &KINDS).map(|kind| format!("did you mean {kind}?"));
    let help = help.unwrap_or_else(|| format!("there are {}", KINDS.join(", ")));
    Err(Fault::new(format!("there is no mount of the type {kind}: {help}")))
}

/// Fields between commas; one within double quotes may have commas, and `""` for a quote.
fn csv(text: &str) -> Result<Vec<String>, Fault> {
    let mut fields = vec![String::new()];
    let mut chars = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = chars.next() {
        let Some(field) = fields.last_mut() else { break };
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => field.push(c),
        }
    }
    if is_quoted {
        return Err(Fault::new("a \" is opened in --mount and not closed"));
    }
    if fields.iter().any(String::is_empty) {
        return Err(Fault::new("--mount has an empty field: look for a comma too many"));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_quoted() {
        let mount = Mount::read("type=bind,\"source=a,b\",Target=/x,ro").unwrap();
        let expected = [("type", Some("bind")), ("source", Some("a,b")), ("target", Some("/x"))];
        for ((key, value), (wanted, text)) in mount.fields.iter().zip(expected) {
            assert_eq!((key.as_str(), value.as_deref()), (wanted, text));
        }
        assert_eq!(mount.fields.last().unwrap(), &("ro".to_owned(), None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in ["", "type=bind,", "taget=/x", "\"type=bind", "from=$x,target=/y"] {
            assert!(Mount::read(text).is_err(), "{text}");
        }
        assert_eq!(
            Mount::read("taget=/x").unwrap_err().0,
            "--mount takes no taget: did you mean target?"
        );
    }
}
