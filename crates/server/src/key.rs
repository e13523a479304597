//! The API key: where it comes from and how it is compared.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use osb_sys::fs::{self, PathError};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use subtle::ConstantTimeEq;

use crate::{config::KeyConfig, token};

/// The longest key. Comparison always looks at this many bytes.
const MAX: usize = 256;

/// Where the API key came from, for the first lines that an operator reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeySource {
    Environment,
    Config,
    /// A file that was there.
    File(PathBuf),
    /// A file that this start made.
    Created(PathBuf),
    /// There is no key; everybody who reaches the server may use it.
    Off,
}

/// The key that callers must send.
#[derive(Debug, Clone)]
pub(crate) struct ApiKey(SecretString);

impl ApiKey {
    /// Compares in a time that depends on what the caller sent and not on the key.
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        let (ours, our_length) = padded(self.0.expose_secret().as_bytes());
        let (theirs, their_length) = padded(presented);
        let same = ours.ct_eq(&theirs) & our_length.ct_eq(&their_length);
        bool::from(same) && presented.len() <= MAX
    }
}

fn padded(secret: &[u8]) -> ([u8; MAX], u64) {
    let mut buffer = [0; MAX];
    for (to, from) in buffer.iter_mut().zip(secret) {
        *to = *from;
    }
    (buffer, secret.len() as u64)
}

/// Finds or makes the key.
pub(crate) fn resolve(
    config: &KeyConfig,
    data_dir: &Path,
) -> Result<(Option<ApiKey>, ApiKeySource), PathError> {
    let path = data_dir.join("api-key");
    Ok(match config {
        KeyConfig::Off => (None, ApiKeySource::Off),
        KeyConfig::Environment(key) => (Some(ApiKey(key.clone())), ApiKeySource::Environment),
        KeyConfig::File(key) => (Some(ApiKey(key.clone())), ApiKeySource::Config),
        KeyConfig::DataDir => match create(&path) {
            Ok(key) => (Some(ApiKey(key)), ApiKeySource::Created(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let key = SecretString::from(fs::read_to_string(&path)?.trim().to_owned());
                check(&key).map_err(|message| {
                    PathError::new("use the key in", &path, io::Error::other(message))
                })?;
                (Some(ApiKey(key)), ApiKeySource::File(path))
            }
            Err(error) => return Err(error),
        },
    })
}

/// Makes a key, unless there is one. It is there whole or not at all, even if this process or the
/// machine ends half-way: of a part no server could make anything.
pub(crate) fn create(path: &Path) -> Result<SecretString, PathError> {
    let failed = |source| PathError::new("create", path, source);
    if path.symlink_metadata().is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let key = token::random::<32>().map_err(|source| failed(io::Error::other(source)))?;
    let partial = path.with_extension("partial");
    fs::remove_file(&partial)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    let mut file = file.map_err(failed)?;
    file.write_all(format!("{key}\n").as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&partial, path)?;
    Ok(SecretString::from(key))
}

/// The secret in a file, made if it is not there.
pub(crate) fn from_file(path: &Path) -> Result<SecretString, PathError> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = Zeroizing::new(fs::read_to_string(path)?);
            Ok(SecretString::from(text.trim()))
        }
        result => result,
    }
}

/// Whether the text can be a key: something that fits into a header.
pub(crate) fn check(key: &SecretString) -> Result<(), String> {
    let key = key.expose_secret();
    let fits = !key.is_empty() && key.len() <= MAX && key.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(())
    } else {
        Err(format!("the API key must be 1 to {MAX} printable ASCII characters without spaces"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_whole_key_matches() {
        let key = ApiKey(SecretString::from("correct-horse"));
        assert!(key.matches(b"correct-horse"));
        for wrong in [&b""[..], b"correct", b"correct-horse\0", b"correct-horsf", &[0; 300]] {
            assert!(!key.matches(wrong), "{wrong:?} was accepted");
        }
        let mut longer = b"correct-horse".to_vec();
        longer.resize(MAX + 1, 0);
        assert!(!key.matches(&longer));
    }

    #[test]
    fn a_key_that_was_being_made_when_a_server_was_killed_is_made_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("api-key");
        fs::write(path.with_extension("partial"), "half").expect("a part");
        let key = create(&path).expect("a key");
        assert_eq!(fs::read_to_string(&path).expect("the key").trim(), key.expose_secret());
        assert_eq!(fs::names(dir.path()).expect("names"), ["api-key"]);
        let again = create(&path).expect_err("there is a key");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_created_key_is_kept_and_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, source) = resolve(&KeyConfig::DataDir, dir.path()).expect("a key");
        assert!(matches!(source, ApiKeySource::Created(_)));
        let (again, source) = resolve(&KeyConfig::DataDir, dir.path()).expect("the same key");
        let ApiKeySource::File(path) = source else { panic!("made a second key: {source:?}") };
        let text = fs::read_to_string(&path).expect("the key file");
        assert!(first.expect("a key").matches(text.trim().as_bytes()));
        assert!(again.expect("a key").matches(text.trim().as_bytes()));
        assert_eq!(text.trim().len(), 43, "32 bytes in base64url");
        let mode = path.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
