//! Where secrets come from: out of the request itself, or from where the operator keeps them.
//!
//! References are followed when a request needs the secret. What the operator has not opened cannot
//! be referred to, and a secret that cannot be had stops the request.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use osb_api::egress::{CredentialSource, SourceType};
use osb_sys::{beneath, fs::PathError};
use secrecy::SecretString;

use super::remote::{Remote, RemoteError};

/// The longest secret: more fits into no header.
pub(super) const LONGEST: usize = 16 << 10;

/// What the operator opened. By default nothing.
#[derive(Debug, Default)]
pub struct Sources {
    variables: BTreeMap<String, Arc<SecretString>>,
    directory: Option<PathBuf>,
    remote: Option<Remote>,
    /// Whether secrets may leave over plain HTTP.
    pub(super) plain_http: bool,
}

/// Where one secret is.
pub(super) enum Source {
    Inline(Arc<SecretString>),
    /// A variable of the server's environment.
    Env(String),
    /// Below the operator's directory.
    File(PathBuf),
    /// In a store on the network.
    Remote {
        path: String,
        field: String,
    },
}

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the operator no longer allows this source")]
    Closed,
    #[error(transparent)]
    File(#[from] PathError),
    #[error(transparent)]
    Remote(#[from] Arc<RemoteError>),
    #[error("it is empty, longer than {LONGEST} bytes, or not text")]
    Unusable,
}

impl Sources {
    /// Secrets from the environment, by the names of their variables.
    #[must_use]
    pub fn with_variables(self, variables: BTreeMap<String, SecretString>) -> Self {
        let shared = |(name, secret)| (name, Arc::new(secret));
        Self { variables: variables.into_iter().map(shared).collect(), ..self }
    }

    /// Every file below this directory is a secret.
    #[must_use]
    pub fn with_directory(self, directory: PathBuf) -> Self {
        Self { directory: Some(directory), ..self }
    }

    #[must_use]
    pub fn with_remote(self, remote: Remote) -> Self {
        Self { remote: Some(remote), ..self }
    }

    /// Secrets may be bound to plain HTTP, too.
    #[must_use]
    pub fn with_plain_http(self) -> Self {
        Self { plain_http: true, ..self }
    }

    /// Checks what a client refers to. Nothing is fetched yet.
    pub(super) fn admit(&self, source: CredentialSource) -> Result<Source, String> {
        let CredentialSource { kind, value, name, path, field } = source;
        match (kind, value, name, path, field) {
            (SourceType::Inline, Some(value), None, None, None) => {
                let secret = usable(value.reveal()).map_err(|error| error.to_string())?;
                Ok(Source::Inline(secret))
            }
            (SourceType::Env, None, Some(name), None, None) => {
                // Whether a variable is there or only not allowed is nobody's business.
                let known = self.variables.contains_key(&name);
                known.then(|| Source::Env(name.clone())).ok_or_else(|| {
                    format!(
                        "the operator of this server offers no variable {name:?}, or it was not \
                         set when the server started"
                    )
                })
            }
            (SourceType::File, None, None, Some(path), None) => {
                if self.directory.is_none() {
                    return Err("the operator of this server offers no files".to_owned());
                }
                let is_plain = !path.is_empty()
                    && Path::new(&path).components().all(|c| matches!(c, Component::Normal(_)));
                let path = PathBuf::from(path);
                is_plain
                    .then_some(Source::File(path))
                    .ok_or_else(|| "the path of a file is relative, without . and ..".to_owned())
            }
            (SourceType::Vault, None, None, Some(path), Some(field)) => {
                let remote =
                    self.remote.as_ref().ok_or("the operator of this server offers no store")?;
                remote.check(&path)?;
                Ok(Source::Remote { path, field })
            }
            (SourceType::Inline, ..) => {
                Err("source inline has a value and nothing else".to_owned())
            }
            (SourceType::Env, ..) => Err("source env has a name and nothing else".to_owned()),
            (SourceType::File, ..) => Err("source file has a path and nothing else".to_owned()),
            (SourceType::Vault, ..) => {
                Err("source vault has a path and a field and nothing else".to_owned())
            }
        }
    }

    pub(super) async fn secret(&self, source: &Source) -> Result<Arc<SecretString>, SourceError> {
        match source {
            Source::Inline(secret) => Ok(Arc::clone(secret)),
            Source::Env(name) => self.variables.get(name).cloned().ok_or(SourceError::Closed),
            Source::File(path) => {
                let directory = self.directory.clone().ok_or(SourceError::Closed)?;
                let path = path.clone();
                // The file may be on a disk that takes its time.
                tokio::task::spawn_blocking(move || file(&directory, &path))
                    .await
                    .unwrap_or(Err(SourceError::Unusable))
            }
            Source::Remote { path, field } => {
                let remote = self.remote.as_ref().ok_or(SourceError::Closed)?;
                usable(&remote.read(path, field).await?)
            }
        }
    }
}

fn file(directory: &Path, path: &Path) -> Result<Arc<SecretString>, SourceError> {
    let content = secrecy::zeroize::Zeroizing::new(beneath::read(directory, path, LONGEST + 2)?);
    let text = std::str::from_utf8(&content).map_err(|_| SourceError::Unusable)?;
    // Editors end a file with a line break, which belongs to no secret.
    let text = text.strip_suffix('\n').unwrap_or(text);
    usable(text.strip_suffix('\r').unwrap_or(text))
}

fn usable(text: &str) -> Result<Arc<SecretString>, SourceError> {
    let fits = !text.is_empty() && text.len() <= LONGEST;
    fits.then(|| Arc::new(SecretString::from(text))).ok_or(SourceError::Unusable)
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(…)"),
            Self::Env(name) => f.debug_tuple("Env").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Remote { path, field } => {
                f.debug_struct("Remote").field("path", path).field("field", field).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use osb_api::lifecycle::Secret;
    use secrecy::ExposeSecret;

    use super::*;

    fn reference(kind: SourceType, name: Option<&str>, path: Option<&str>) -> CredentialSource {
        let text = |text: Option<&str>| text.map(str::to_owned);
        CredentialSource { kind, name: text(name), path: text(path), ..Default::default() }
    }

    async fn read(sources: &Sources, source: CredentialSource) -> Result<String, String> {
        let source = sources.admit(source)?;
        let secret = sources.secret(&source).await.map_err(|error| error.to_string())?;
        Ok(secret.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn nothing_is_open_unless_the_operator_opens_it() {
        let sources = Sources::default();
        for source in [
            reference(SourceType::Env, Some("HOME"), None),
            reference(SourceType::File, None, Some("a")),
            CredentialSource {
                field: Some("f".to_owned()),
                ..reference(SourceType::Vault, None, Some("a"))
            },
        ] {
            let error = sources.admit(source).unwrap_err();
            assert!(error.contains("operator"), "{error}");
        }
    }

    #[tokio::test]
    async fn variables_and_files_are_read_where_they_are_offered() {
        let directory = tempfile::tempdir().unwrap();
        osb_sys::fs::write(directory.path().join("gh"), "from-file\n").unwrap();
        osb_sys::fs::write(directory.path().join("empty"), "\n").unwrap();
        osb_sys::fs::symlink("/etc/hostname", directory.path().join("out")).unwrap();
        let variables = BTreeMap::from([("GH".to_owned(), SecretString::from("from-env"))]);
        let sources =
            Sources::default().with_variables(variables).with_directory(directory.path().into());
        let env = |name| reference(SourceType::Env, Some(name), None);
        let file = |path| reference(SourceType::File, None, Some(path));
        assert_eq!(read(&sources, env("GH")).await.as_deref(), Ok("from-env"));
        assert_eq!(read(&sources, file("gh")).await.as_deref(), Ok("from-file"));
        for source in [env("PATH"), file("../x"), file("/etc/hostname"), file(""), file("./gh")] {
            assert!(sources.admit(source.clone()).is_err(), "{source:?} was accepted");
        }
        for source in [file("empty"), file("out"), file("missing")] {
            assert!(read(&sources, source.clone()).await.is_err(), "{source:?} was read");
        }
        // A file that changes is another secret for the next request.
        osb_sys::fs::write(directory.path().join("gh"), "rotated").unwrap();
        assert_eq!(read(&sources, file("gh")).await.as_deref(), Ok("rotated"));
    }

    #[test]
    fn a_source_says_what_it_needs_and_nothing_else() {
        let sources = Sources::default().with_directory("/x".into());
        let value = Some(Secret::new("s"));
        let both = CredentialSource { value, ..reference(SourceType::File, None, Some("a")) };
        assert!(sources.admit(both).unwrap_err().contains("nothing else"));
        let none = CredentialSource::default();
        assert!(sources.admit(none).unwrap_err().contains("value"));
    }
}
