//! `osb server`: the control plane on this machine.

mod config;

use std::{future::pending, sync::Arc};

use osb_core::{Chain, SystemClock};
use osb_egress::ExtraCa;
use osb_native::Obstacle;
use osb_server::{ApiKeySource, Reload, Server, StartError, World};

use crate::{
    data_dir::User,
    env::{API_KEY, Environment, SERVER_API_KEY},
    failure::Failure,
    logging::{self, Log, Reader},
    output::Output,
    runtime::{self, Started},
    settings::{Effective, Flags, Settings},
    signals::{Hangups, Interrupts as _, Signals},
};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What can be done without a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check and show settings
    #[command(subcommand)]
    Config(config::Command),
}

pub(crate) fn instead(
    command: &Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Config(command) => config::main(command, environment, output),
    }
}

/// A server that is about to start, in a process that has become what it can be.
#[derive(Debug)]
pub(crate) struct Begun {
    flags: Flags,
    /// Whose server it is: the process may have become root of a namespace.
    user: User,
    settings: Settings,
    /// What keeps it from serving without root, if anything does.
    obstacle: Option<Obstacle>,
}

/// What must happen before there is any thread.
pub(crate) fn begin(flags: Flags, environment: &Environment) -> Result<Begun, Failure> {
    let user = User::current();
    let settings = Settings::load(&flags, environment, user)?;
    let obstacle = runtime::become_root(&settings.config.data_dir).err();
    Ok(Begun { flags, user, settings, obstacle })
}

pub(crate) async fn main(
    Begun { flags, user, settings, obstacle }: Begun,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let Settings { config, runtime: kind, host, images, level, warnings, effective } = settings;
    let log = logging::start(level)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // It has several for each sandbox.
    if let Err(error) = osb_sys::rlimit::raise() {
        tracing::warn!(%error, "cannot have more descriptors");
    }
    let mut signals = Signals::listen_but_to_hangups()?;
    let mut hangups = Hangups::listen()?;
    let failed = |source: StartError| {
        let doing = "cannot start the server";
        Failure::Machine { doing, source: source.into() }
    };
    let listener = Server::listen(&config).await.map_err(failed)?;
    let Started { runtime, images: kept } =
        runtime::start(kind, &config.data_dir, obstacle.as_ref(), host).await?;
    // A crash leaves no secret of a vault on a disk. Not earlier: sandboxes would inherit it.
    if let Err(error) = osb_sys::fs::write("/proc/self/coredump_filter", "0") {
        tracing::warn!(%error, "if the server crashes, its memory may be written to a disk");
    }
    let extra_ca = config.egress_settings.extra_ca.as_ref().map(ExtraCa::pem);
    let images = kept.map(|kept| images.remote(kept, extra_ca, environment)).transpose()?;
    let world = World { runtime: Arc::clone(&runtime), images, clock: Arc::new(SystemClock) };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let server = Server::start(listener, config, world).await.map_err(failed)?;
    let key = whereabouts(server.api_key_source(), environment);
    let address = server.address();
    match log.reader {
        Reader::Person => output.say(&format!("listening on {scheme}://{address}\nosb: {key}")),
        Reader::Machine => tracing::info!(%address, scheme, api_key = key, "listening"),
    }
    let again = Again { flags, user, started: effective, log, reload: server.reload() };
    server
        .run(async {
            let rereading = async {
                loop {
                    hangups.next().await;
                    again.read(environment).await;
                }
            };
            tokio::select! {
                signal = signals.next() => {
                    tracing::info!(signal = signal.0, "asked to stop; sandboxes live on");
                }
                () = rereading => pending().await,
            }
        })
        .await;
    runtime.retire().await;
    Ok(0)
}

/// What settings are read with when the server is asked to read them again.
struct Again {
    flags: Flags,
    user: User,
    /// The settings with which the server started.
    started: Effective,
    log: Log,
    reload: Reload,
}

impl Again {
    /// Puts in force what can change. Whatever is wrong, the server goes on as it was.
    async fn read(&self, environment: &Environment) {
        let load = || Settings::load(&self.flags, environment, self.user);
        let settings = match tokio::task::block_in_place(load) {
            Ok(settings) => settings,
            Err(failure) => {
                let error = failure.report().unwrap_or_default();
                tracing::error!(error, "the settings cannot be used, and stay as they were");
                return;
            }
        };
        let Settings { config, level, warnings, effective, .. } = settings;
        if let Err(error) = self.reload.apply(config).await {
            tracing::error!(
                error = %Chain(&error), "the settings cannot be used, and stay as they were"
            );
            return;
        }
        self.log.set_level(level);
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        for setting in self.started.kept_from(&effective) {
            tracing::warn!("{setting} has changed, and will hold when the server starts again");
        }
        tracing::info!("settings were read again");
    }
}

/// Where the key is, for the first lines that an operator reads.
fn whereabouts(key: &ApiKeySource, environment: &Environment) -> String {
    match key {
        ApiKeySource::Environment => {
            let name = environment.server_api_key.as_ref().map_or(API_KEY, |_| SERVER_API_KEY);
            format!("the API key is the one in {name}")
        }
        ApiKeySource::Config => "the API key is the one in the configuration file".to_owned(),
        ApiKeySource::File(path) => format!("the API key is in {}", path.display()),
        ApiKeySource::Created(path) => format!("made an API key; it is in {}", path.display()),
        ApiKeySource::Off => "no API key: whoever reaches this address may use it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_learns_where_the_key_is() {
        let created = ApiKeySource::Created("/var/lib/opensandbox/api-key".into());
        let environment = Environment::default();
        assert_eq!(
            whereabouts(&created, &environment),
            "made an API key; it is in /var/lib/opensandbox/api-key"
        );
    }
}
