//! `osb server`: the control plane on this machine.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use osb_core::{Memory, SystemClock};
use osb_egress::ExtraCa;
use osb_native::Obstacle;
use osb_server::{
    ApiKeySource, AuthMode, Config, ConfigError, EgressSettings, Operator, OperatorError,
    Overrides, RawAudit, RawConfig, RawOperator, Server, StartError, World,
};
use serde::Deserialize;

use crate::{
    data_dir::{self, User},
    env::{self, API_KEY, Environment},
    failure::Failure,
    images_config::RawImages,
    logging::{self, Reader},
    output::Output,
    pools::{self, RawPool},
    runtime::{self, Kind, Started},
    signals::{Interrupts as _, Signals},
    storage::Storage,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Where sandboxes run
    #[arg(long, value_enum, default_value_t)]
    runtime: Kind,
    /// Ask nobody for a key; only on loopback
    #[arg(long)]
    no_auth: bool,
}

/// A server that is about to start, in a process that has become what it can be.
#[derive(Debug)]
pub(crate) struct Begun {
    args: Args,
    config: Config,
    /// What the operator should know about the settings.
    warnings: Vec<String>,
    /// What keeps it from serving without root, if anything does.
    obstacle: Option<Obstacle>,
}

/// What must happen before there is any thread.
pub(crate) fn begin(args: Args, environment: &Environment) -> Result<Begun, Failure> {
    let (config, warnings) = settings(&args, environment, User::current())?;
    let obstacle = runtime::become_root(&config.data_dir).err();
    Ok(Begun { args, config, warnings, obstacle })
}

pub(crate) async fn main(
    Begun { args, config, warnings, obstacle }: Begun,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let reader = logging::start(environment)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // It has several for each sandbox.
    if let Err(error) = osb_sys::rlimit::raise() {
        tracing::warn!(%error, "cannot have more descriptors");
    }
    let mut signals = Signals::listen_but_to_hangups()?;
    let File { pool, native, storage, images, .. } = file(&args)?;
    let images = images.check()?;
    let host = runtime::Settings {
        pools: pools::checked(pool)?,
        default_disk: native.default_disk()?,
        host_paths: storage.host_paths(&config.data_dir)?,
        images: images.store.clone(),
    };
    let failed = |source: StartError| {
        let doing = "cannot start the server";
        Failure::Machine { doing, source: source.into() }
    };
    let listener = Server::listen(&config).await.map_err(failed)?;
    let Started { runtime, images: kept } =
        runtime::start(args.runtime, &config.data_dir, obstacle.as_ref(), host).await?;
    // A crash leaves no secret of a vault on a disk. Not earlier: sandboxes would inherit it.
    if let Err(error) = osb_sys::fs::write("/proc/self/coredump_filter", "0") {
        tracing::warn!(%error, "if the server crashes, its memory may be written to a disk");
    }
    let extra_ca = config.egress_settings.extra_ca.as_ref().map(ExtraCa::pem);
    let images = kept.map(|kept| images.remote(kept, extra_ca, environment)).transpose()?;
    let world = World { runtime: Arc::clone(&runtime), images, clock: Arc::new(SystemClock) };
    let server = Server::start(listener, config, world).await.map_err(failed)?;
    let (address, key) = (server.address(), whereabouts(server.api_key_source()));
    match reader {
        Reader::Person => output.say(&format!("listening on http://{address}\nosb: {key}")),
        Reader::Machine => tracing::info!(%address, api_key = key, "listening"),
    }
    server
        .run(async {
            let signal = signals.next().await;
            tracing::info!(signal = signal.0, "asked to stop; sandboxes live on");
        })
        .await;
    runtime.retire().await;
    Ok(0)
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    server: RawConfig,
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

/// The configuration file, or what holds without one.
fn file(args: &Args) -> Result<File, Failure> {
    let Some(path) = &args.config else { return Ok(File::default()) };
    let text = osb_sys::fs::read_to_string(path)?;
    toml::from_str(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// What the flags, the environment and the file come to.
///
/// And of what is allowed but hardly meant, to be said once somebody listens.
fn settings(
    args: &Args,
    environment: &Environment,
    user: User,
) -> Result<(Config, Vec<String>), Failure> {
    let File { server: mut raw, egress, audit, .. } = file(args)?;
    raw.data_dir.get_or_insert_with(|| data_dir::default_for(user, environment));
    let overrides = Overrides {
        listen: args.listen,
        data_dir: args.data_dir.clone().or_else(|| environment.data_dir.clone()),
        api_key: environment.api_key.clone(),
        vault_key: environment.vault_key.clone(),
        auth: if args.no_auth { AuthMode::Off } else { AuthMode::Key },
    };
    let unusable = |error: ConfigError| match error {
        ConfigError::Read(error) => Failure::File(error),
        ConfigError::Invalid(_) | ConfigError::OpenToTheNetwork(_) => {
            Failure::Usage(error.to_string())
        }
    };
    let config = Config::new(raw, overrides).map_err(unusable)?;
    let audit = audit.check().map_err(unusable)?;
    let unfit = |error: OperatorError| Failure::Usage(error.to_string());
    let operator = Operator::new(&egress).map_err(unfit)?;
    let egress_settings = EgressSettings::new(&egress).map_err(unfit)?;
    let offered = env::offered(|variable| egress.vault.offers(variable));
    let variable = |name: &str| env::offered(|known| known == name).remove(name);
    let unset = egress.vault.unset(&offered);
    let warnings = operator
        .exposed()
        .into_iter()
        .map(|address| {
            format!(
                "egress.allow-private has {address}: sandboxes without a policy reach all its ports"
            )
        })
        .chain(unset.into_iter().map(|name| {
            format!(
                "egress.vault.env has {name}, and no such variable is set: no credential can \
                     refer to it"
            )
        }))
        .collect();
    let vault = egress.vault.check(variable, offered, egress_settings.extra_ca.as_ref());
    let vault = vault.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok((Config { egress: operator, egress_settings, vault, audit, ..config }, warnings))
}

/// Where the key is, for the first lines that an operator reads.
fn whereabouts(key: &ApiKeySource) -> String {
    match key {
        ApiKeySource::Environment => format!("the API key is the one in {API_KEY}"),
        ApiKeySource::Config => "the API key is the one in the configuration file".to_owned(),
        ApiKeySource::File(path) => format!("the API key is in {}", path.display()),
        ApiKeySource::Created(path) => format!("made an API key; it is in {}", path.display()),
        ApiKeySource::Off => "no API key: whoever reaches this address may use it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use osb_server::KeyConfig;
    use secrecy::SecretString;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::try_parse_from([&["server"], line].concat()).unwrap().args
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("osb.toml");
        osb_sys::fs::write(&file, "[server]\nlisten = '127.0.0.1:1'\ndata-dir = '/file'\n")
            .unwrap();
        let file = file.to_str().unwrap();
        let empty = Environment::default();
        let config = settings(&args(&["--config", file]), &empty, User::Root).unwrap().0;
        assert_eq!(config.listen.port(), 1);
        assert_eq!(config.data_dir, PathBuf::from("/file"));
        assert!(matches!(config.key, KeyConfig::DataDir));
        let environment = Environment {
            data_dir: Some("/environment".into()),
            api_key: Some(SecretString::from("key".to_owned())),
            ..Environment::default()
        };
        let config = settings(&args(&["--config", file]), &environment, User::Root).unwrap().0;
        assert_eq!(config.data_dir, PathBuf::from("/environment"));
        assert!(matches!(config.key, KeyConfig::Environment(_)));
        let line = args(&["--config", file, "--data-dir", "/flag", "--listen", "127.0.0.1:2"]);
        let config = settings(&line, &environment, User::Root).unwrap().0;
        assert_eq!((config.listen.port(), config.data_dir), (2, PathBuf::from("/flag")));
    }

    #[test]
    fn without_settings_everybody_has_a_place() {
        let environment = Environment { home: Some("/home/ada".into()), ..Environment::default() };
        let place = |user| settings(&args(&[]), &environment, user).unwrap().0.data_dir;
        assert_eq!(place(User::Root), PathBuf::from("/var/lib/opensandbox"));
        assert_eq!(place(User::Other), PathBuf::from("/home/ada/.local/share/opensandbox"));
    }

    #[test]
    fn a_server_without_a_key_stays_on_loopback() {
        let empty = Environment::default();
        assert!(settings(&args(&["--no-auth"]), &empty, User::Root).is_ok());
        let open = args(&["--no-auth", "--listen", "0.0.0.0:8080"]);
        assert!(matches!(settings(&open, &empty, User::Root), Err(Failure::Usage(_))));
    }

    #[test]
    fn the_disk_of_sandboxes_that_do_not_say_is_an_amount() {
        let parse = |text: &str| toml::from_str::<File>(text).unwrap().native.default_disk();
        let ten = Some(Memory::from_bytes(10 << 30));
        assert_eq!(parse("[native]\ndefault-disk = '10Gi'").unwrap(), ten);
        assert_eq!(parse("").unwrap(), None);
        assert!(matches!(parse("[native]\ndefault-disk = 'all'"), Err(Failure::Usage(_))));
    }

    /// What the server makes of a configuration file.
    fn start(text: &str) -> Result<(Config, Vec<String>), Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        osb_sys::fs::write(file.path(), text).unwrap();
        let args = args(&["--config", file.path().to_str().unwrap()]);
        settings(&args, &Environment::default(), User::Root)
    }

    #[test]
    fn what_sandboxes_reach_is_checked_at_the_start() {
        assert!(start("[egress]\ndefault = 'deny'\nallow = ['*.example.com']\n").is_ok());
        for text in ["[egress]\nallow = ['http://x']", "[egress]\ndefalt = 'deny'"] {
            assert!(matches!(start(text), Err(Failure::Usage(_))), "{text:?} was accepted");
        }
    }

    #[test]
    fn how_much_is_kept_of_what_sandboxes_did_is_checked_at_the_start() {
        let (config, _) = start("[audit]\nkeep-days = 7\nkeep-disk = '2Gi'").unwrap();
        assert_eq!(config.audit.bytes, 2 << 30);
        for text in ["[audit]\nkeep-days = 0", "[audit]\nkeep-disk = 'little'", "[audit]\nx = 1"] {
            assert!(matches!(start(text), Err(Failure::Usage(_))), "{text:?} was accepted");
        }
    }

    #[test]
    fn an_operator_learns_where_the_key_is() {
        let created = ApiKeySource::Created("/var/lib/opensandbox/api-key".into());
        assert_eq!(whereabouts(&created), "made an API key; it is in /var/lib/opensandbox/api-key");
    }
}
