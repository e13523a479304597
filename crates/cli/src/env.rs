//! Every environment variable that `osb` reads, read once.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use secrecy::SecretString;

/// Where clients find the server: `host[:port]`, optionally with `http://` in front and a path
/// behind. Published SDKs read the same variable. Since 0.1.
pub(crate) const DOMAIN: &str = "OPEN_SANDBOX_DOMAIN";
/// The key that clients send and that `osb server` accepts. Published SDKs read the same
/// variable. Since 0.1.
pub(crate) const API_KEY: &str = "OPEN_SANDBOX_API_KEY";
/// The key that `osb server` accepts, under the name that it has for the published server; it wins
/// over the other. Since 0.1.
pub(crate) const SERVER_API_KEY: &str = "OPENSANDBOX_SERVER_API_KEY";
/// The configuration file of the server, as the published server finds it; `--config` wins.
/// Since 0.1.
pub(crate) const CONFIG_PATH: &str = "SANDBOX_CONFIG_PATH";
/// Where the server keeps its state, and where clients on the same machine look for its key;
/// `--data-dir` wins. Since 0.1.
pub(crate) const DATA_DIR: &str = "OSB_DATA_DIR";
/// How much the server logs: `error`, `warn`, `info`, `debug` or `trace`. Since 0.1.
pub(crate) const LOG: &str = "OSB_LOG";
/// The key that seals credential vaults which outlive the server: 32 bytes in base64. Since 0.1.
pub(crate) const VAULT_KEY: &str = "OSB_VAULT_KEY";
/// The directory of Docker's configuration, in which logins for registries are; `~/.docker` if
/// absent. Docker reads the same variable. Since 0.1.
pub(crate) const DOCKER_CONFIG: &str = "DOCKER_CONFIG";
/// Where users keep data, by the XDG base directory specification.
const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// The user's home directory.
const HOME: &str = "HOME";
/// Where programs that osb starts put what they need for a while.
const TMPDIR: &str = "TMPDIR";
/// Where programs are looked for that osb starts, credential helpers among them.
const PATH: &str = "PATH";
/// How programs that osb starts reach the network, as most of them read it.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// What the environment said when `osb` started.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) domain: Option<String>,
    pub(crate) api_key: Option<SecretString>,
    pub(crate) server_api_key: Option<SecretString>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) vault_key: Option<SecretString>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) log: Option<String>,
    pub(crate) data_home: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) docker_config: Option<PathBuf>,
    pub(crate) temporary: Option<PathBuf>,
    pub(crate) path: Option<OsString>,
    pub(crate) proxies: Vec<(&'static str, OsString)>,
}

impl Environment {
    /// Reads the process's environment.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads it")]
    pub(crate) fn read() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// An empty variable counts as absent, as shells cannot always unset one.
    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let raw = |name| lookup(name).filter(|value| !value.is_empty());
        let text = |name| raw(name).and_then(|value| value.into_string().ok());
        let path = |name| raw(name).map(PathBuf::from);
        Self {
            domain: text(DOMAIN),
            api_key: text(API_KEY).map(SecretString::from),
            server_api_key: text(SERVER_API_KEY).map(SecretString::from),
            config: path(CONFIG_PATH),
            vault_key: text(VAULT_KEY).map(SecretString::from),
            data_dir: path(DATA_DIR),
            log: text(LOG),
            data_home: path(XDG_DATA_HOME).filter(|path| path.is_absolute()),
            home: path(HOME),
            docker_config: path(DOCKER_CONFIG),
            temporary: path(TMPDIR),
            path: raw(PATH),
            proxies: PROXIES.iter().filter_map(|name| Some((*name, raw(name)?))).collect(),
        }
    }
}

/// A variable that the command line names, with what it holds.
pub(crate) fn named(name: &str) -> Option<SecretString> {
    offered(|other| other == name).remove(name)
}

/// The variables that the operator offers as secrets, with what they hold.
pub(crate) fn offered(is_offered: impl Fn(&str) -> bool) -> BTreeMap<String, SecretString> {
    let text = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| is_offered(name))?;
        Some((name, SecretString::from(value.into_string().ok()?)))
    };
    std::env::vars_os().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_count_as_absent() {
        let environment = Environment::from_lookup(|name| match name {
            DOMAIN => Some(OsString::new()),
            HOME => Some(OsString::from("/home/ada")),
            XDG_DATA_HOME => Some(OsString::from("relative")),
            _ => None,
        });
        assert_eq!(environment.domain, None);
        assert_eq!(environment.home, Some(PathBuf::from("/home/ada")));
        assert_eq!(environment.data_home, None);
    }
}
