use std::{io::Read as _, path::PathBuf, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use opensandbox::api::lifecycle::Secret;
use osb_sys::fs::{self, PathError};
use secrecy::ExposeSecret as _;

use crate::{env, failure::Failure};

/// The largest secret that is read.
const LARGEST: u64 = 512 << 10;

/// A secret by the name that a Dockerfile has for it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretFlag {
    id: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Variable(String),
    /// The variable that is called like it, or else the file.
    Either,
}

/// Text that names no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it should look like id=NAME,src=FILE or id=NAME,env=VARIABLE")]
pub(super) struct InvalidSecret;

impl FromStr for SecretFlag {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let (mut id, mut place) = (None, Place::Either);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or(InvalidSecret)?;
            match key.trim() {
                _ if value.is_empty() => return Err(InvalidSecret),
                "id" => id = Some(value.to_owned()),
                "src" | "source" => place = Place::File(value.into()),
                "env" => place = Place::Variable(value.to_owned()),
                "type" if ["file", "env"].contains(&value) => {}
                _ => return Err(InvalidSecret),
            }
        }
        Ok(Self { id: id.ok_or(InvalidSecret)?, place })
    }
}

impl SecretFlag {
    /// The secret, as it is sent.
    pub(super) fn read(&self) -> Result<(String, Secret), Failure> {
        let content = match &self.place {
            Place::File(path) => file(path.clone())?,
            Place::Variable(name) => variable(name).ok_or_else(|| {
                Failure::Usage(format!("--secret id={}: {name} is not set", self.id))
            })?,
            Place::Either => match variable(&self.id) {
                Some(content) => content,
                None => file(self.id.clone().into())?,
            },
        };
        if content.len() as u64 > LARGEST {
            let id = &self.id;
            return Err(Failure::Usage(format!(
                "--secret id={id}: it has more than {LARGEST} bytes"
            )));
        }
        Ok((self.id.clone(), Secret::new(STANDARD.encode(content))))
    }
}

fn variable(name: &str) -> Option<Vec<u8>> {
    Some(env::named(name)?.expose_secret().as_bytes().to_owned())
}

fn file(path: PathBuf) -> Result<Vec<u8>, PathError> {
    let mut content = Vec::new();
    let read = fs::open(&path)?.take(LARGEST + 1).read_to_end(&mut content);
    read.map_err(|error| PathError::new("read", path, error))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_files_and_variables() {
        let of = |text: &str| text.parse::<SecretFlag>().map(|flag| flag.place);
        assert_eq!(of("id=a,src=/x"), Ok(Place::File("/x".into())));
        assert_eq!(of("type=file,id=a,source=/x"), Ok(Place::File("/x".into())));
        assert_eq!(of("id=a,env=B"), Ok(Place::Variable("B".to_owned())));
        assert_eq!(of("id=a"), Ok(Place::Either));
        for text in ["", "src=/x", "id=", "id=a,src", "id=a,mode=1", "a"] {
            assert_eq!(of(text), Err(InvalidSecret), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let read = |text: &str| text.parse::<SecretFlag>().unwrap().read();
        let report = read("id=a,env=NO_SUCH_VARIABLE").unwrap_err().report().unwrap();
        assert!(report.contains("NO_SUCH_VARIABLE is not set"), "{report}");
        assert!(read("id=a,src=/nonexistent").is_err());
        let path = read("id=PATH").unwrap().1;
        assert!(!STANDARD.decode(path.reveal()).unwrap().is_empty());
    }
}
