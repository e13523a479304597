//! What flags, the environment and the configuration file of the server come to.

mod document;
mod effective;
mod manual;
mod nearest;
mod published;
mod schema;
mod shape;

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use osb_core::Memory;
use osb_server::{
    AuthMode, Config, ConfigError, EgressSettings, Operator, OperatorError, Overrides, RawAudit,
    RawConfig, RawOperator,
};
use serde::Deserialize;
use tracing_subscriber::filter::LevelFilter;

use self::document::Document;
pub(crate) use self::{effective::Effective, schema::schema};
use crate::{
    data_dir::{self, User},
    env::{self, API_KEY, DATA_DIR, Environment, LOG, SERVER_API_KEY},
    failure::Failure,
    images_config::{ImagesConfig, RawImages},
    logging::{self, RawLog},
    pools::{self, RawPool},
    runtime::{self, Kind},
    storage::Storage,
};

/// What the command line says about a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where to keep sandboxes, images, the database and the API key [default:
    /// /var/lib/opensandbox for root, else ~/.local/share/opensandbox]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Read settings from this file, in TOML; flags win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where sandboxes run [default: native]
    #[arg(long, value_enum)]
    runtime: Option<Kind>,
    /// Ask nobody for a key; only on loopback
    #[arg(long)]
    no_auth: bool,
}

impl Flags {
    /// The configuration file, if there is one. No file is read that nobody named: one of another
    /// server may lie around.
    pub(crate) fn file<'a>(&'a self, environment: &'a Environment) -> Option<&'a Path> {
        self.config.as_deref().or(environment.config.as_deref())
    }
}

/// Settings that were checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) runtime: Kind,
    /// About sandboxes on this host.
    pub(crate) host: runtime::Settings,
    pub(crate) images: ImagesConfig,
    pub(crate) level: LevelFilter,
    /// What is allowed but hardly meant, to be said once somebody listens.
    pub(crate) warnings: Vec<String>,
    pub(crate) effective: Effective,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    server: RawConfig,
    #[serde(default)]
    log: RawLog,
    #[serde(default)]
    runtime: RawRuntime,
    #[serde(default)]
    native: RawNative,
    #[serde(default)]
    pool: Vec<RawPool>,
    #[serde(default)]
    storage: Storage,
    #[serde(default)]
    egress: RawOperator,
    #[serde(default)]
    audit: RawAudit,
    #[serde(default)]
    images: RawImages,
}

/// The table `[runtime]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawRuntime {
    /// Where sandboxes run; on this host if absent. Since 0.1.
    r#type: Option<Kind>,
}

/// The table `[native]`, about sandboxes on this host.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawNative {
    /// How much a sandbox may write that does not say, such as `10Gi`; as much as there is if
    /// absent. Since 0.1.
    default_disk: Option<String>,
}

impl RawNative {
    fn default_disk(&self) -> Result<Option<Memory>, Failure> {
        let parsed = self.default_disk.as_deref().map(str::parse).transpose();
        parsed.map_err(|error| Failure::Usage(format!("native.default-disk: {error}")))
    }
}

impl Settings {
    /// Reads and checks everything. `user` is whose server it is, or was before it became root of a
    /// namespace of its own.
    pub(crate) fn load(
        flags: &Flags,
        environment: &Environment,
        user: User,
    ) -> Result<Self, Failure> {
        let path = flags.file(environment);
        let document = path.map(read).transpose()?.unwrap_or_default();
        let Document { file, values, lines, warnings } = document;
        let File { server: mut raw, log, runtime, native, pool, storage, egress, audit, images } =
            file;
        let within = |warning: String| match path {
            Some(path) => format!("{}, {warning}", path.display()),
            None => warning,
        };
        let mut warnings: Vec<String> = warnings.into_iter().map(within).collect();

        let mut effective = Effective::of_file(&values, &lines);
        raw.data_dir.get_or_insert_with(|| data_dir::default_for(user, environment));
        let tls = raw.tls.clone();
        let config = Config::new(raw, overrides(flags, environment)).map_err(unusable)?;
        name_origins(&mut effective, &config, flags, environment);
        let level = logging::level(environment, log.level.as_deref())?;
        let kind = flags.runtime.or(runtime.r#type).unwrap_or_default().check()?;

        let audit = audit.check().map_err(unusable)?;
        let unfit = |error: OperatorError| Failure::Usage(error.to_string());
        let operator = Operator::new(&egress).map_err(unfit)?;
        let egress_settings = EgressSettings::new(&egress).map_err(unfit)?;
        let offered = env::offered(|variable| egress.vault.offers(variable));
        let variable = |name: &str| env::offered(|known| known == name).remove(name);
        warnings.extend(operator.exposed().into_iter().map(|address| {
            format!(
                "egress.allow-private has {address}: sandboxes without a policy reach all its ports"
            )
        }));
        warnings.extend(egress.vault.unset(&offered).into_iter().map(|name| {
            format!(
                "egress.vault.env has {name}, and no such variable is set: no credential can refer \
                 to it"
            )
        }));
        let vault = egress.vault.check(variable, offered, egress_settings.extra_ca.as_ref());
        let vault = vault.map_err(|error| Failure::Usage(error.to_string()))?;
        match &tls {
            Some(tls) if is_open_to_others(&tls.key) => warnings.push(format!(
                "server.tls.key: everybody on this machine may read {}: use chmod 600",
                tls.key.display()
            )),
            None if !config.listen.ip().is_loopback() => warnings.push(format!(
                "the server listens on {} without TLS: whoever is on the way reads the API key. Set \
                 [server.tls], or listen on loopback behind a proxy that speaks TLS",
                config.listen
            )),
            Some(_) | None => {}
        }

        let images = images.check()?;
        let host = runtime::Settings {
            pools: pools::checked(pool)?,
            default_disk: native.default_disk()?,
            host_paths: storage.host_paths(&config.data_dir)?,
            images: images.store.clone(),
        };
        let config = Config { egress: operator, egress_settings, vault, audit, ..config };
        Ok(Self { config, runtime: kind, host, images, level, warnings, effective })
    }
}

/// A file that every key of is known, or all that is wrong with it.
fn read(path: &Path) -> Result<Document, Failure> {
    let text = osb_sys::fs::read_small(path)?;
    let wrong = |problem: String| Failure::Usage(format!("{}, {problem}", path.display()));
    let text = std::str::from_utf8(&text).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    Document::parse(text).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        wrong(lines.join(&format!("\n{}, ", path.display())))
    })
}

fn overrides(flags: &Flags, environment: &Environment) -> Overrides {
    let key = environment.server_api_key.as_ref().or(environment.api_key.as_ref());
    Overrides {
        listen: flags.listen,
        data_dir: flags.data_dir.clone().or_else(|| environment.data_dir.clone()),
        api_key: key.cloned(),
        vault_key: environment.vault_key.clone(),
        auth: if flags.no_auth { AuthMode::Off } else { AuthMode::Key },
    }
}

/// Says of what did not come from the file where it came from.
fn name_origins(
    effective: &mut Effective,
    config: &Config,
    flags: &Flags,
    environment: &Environment,
) {
    let variable = |name: &str| format!("the variable {name}");
    if flags.listen.is_some() {
        effective.set("server.listen", config.listen.to_string().into(), "--listen".to_owned());
    }
    let origin = match (&flags.data_dir, &environment.data_dir) {
        (Some(_), _) => Some("--data-dir".to_owned()),
        (None, Some(_)) => Some(variable(DATA_DIR)),
        (None, None) => (!effective.has("server.data-dir")).then(|| "default".to_owned()),
    };
    if let Some(origin) = origin {
        let data_dir = config.data_dir.display().to_string();
        effective.set("server.data-dir", data_dir.into(), origin);
    }
    let key = match (&environment.server_api_key, &environment.api_key) {
        (Some(_), _) => Some(SERVER_API_KEY),
        (None, Some(_)) => Some(API_KEY),
        (None, None) => None,
    };
    // It is not shown.
    if let Some(key) = key {
        effective.set("server.api-key", String::new().into(), variable(key));
    }
    if let Some(level) = &environment.log {
        effective.set("log.level", level.clone().into(), variable(LOG));
    }
    if let Some(kind) = flags.runtime {
        let name = format!("{kind:?}").to_lowercase();
        effective.set("runtime.type", name.into(), "--runtime".to_owned());
    }
}

fn unusable(error: ConfigError) -> Failure {
    match error {
        ConfigError::Read(error) => Failure::File(error),
        ConfigError::Invalid(_) | ConfigError::OpenToTheNetwork(_) => {
            Failure::Usage(error.to_string())
        }
    }
}

fn is_open_to_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests;
