use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use http::HeaderMap;
use secrecy::SecretString;
use serde::Deserialize;

use super::{BadAddress, Remote, Sources};

/// How long what a store said holds, unless the operator says otherwise, and at most.
const FRESH_SECONDS: u64 = 60;
const LONGEST_FRESH_SECONDS: u64 = 3600;

/// The table `[egress.vault]`, as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawVault {
    /// Whether secrets are taken only over TLS, from this host, or from a trusted proxy that says
    /// that it speaks TLS; no if absent. Since 0.1.
    #[serde(default)]
    pub require_tls: bool,
    /// Addresses of proxies whose `X-Forwarded-Proto` is believed. Since 0.1.
    #[serde(default)]
    pub trusted_proxies: Vec<IpAddr>,
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
    /// `http://127.0.0.1:8200` or `unix:/path`: the store, or an agent of it, on this host.
    /// Since 0.1.
    pub address: String,
    /// The file with the token for it, read for every request. Since 0.1.
    pub token_file: PathBuf,
    /// What credentials may refer to: everything at and below these paths, such as
    /// `secret/data/agents`. Since 0.1.
    pub paths: Vec<String>,
    /// How long an answer holds; a minute if absent. Since 0.1.
    pub cache_seconds: Option<u64>,
}

/// Settings of the vaults that were checked.
#[derive(Debug, Clone, Default)]
pub struct VaultSettings {
    pub transport: Transport,
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
    #[error("egress.vault.store.cache-seconds is at most {LONGEST_FRESH_SECONDS}")]
    TooFresh,
    #[error("egress.vault.store.address: {0}")]
    Address(#[from] BadAddress),
}

/// How a secret may come to the server.
#[derive(Debug, Clone, Default)]
pub enum Transport {
    #[default]
    Any,
    /// Encrypted, as far as the server can know.
    Tls { proxies: Vec<IpAddr> },
}

impl RawVault {
    /// The variables, of those in the environment, that credentials may refer to.
    pub fn offers(&self, variable: &str) -> bool {
        self.env.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => variable.starts_with(beginning),
            None => variable == pattern,
        })
    }

    /// Checks what was written. `variables` are those that it offers, with what they hold.
    pub fn check(
        self,
        variables: BTreeMap<String, SecretString>,
    ) -> Result<VaultSettings, BadSettings> {
        // The server would offer everything that it was started with.
        if self.env.iter().any(|pattern| pattern.trim_end_matches('*').is_empty()) {
            return Err(BadSettings::EveryVariable);
        }
        let mut sources = Sources::default().with_variables(variables);
        if let Some(directory) = self.files {
            if !directory.is_absolute() {
                return Err(BadSettings::RelativeDirectory);
            }
            sources = sources.with_directory(directory);
        }
        if let Some(store) = self.store {
            let seconds = store.cache_seconds.unwrap_or(FRESH_SECONDS);
            if seconds > LONGEST_FRESH_SECONDS {
                return Err(BadSettings::TooFresh);
            }
            let fresh = Duration::from_secs(seconds);
            let remote = Remote::new(&store.address, store.token_file, store.paths, fresh)?;
            sources = sources.with_remote(remote);
        }
        let proxies = self.trusted_proxies;
        let transport = if self.require_tls { Transport::Tls { proxies } } else { Transport::Any };
        Ok(VaultSettings { transport, sources: Arc::new(sources), persist: self.persist })
    }
}

impl Transport {
    /// Whether a secret may come like this. The server itself speaks no TLS, so what is not from this
    /// host is encrypted only if a proxy in front says so.
    pub fn admits(&self, caller: IpAddr, headers: &HeaderMap) -> bool {
        let Self::Tls { proxies } = self else { return true };
        let address = caller.to_canonical();
        let said = headers.get("x-forwarded-proto").map(http::HeaderValue::as_bytes);
        let is_tls = said.is_some_and(|said| said.eq_ignore_ascii_case(b"https"));
        address.is_loopback() || is_tls && proxies.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn raw(text: &str) -> RawVault {
        toml::from_str(text).unwrap()
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
            "store = {address = 'https://vault:8200', token-file = '/t', paths = ['a']}",
            "store = {address = 'http://127.0.0.1', token-file = '/t', paths = [], cache-seconds = 9999}",
        ] {
            assert!(raw(text).check(BTreeMap::new()).is_err(), "{text} was accepted");
        }
        let text = "files = '/etc/secrets'\nrequire-tls = true\n\
                    store = {address = 'unix:/run/v', token-file = '/t', paths = ['secret/data']}";
        assert!(raw(text).check(BTreeMap::new()).is_ok());
        assert!(toml::from_str::<RawVault>("requires-tls = true").is_err());
    }

    #[test]
    fn where_tls_is_required_only_this_host_and_trusted_proxies_may_send() {
        let transport =
            raw("require-tls = true\ntrusted-proxies = ['192.0.2.1']").check(BTreeMap::new());
        let transport = transport.unwrap().transport;
        let admits = |address: &str, said: Option<&'static str>| {
            let address = address.parse().unwrap();
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert("x-forwarded-proto", HeaderValue::from_static(said));
            }
            transport.admits(address, &headers)
        };
        assert!(admits("127.0.0.1", None) && admits("::ffff:127.0.0.1", None));
        assert!(admits("192.0.2.1", Some("https")));
        assert!(!admits("192.0.2.1", None) && !admits("192.0.2.1", Some("http")));
        assert!(!admits("192.0.2.2", Some("https")));
    }
}
