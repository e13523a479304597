//! Logins that come with no request: those of Docker's `config.json`.

mod helper;

use std::{borrow::Cow, collections::BTreeMap, fmt, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use osb_sys::fs::{self, PathError};
use secrecy::{SecretString, zeroize::Zeroizing};
use serde::Deserialize;

use self::helper::{Helper, HelperError};
use crate::{Login, LoginSettings};

/// The name of Docker's own registry in these files.
const HUB: &str = "https://index.docker.io/v1/";
/// The user that stands for a token, in the words of credential helpers.
const TOKEN_USER: &str = "<token>";

/// How somebody proves who they are.
#[derive(Clone)]
pub(crate) enum Credential {
    Basic(Login),
    /// What others give tokens for.
    Identity(SecretString),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic(login) => login.fmt(f),
            Self::Identity(_) => f.write_str("Identity"),
        }
    }
}

/// Where logins are found. Files are read and helpers are asked each time: people log in and out.
#[derive(Debug, Clone)]
pub(crate) struct Keyring(LoginSettings);

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyringError {
    #[error("cannot read the logins")]
    Unread(#[source] PathError),
    #[error("{} is not Docker's config.json: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
    #[error("the credential helper {name} does not help")]
    Helper {
        name: String,
        #[source]
        cause: HelperError,
    },
}

impl Keyring {
    pub(crate) fn new(settings: LoginSettings) -> Self {
        Self(settings)
    }

    /// The login for a registry, named as in references. Waits for files and programs.
    pub(crate) fn find(&self, registry: &str) -> Result<Option<Credential>, KeyringError> {
        let Some(path) = &self.0.config else { return Ok(None) };
        let content = match fs::read_small(path) {
            Ok(content) => Zeroizing::new(content),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(KeyringError::Unread(error)),
        };
        let malformed = |problem: String| KeyringError::Malformed { path: path.clone(), problem };
        let config: Config<'_> = serde_json::from_slice(&content).map_err(|error| {
            // Its text may hold a piece of a secret.
            malformed(format!("line {}, column {}", error.line(), error.column()))
        })?;
        let own = config.cred_helpers.iter().find(|(name, _)| is_for(name, registry));
        let helper = own.map(|(_, helper)| helper).or(config.creds_store.as_ref());
        if let Some(name) = helper.filter(|name| !name.is_empty()) {
            let server = if registry == "docker.io" { HUB } else { registry };
            let found = self.helper(name).and_then(|helper| helper.get(server));
            let found =
                found.map_err(|cause| KeyringError::Helper { name: name.to_string(), cause });
            // Helpers were introduced while logins were in the file: some still are.
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        match config.auths.iter().find(|(name, _)| is_for(name, registry)) {
            Some((_, entry)) => entry.credential().map_err(|it| malformed(it.to_owned())),
            None => Ok(None),
        }
    }

    fn helper(&self, name: &str) -> Result<Helper, HelperError> {
        Helper::find(name, &self.0.helpers, &self.0.variables)
    }
}

/// Whether an entry of the file is about a registry. They are written with a scheme and a path, or
/// without.
fn is_for(entry: &str, registry: &str) -> bool {
    let entry = entry.trim();
    let bare = entry.split_once("://").map_or(entry, |(_, bare)| bare);
    let host = bare.split('/').next().unwrap_or_default();
    let is_hub =
        |host: &str| ["docker.io", "index.docker.io", "registry-1.docker.io"].contains(&host);
    host.eq_ignore_ascii_case(registry) || (is_hub(host) && is_hub(registry))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    #[serde(default, borrow)]
    auths: BTreeMap<Cow<'a, str>, Entry<'a>>,
    #[serde(default, borrow)]
    creds_store: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    cred_helpers: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Borrowed, so that there is one copy to overwrite.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(default, borrow)]
    auth: Option<&'a str>,
    #[serde(default, borrow)]
    username: Option<&'a str>,
    #[serde(default, borrow)]
    password: Option<&'a str>,
    #[serde(default, borrow)]
    identitytoken: Option<&'a str>,
}

impl Entry<'_> {
    fn credential(&self) -> Result<Option<Credential>, &'static str> {
        if let Some(token) = self.identitytoken.filter(|token| !token.is_empty()) {
            return Ok(Some(Credential::Identity(token.into())));
        }
        if let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) {
            const WRONG: &str = "an auth is the base64 of a name, a colon and a password";
            let decoded = Zeroizing::new(STANDARD.decode(auth).map_err(|_| WRONG)?);
            let text = std::str::from_utf8(&decoded).map_err(|_| WRONG)?;
            let (username, password) = text.split_once(':').ok_or(WRONG)?;
            // Some versions of Docker ended it with zeros.
            return Ok(Some(credential(username, password.trim_end_matches('\0'))));
        }
        let both = self.username.zip(self.password).filter(|(name, _)| !name.is_empty());
        Ok(both.map(|(username, password)| credential(username, password)))
    }
}

fn credential(username: &str, secret: &str) -> Credential {
    if username == TOKEN_USER {
        Credential::Identity(secret.into())
    } else {
        Credential::Basic(Login { username: username.to_owned(), password: secret.into() })
    }
}

#[cfg(test)]
mod tests;
