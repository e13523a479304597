//! The runtimes that this binary carries, and how the server starts one.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use osb_core::{Memory, Runtime};
use osb_image::Images;
use osb_native::{Check, Native, Obstacle, PoolConfig};

use crate::{doctor, failure::Failure};

/// The argument with which the server starts its spawner.
pub(crate) const SPAWNER: &str = "__spawner";

/// The control group that holds the sandboxes of all servers.
pub(crate) const GROUP: &str = "opensandbox";
/// How the directories and the control groups of trials begin; a number of a process follows.
pub(crate) const TRIAL: &str = ".osb-doctor-";
pub(crate) const TRIAL_GROUP: &str = "opensandbox-doctor-";

/// Where sandboxes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// On this host, with nothing else installed
    #[default]
    Native,
    /// On a Docker daemon
    Docker,
    /// On a Kubernetes cluster
    Kubernetes,
}

impl Kind {
    /// Whether this program carries it.
    pub(crate) fn check(self) -> Result<Self, Failure> {
        match self {
            Self::Native => Ok(self),
            Self::Docker | Self::Kubernetes => Err(Failure::Usage(
                "this version runs sandboxes on this host only: use --runtime native, or write \
                 type = \"native\" in the table [runtime] of the configuration file"
                    .to_owned(),
            )),
        }
    }
}

/// What operators say about sandboxes on this host.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) pools: Vec<PoolConfig>,
    pub(crate) default_disk: Option<Memory>,
    /// The directories that sandboxes may be shown.
    pub(crate) host_paths: Vec<PathBuf>,
    pub(crate) images: osb_image::Settings,
}

/// A runtime that has started.
pub(crate) struct Started {
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The images that its sandboxes are made of, if it leaves them to others.
    pub(crate) images: Option<Images>,
}

/// Starts the runtime, or says what it lacks.
pub(crate) async fn start(
    kind: Kind,
    data_dir: &Path,
    obstacle: Option<&Obstacle>,
    host: Settings,
) -> Result<Started, Failure> {
    kind.check()?;
    native(data_dir, obstacle, host).await
}

/// Makes this process one that can serve though it is not root's, if it can be. To be called
/// before there is any thread.
pub(crate) fn become_root(data_dir: &Path) -> Result<(), Obstacle> {
    osb_native::become_root(&config_below(data_dir).data_dir)
}

/// What the server asks of this machine before it starts. `obstacle` is from [`become_root`].
pub(crate) fn checks(data_dir: &Path, obstacle: Option<&Obstacle>) -> Vec<Check> {
    osb_native::doctor(data_dir, obstacle)
}

/// Makes a sandbox where a server would, and removes it again.
pub(crate) async fn trial(data_dir: &Path) -> Check {
    let place = data_dir.ancestors().find(|path| path.is_dir()).unwrap_or_else(|| Path::new("/"));
    let config = trial_config(place, &std::process::id().to_string());
    osb_native::trial(config, osb_bundle::EXECD).await
}

/// What the trial of process `pid` has, in `place`.
pub(crate) fn trial_config(place: &Path, pid: &str) -> osb_native::Config {
    // A control group of its own: the trial dissolves it, and a server that has no sandbox at the
    // moment still needs the one that it has prepared.
    let cgroup_parent = format!("{TRIAL_GROUP}{pid}");
    osb_native::Config { cgroup_parent, ..config(place.join(format!("{TRIAL}{pid}"))) }
}

/// What a runtime without any settings has that uses the server's data directory.
pub(crate) fn config_below(data_dir: &Path) -> osb_native::Config {
    // Beside the server's own files: each locks its directory for itself.
    config(data_dir.join("native"))
}

/// The part of `main` for the process that forks. To be called before there is any thread.
pub(crate) fn spawner_main() -> ExitCode {
    osb_native::spawner_main()
}

fn config(data_dir: PathBuf) -> osb_native::Config {
    osb_native::Config {
        data_dir,
        cgroup_parent: GROUP.to_owned(),
        // The program that is running, even if a newer one has taken its place on disk.
        spawner: vec!["/proc/self/exe".to_owned(), SPAWNER.to_owned()],
        default_disk: None,
        pools: Vec::new(),
        host_paths: Vec::new(),
        images: osb_native::ImageSettings::default(),
    }
}

async fn native(
    data_dir: &Path,
    obstacle: Option<&Obstacle>,
    host: Settings,
) -> Result<Started, Failure> {
    let checks = checks(data_dir, obstacle);
    if !checks.iter().all(Check::is_ok) {
        return Err(Failure::Unfit(doctor::describe(&checks)));
    }
    let Settings { pools, default_disk, host_paths, images } = host;
    let below = config_below(data_dir);
    let config = osb_native::Config { pools, default_disk, host_paths, images, ..below };
    let native = Native::start(config, osb_bundle::EXECD).await.map_err(|source| {
        Failure::Machine { doing: "cannot start the native runtime", source: source.into() }
    })?;
    let images = Some(native.images().clone());
    Ok(Started { runtime: native, images })
}
