use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use secrecy::SecretString;
use serde::Deserialize;

use super::{BadAddress, BadProxy, Proxies, Remote, Scope, Sources, Token, Transport};
use crate::ExtraCa;

/// How long what a store said holds, unless the operator says otherwise, and at most.
const FRESH_SECONDS: u64 = 60;
const LONGEST_FRESH_SECONDS: u64 = 3600;

/// The table `[egress.vault]`, as written.
#[expect(clippy::struct_excessive_bools, reason = "operators switch them one by one")]
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawVault {
    /// Whether secrets are taken only over TLS, from this host, or from a trusted proxy that says
    /// that it speaks TLS; no if absent. Since 0.1.
    #[serde(default)]
    pub require_tls: bool,
    /// Addresses of proxies, and ranges of them, whose `X-Forwarded-Proto` is believed. Since 0.1.
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// Whether every binding must say for which methods and paths it is; no if absent. Since 0.1.
    #[serde(default)]
    pub require_scoped_match: bool,
    /// Whether credentials may be bound to plain HTTP, where nobody proves who he is and everybody
    /// on the way can read them; no if absent. Since 0.1.
    #[serde(default)]
    pub plain_http: bool,
    /// Whether vaults outlive the server, sealed, in its data directory; no if absent. Since 0.1.
    #[serde(default)]
    pub persist: bool,
    /// Variables of the server's environment that credentials may refer to: names, or beginnings
    /// that end in `*`; none if absent. Since 0.1.
    #[serde(default)]
    pub env: Vec<String>,
    /// A directory whose files credentials may refer to; none if absent. Since 0.1.
    pub files: Option<PathBuf>,
    /// A store that credentials may refer to; none if absent. Since 0.1.
    pub store: Option<RawVaultStore>,
}

/// The table `[egress.vault.store]`: a store that speaks the HTTP API of HashiCorp Vault.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawVaultStore {
    /// `https://host:8200`; or `http://127.0.0.1:8200` or `unix:/path`, which is an agent of the
    /// store on this host. Since 0.1.
    pub address: String,
    /// The file with the token for it, read for every request. Since 0.1.
    pub token_file: Option<PathBuf>,
    /// The variable of the server's environment with the token, instead of a file. Since 0.1.
    pub token_env: Option<String>,
    /// The namespace in the store, for those that have several. Since 0.1.
    pub namespace: Option<String>,
    /// What credentials may refer to: everything at and below these paths, such as
    /// `secret/data/agents`. Since 0.1.
    #[serde(default)]
    pub paths: Vec<String>,
    /// How long an answer holds, if its lease is not shorter; a minute if absent. Since 0.1.
    pub cache_seconds: Option<u64>,
}

/// Settings of the vaults that were checked.
#[derive(Debug, Clone, Default)]
pub struct VaultSettings {
    pub transport: Transport,
    pub scope: Scope,
    pub sources: Arc<Sources>,
    /// Whether vaults outlive the server.
    pub persist: bool,
}

/// Settings that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error("egress.vault.env names variables, and not all of them")]
    EveryVariable,
    #[error("egress.vault.files is an absolute path")]
    RelativeDirectory,
    #[error("egress.vault.files: there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    #[error("egress.vault.store.cache-seconds is at most {LONGEST_FRESH_SECONDS}")]
    TooFresh,
    #[error("egress.vault.store: {0}")]
    Address(#[from] BadAddress),
    #[error("egress.vault.store needs token-file or token-env, and not both")]
    Token,
    #[error("egress.vault.store.paths must say what may be read, such as [\"secret/data/agents\"]")]
    NoPaths,
    #[error("egress.vault.store.token-env: there is no variable {0}")]
    NoToken(String),
    #[error("egress.vault.trusted-proxies: {0}")]
    Proxy(#[from] BadProxy),
}

impl RawVault {
    /// The variables, of those in the environment, that credentials may refer to.
    pub fn offers(&self, variable: &str) -> bool {
        self.env.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => variable.starts_with(beginning),
            None => variable == pattern,
        })
    }

    /// Those that it offers of which there is none: nobody can refer to them.
    pub fn unset(&self, offered: &BTreeMap<String, SecretString>) -> Vec<String> {
        let is_set = |pattern: &&String| {
            let one = Self { env: vec![(*pattern).clone()], ..Self::default() };
            offered.keys().any(|variable| one.offers(variable))
        };
        self.env.iter().filter(|pattern| !is_set(pattern)).cloned().collect()
    }

    /// Checks what was written. `variable` reads the server's environment, `offered` are the
    /// variables of it that credentials may refer to, and `extra` vouches for the store.
    pub fn check(
        self,
        variable: impl FnOnce(&str) -> Option<SecretString>,
        offered: BTreeMap<String, SecretString>,
        extra: Option<&ExtraCa>,
    ) -> Result<VaultSettings, BadSettings> {
        // The server would offer everything that it was started with.
        if self.env.iter().any(|pattern| pattern.trim_end_matches('*').is_empty()) {
            return Err(BadSettings::EveryVariable);
        }
        let mut sources = Sources::default().with_variables(offered);
        if self.plain_http {
            sources = sources.with_plain_http();
        }
        if let Some(directory) = self.files {
            if !directory.is_absolute() {
                return Err(BadSettings::RelativeDirectory);
            }
            if !directory.is_dir() {
                return Err(BadSettings::NoDirectory(directory));
            }
            sources = sources.with_directory(directory);
        }
        if let Some(store) = self.store {
            let seconds = store.cache_seconds.unwrap_or(FRESH_SECONDS);
            if seconds > LONGEST_FRESH_SECONDS {
                return Err(BadSettings::TooFresh);
            }
            let token = match (store.token_file, store.token_env) {
                (Some(path), None) => Token::File(path),
                (None, Some(name)) => {
                    Token::Given(variable(&name).ok_or(BadSettings::NoToken(name))?)
                }
                (Some(_), Some(_)) | (None, None) => return Err(BadSettings::Token),
            };
            if store.paths.is_empty() {
                return Err(BadSettings::NoPaths);
            }
            let remote = Remote::new(&store.address, token, store.paths, extra)?;
            let remote = remote.within(store.namespace.as_deref())?;
            sources = sources.with_remote(remote.remembering(Duration::from_secs(seconds)));
        }
        let proxies = Proxies::parse(self.trusted_proxies.iter().map(String::as_str))?;
        let transport = if self.require_tls { Transport::Tls(proxies) } else { Transport::Any };
        let scope = if self.require_scoped_match { Scope::Requests } else { Scope::Hosts };
        Ok(VaultSettings { transport, scope, sources: Arc::new(sources), persist: self.persist })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawVault {
        toml::from_str(text).unwrap()
    }

    fn check(text: &str) -> Result<VaultSettings, BadSettings> {
        let variable = |name: &str| (name == "T").then(|| SecretString::from("token"));
        raw(text).check(variable, BTreeMap::new(), None)
    }

    #[test]
    fn only_the_variables_that_are_named_are_offered() {
        let raw = raw("env = ['GITHUB_TOKEN', 'AGENT_*']");
        assert!(raw.offers("GITHUB_TOKEN") && raw.offers("AGENT_X") && raw.offers("AGENT_"));
        assert!(!raw.offers("GITHUB_TOKEN_2") && !raw.offers("PATH") && !raw.offers(""));
        assert!(!RawVault::default().offers("PATH"));
    }

    #[test]
    fn what_opens_too_much_or_cannot_work_is_refused() {
        for text in [
            "env = ['*']",
            "env = ['']",
            "files = 'secrets'",
            "files = '/nonexistent/secrets'",
            "files = '/dev/null'",
            "store = {address = 'http://vault:8200', token-file = '/t', paths = ['a']}",
            "store = {address = 'https://vault:8200', paths = ['a']}",
            "store = {address = 'https://vault:8200', token-env = 'T', token-file = '/t', paths = []}",
            "store = {address = 'https://vault:8200', token-env = 'MISSING', paths = ['a']}",
            "store = {address = 'unix:/v', token-file = '/t', paths = [], namespace = 'a b'}",
            "store = {address = 'unix:/v', token-file = '/t', paths = []}",
            "store = {address = 'unix:/v', token-file = '/t'}",
            "trusted-proxies = ['proxy.example.com']",
            "store = {address = 'http://127.0.0.1', token-file = '/t', paths = [], cache-seconds = 9999}",
        ] {
            assert!(check(text).is_err(), "{text} was accepted");
        }
        let text = "files = '/'\nrequire-tls = true\n\
                    store = {address = 'unix:/run/v', token-file = '/t', paths = ['secret/data']}";
        assert!(check(text).is_ok());
        let text = "store = {address = 'https://vault', token-env = 'T', paths = ['kv/data'], namespace = 'a/b'}";
        assert!(check(text).is_ok());
        assert!(toml::from_str::<RawVault>("requires-tls = true").is_err());
    }
}
