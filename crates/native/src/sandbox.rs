//! What a sandbox is on this host: a directory, a control group, and a process.
//!
//! The directory is made first and goes last, so whatever a crash leaves can be found by it:
//!
//! | in `sandboxes/<id>` | what it is |
//! | --- | --- |
//! | `state.json` | the spec and the range of ids |
//! | `upper` | the sandbox's own files |
//! | `work` | the overlay's own |
//! | `disk.img` | a file system that holds these two instead, if they are limited by it |
//! | `execd.sock` | where execd listens; nobody inside can see it |
//! | `exit.json` | how it ended, once it has |

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use osb_api::SandboxId;
use osb_core::{
    Exit, Memory, SandboxSpec,
    agent::{Boot, CgroupVersion, Counters},
};
use osb_image::Rootfs;
use osb_sys::{
    cgroup::{Group, Layout, Limits, Version},
    fs::{self, PathError},
    memfd, unix,
    userns::IdBase,
};
use serde::{Deserialize, Serialize};

use crate::{
    disk::{Disks, Files},
    spawner::{RootPlan, Spawn},
};

const SOCKET: &str = "execd.sock";
/// How many processes a sandbox may have that says nothing about it.
const DEFAULT_PIDS: u32 = 1024;
/// How much memory: as much as the published clients ask for when they are not told.
const DEFAULT_MEMORY: Memory = Memory::from_bytes(2 << 30);

/// The places that a sandbox has, whether or not anything is there.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) id: SandboxId,
    directory: PathBuf,
    pub(crate) group: Group,
}

/// What is written down about a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) spec: SandboxSpec,
    pub(crate) base: IdBase,
    /// How much it may write; `None` is as much as there is.
    #[serde(default)]
    pub(crate) disk: Option<Memory>,
}

impl Place {
    pub(crate) fn new(sandboxes: &Path, layout: &Layout, parent: &str, id: SandboxId) -> Self {
        let name = id.to_string();
        Self { id, directory: sandboxes.join(&name), group: layout.group(parent, &name) }
    }

    /// Makes the directory and the control group, and everything that the spawner needs to be
    /// handed: its instructions, the sandbox's files, and what execd is handed, from its [`Boot`]
    /// on.
    pub(crate) fn prepare(
        &self,
        state: &State,
        rootfs: &Rootfs,
        cover: &Path,
        disks: &Disks,
    ) -> Result<(Spawn, Vec<OwnedFd>), PathError> {
        let at = |name: &str| self.directory.join(name);
        let named = |name: &str| {
            let path = at(name);
            move |error: io::Error| PathError::new("make", path, error)
        };
        fs::create_dir(&self.directory, 0o700)?;
        let text = serde_json::to_vec(state).map_err(io::Error::from);
        fs::write_whole(at("state.json"), &text.map_err(named("state.json"))?, 0o600)?;
        let resources = &state.spec.resources;
        let own = disks.make(&self.directory, state.disk, state.base)?;
        let memory = resources.memory.unwrap_or(DEFAULT_MEMORY);
        self.group.create(&Limits {
            cpu_millis: resources.cpu.map(osb_core::Cpu::millis),
            memory_bytes: Some(memory.bytes()),
            pids: Some(resources.pids.unwrap_or(DEFAULT_PIDS)),
        })?;
        let listener = unix::listen(&self.directory, SOCKET).map_err(named(SOCKET))?;
        // A sandbox whose use cannot be told is a sandbox all the same.
        let files = self.group.counters().ok();
        let counters = files.is_some().then_some(Counters {
            version: match self.group.version() {
                Version::V1 => CgroupVersion::V1,
                Version::V2 => CgroupVersion::V2,
            },
            cpu: resources.cpu,
            memory: Some(memory),
        });
        let boot = serde_json::to_vec(&boot(&state.spec, counters)).map_err(io::Error::from);
        let boot = boot.and_then(|text| memfd::with_content("boot", &text));
        let boot = boot.map_err(named("boot"))?;
        let mut handed = vec![own.into(), boot.into(), listener.into()];
        handed.extend(files.into_iter().flatten().map(OwnedFd::from));
        let spawn = Spawn {
            hostname: "sandbox".to_owned(),
            base: state.base,
            root: RootPlan {
                stage: cover.to_owned(),
                layers: rootfs.layers.clone(),
                views: rootfs.views.iter().map(|view| view.path.clone()).collect(),
            },
            doors: self.group.doors(),
        };
        Ok((spawn, handed))
    }

    /// What is written down, if it can be read.
    pub(crate) fn state(&self) -> Result<State, PathError> {
        let path = self.directory.join("state.json");
        let text = fs::read(&path)?;
        serde_json::from_slice(&text)
            .map_err(|error| PathError::new("understand", path, error.into()))
    }

    pub(crate) fn connect(&self) -> io::Result<std::os::unix::net::UnixStream> {
        unix::connect(&self.directory, SOCKET)
    }

    /// Writes down how the sandbox ended, for the next server.
    pub(crate) fn record(&self, exit: Exit) -> Result<(), PathError> {
        let path = self.directory.join("exit.json");
        let text = serde_json::to_vec(&exit).map_err(io::Error::from);
        let text = text.map_err(|error| PathError::new("write", &path, error))?;
        fs::write_whole(path, &text, 0o600)
    }

    /// The sandbox's own files, whether or not it is running.
    pub(crate) fn files(&self, disks: &Disks) -> Result<Files, PathError> {
        disks.find(&self.directory)
    }

    /// Whether its root was ever put together.
    pub(crate) fn has_lived(&self, disks: &Disks) -> bool {
        self.exit().is_some() || self.files(disks).is_ok_and(|files| files.were_used())
    }

    /// How it ended, if that was written down.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let text = fs::read(self.directory.join("exit.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Moves the directory to where it only waits to be deleted. Absence is success.
    pub(crate) fn discard(&self, removed: &Path) -> Result<Option<PathBuf>, PathError> {
        let aside = removed.join(self.id.to_string());
        match fs::rename(&self.directory, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn boot(spec: &SandboxSpec, counters: Option<Counters>) -> Boot {
    let mut env = spec.env.clone();
    // Characters are UTF-8. `LANG` would say so too, and cost each shell a dozen files more.
    for (key, value) in [("HOME", "/root"), ("LC_CTYPE", "C.UTF-8"), ("USER", "root")] {
        env.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    Boot {
        token: spec.token.clone(),
        entrypoint: spec.entrypoint.clone(),
        env,
        workdir: "/".to_owned(),
        counters,
        isolator: true,
        by_descriptor: false,
    }
}
