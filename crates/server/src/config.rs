//! The server's settings: text as operators write it, and values as the server uses them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use http::uri::Authority;
use osb_audit::Keep;
use osb_egress::{Operator, Settings, vault::VaultSettings};
use osb_sys::fs::{self, PathError};
use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    ingress::GatewayDomain,
    key,
    tls::{Identity, RawTls},
};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_DATA_DIR: &str = "/var/lib/opensandbox";
const DEFAULT_MAX_TIMEOUT: u64 = 86_400;
const DEFAULT_RENEW_INTERVAL: u32 = 60;
const DEFAULT_MAX_BODY: usize = 1 << 20;
/// How long requests may go on once the server is told to end.
const DEFAULT_DRAIN: u64 = 5;
const LONGEST_DRAIN: u64 = 3600;
/// Published clients give up after 30 seconds; until then they should have an answer.
const PATIENCE: Duration = Duration::from_secs(25);
/// The shortest life that a client may ask for.
pub(crate) const MIN_TIMEOUT: u64 = 60;

/// The table `[server]` of the program's configuration file, as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawConfig {
    /// Where to listen; `127.0.0.1:8080` if absent. Since 0.1.
    pub listen: Option<SocketAddr>,
    /// Where the database and the created key live; `/var/lib/opensandbox` if absent. Since 0.1.
    pub data_dir: Option<PathBuf>,
    /// `host[:port][/path]` under which clients reach the server, if not the one they asked for.
    /// Since 0.1.
    pub public_host: Option<String>,
    /// `domain[:port]` whose hosts are ports of sandboxes: `{port}-{id}.<domain>`; there are no such
    /// hosts if absent. Since 0.1.
    pub gateway_domain: Option<String>,
    /// The longest life of a sandbox that a client may ask for; a day if absent. Since 0.1.
    pub max_sandbox_timeout_seconds: Option<u64>,
    /// How many seconds lie at least between two requests that put an expiry off, 1 to 3600; 60 if
    /// absent. Since 0.1.
    pub renew_interval_seconds: Option<u32>,
    /// The largest body that the lifecycle routes read; 1 MiB if absent. Since 0.1.
    pub max_body_bytes: Option<usize>,
    /// How long requests may go on once the server is told to end; 5 if absent. Since 0.1.
    pub drain_seconds: Option<u64>,
    /// The key that clients must send. Since 0.1.
    pub api_key: Option<SecretString>,
    /// A file that holds the key. Since 0.1.
    pub api_key_file: Option<PathBuf>,
    /// Who the server says it is; it speaks no TLS if absent. Since 0.1.
    pub tls: Option<RawTls>,
}

/// What the command line and the environment say; it wins over the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub listen: Option<SocketAddr>,
    pub data_dir: Option<PathBuf>,
    /// From the environment, never from a flag, which every user of the machine could read.
    pub api_key: Option<SecretString>,
    /// From the environment as well.
    pub vault_key: Option<SecretString>,
    pub auth: AuthMode,
}

/// Whether callers must prove who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthMode {
    #[default]
    Key,
    /// Everybody who reaches the server may use it; only on loopback.
    Off,
}

/// Settings that were checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub public_host: Option<PublicHost>,
    pub gateway_domain: Option<GatewayDomain>,
    pub max_sandbox_timeout_seconds: u64,
    /// How much time lies at least between two requests that put an expiry off.
    pub renew_interval: Duration,
    pub max_body_bytes: usize,
    /// How long requests may go on once the server is told to end.
    pub drain: Duration,
    pub key: KeyConfig,
    /// Who the server says it is, if it speaks TLS: the table `[server.tls]`.
    pub tls: Option<Identity>,
    /// What sandboxes may reach: the table `[egress]` of the configuration file.
    pub egress: Operator,
    /// How much of it, and where names are resolved.
    pub egress_settings: Settings,
    /// What vaults may do: the table `[egress.vault]`.
    pub vault: VaultSettings,
    /// The key that seals vaults; without one it is in `<data-dir>/vault-key`.
    pub vault_key: Option<SecretString>,
    /// How much is kept of what sandboxes did: the table `[audit]`.
    pub audit: Keep,
    /// How long a request waits for what it asked for before it is answered with what is.
    pub patience: Duration,
}

/// Where the API key comes from.
#[derive(Debug, Clone)]
pub enum KeyConfig {
    Environment(SecretString),
    File(SecretString),
    /// In `<data-dir>/api-key`, created if it is not there.
    DataDir,
    Off,
}

/// `host[:port][/path]`, without a scheme and without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicHost(String);

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Read(#[from] PathError),
    #[error("{0}")]
    Invalid(String),
    #[error(
        "without a key the server listens on loopback only, and {0} is not loopback: \
         drop --no-auth or listen on 127.0.0.1"
    )]
    OpenToTheNetwork(SocketAddr),
}

impl Config {
    /// Checks what was written, and lets `overrides` win.
    pub fn new(raw: RawConfig, overrides: Overrides) -> Result<Self, ConfigError> {
        let listen = overrides.listen.or(raw.listen).unwrap_or(DEFAULT_LISTEN);
        if overrides.auth == AuthMode::Off && !listen.ip().is_loopback() {
            return Err(ConfigError::OpenToTheNetwork(listen));
        }
        let max_sandbox_timeout_seconds =
            raw.max_sandbox_timeout_seconds.unwrap_or(DEFAULT_MAX_TIMEOUT);
        if max_sandbox_timeout_seconds < MIN_TIMEOUT {
            return Err(ConfigError::Invalid(format!(
                "max-sandbox-timeout-seconds must be {MIN_TIMEOUT} at least"
            )));
        }
        let drain = raw.drain_seconds.unwrap_or(DEFAULT_DRAIN);
        if !(1..=LONGEST_DRAIN).contains(&drain) {
            return Err(ConfigError::Invalid(format!(
                "drain-seconds must be 1 to {LONGEST_DRAIN}"
            )));
        }
        let renew_interval = raw.renew_interval_seconds.unwrap_or(DEFAULT_RENEW_INTERVAL);
        if !(1..=3600).contains(&renew_interval) {
            let rule = "renew-interval-seconds must be 1 to 3600";
            return Err(ConfigError::Invalid(rule.to_owned()));
        }
        let key = match (overrides.auth, overrides.api_key, raw.api_key, raw.api_key_file) {
            (AuthMode::Off, ..) => KeyConfig::Off,
            (AuthMode::Key, Some(key), ..) => KeyConfig::Environment(key),
            (AuthMode::Key, None, Some(_), Some(_)) => {
                return Err(ConfigError::Invalid(
                    "api-key and api-key-file exclude each other".to_owned(),
                ));
            }
            (AuthMode::Key, None, Some(key), None) => KeyConfig::File(key),
            (AuthMode::Key, None, None, Some(path)) => {
                KeyConfig::File(SecretString::from(fs::read_to_string(path)?.trim().to_owned()))
            }
            (AuthMode::Key, None, None, None) => KeyConfig::DataDir,
        };
        if let KeyConfig::Environment(secret) | KeyConfig::File(secret) = &key {
            key::check(secret).map_err(ConfigError::Invalid)?;
        }
        let public_host = raw.public_host.as_deref().map(PublicHost::parse).transpose()?;
        let gateway_domain = raw.gateway_domain.as_deref().map(GatewayDomain::parse).transpose()?;
        if let (Some(domain), Some(public)) = (&gateway_domain, &public_host) {
            domain.check_public(public.as_str())?;
        }
        Ok(Self {
            listen,
            data_dir: overrides
                .data_dir
                .or(raw.data_dir)
                .unwrap_or_else(|| DEFAULT_DATA_DIR.into()),
            public_host,
            gateway_domain,
            max_sandbox_timeout_seconds,
            renew_interval: Duration::from_secs(renew_interval.into()),
            max_body_bytes: raw.max_body_bytes.unwrap_or(DEFAULT_MAX_BODY),
            drain: Duration::from_secs(drain),
            key,
            tls: raw.tls.as_ref().map(RawTls::read).transpose()?,
            egress: Operator::default(),
            egress_settings: Settings::default(),
            vault: VaultSettings::default(),
            vault_key: overrides.vault_key,
            audit: Keep::default(),
            patience: PATIENCE,
        })
    }
}

impl PublicHost {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let bare = text
            .trim()
            .strip_prefix("https://")
            .or_else(|| text.trim().strip_prefix("http://"))
            .unwrap_or_else(|| text.trim())
            .trim_end_matches('/');
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let path_is_plain = path.bytes().all(|b| b.is_ascii_graphic() && !b"?#\"\\".contains(&b));
        if !is_host(host) || !path_is_plain {
            return Err(ConfigError::Invalid(format!(
                "public-host must be host[:port][/path], and {text:?} is not"
            )));
        }
        Ok(Self(bare.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the text can stand for this server in a URL: `host[:port]` and nothing else.
pub(crate) fn is_host(text: &str) -> bool {
    text.len() <= 261
        && !text.contains('@')
        && text.parse::<Authority>().is_ok_and(|authority| !authority.host().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        let raw = toml::from_str(text).map_err(|error| ConfigError::Invalid(error.to_string()))?;
        Config::new(raw, Overrides::default())
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = parse("").expect("defaults");
        assert_eq!(config.listen, DEFAULT_LISTEN);
        assert_eq!(config.max_sandbox_timeout_seconds, 86_400);
        assert_eq!(config.max_body_bytes, 1 << 20);
        assert!(matches!(config.key, KeyConfig::DataDir));
    }

    #[test]
    fn every_setting_can_be_written() {
        let config = parse(
            "listen = '0.0.0.0:80'\ndata-dir = '/x'\npublic-host = 'https://a.b:1/c/'\n\
             gateway-domain = 'd.a.b'\nmax-sandbox-timeout-seconds = 60\nmax-body-bytes = 5\napi-key = 'secret-key'\n",
        )
        .expect("settings");
        assert_eq!(config.public_host, Some(PublicHost("a.b:1/c".to_owned())));
        assert!(matches!(config.key, KeyConfig::File(_)));
        assert!(!format!("{config:?}").contains("secret-key"));
    }

    #[test]
    fn misspelt_and_impossible_settings_are_refused() {
        for text in [
            "lissten = '127.0.0.1:1'",
            "max-sandbox-timeout-seconds = 59",
            "renew-interval-seconds = 0",
            "public-host = 'user@host'",
            "public-host = 'a b'",
            "drain-seconds = 0",
            "drain-seconds = 3601",
            "tls = { certificate = '/nonexistent', key = '/nonexistent' }",
            "gateway-domain = '*.a.b'",
            "gateway-domain = 'a.b'\npublic-host = 'c.a.b'",
            "api-key = ''",
            "api-key = 'a'\napi-key-file = '/x'",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn no_auth_stays_on_loopback() {
        let open = |listen: &str| {
            let overrides = Overrides {
                listen: Some(listen.parse().expect("an address")),
                auth: AuthMode::Off,
                ..Overrides::default()
            };
            Config::new(RawConfig::default(), overrides)
        };
        assert!(open("127.0.0.1:0").is_ok());
        assert!(open("[::1]:0").is_ok());
        assert!(matches!(open("0.0.0.0:0"), Err(ConfigError::OpenToTheNetwork(_))));
        assert!(matches!(open("192.0.2.1:80"), Err(ConfigError::OpenToTheNetwork(_))));
    }
}
