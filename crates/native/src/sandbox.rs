//! What a sandbox is on this host: a directory, a control group, and a process.
//!
//! The directory goes last, so whatever a crash leaves can be found by it, or by the group itself:
//!
//! | in `sandboxes/<id>` | what it is |
//! | --- | --- |
//! | `state.json` | the spec, the range of ids, and the control group |
//! | `upper` | the sandbox's own files |
//! | `work` | the overlay's own, and in `work/printed` what the entrypoint printed last |
//! | `disk.img` | a file system that holds these two instead, if they are limited by it |
//! | `execd.sock` | where execd listens; nobody inside can see it |
//! | `exit.json` | how it ended, once it has |
//! | `alive` | which process is its first, where the server is not root |
//! | `still` | says that it is stopped for a moment, but not paused |

pub(crate) mod alive;
mod still;

use std::{
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use osb_api::SandboxId;
use osb_core::{
    Exit, ImageDigest, Memory, SandboxSpec,
    agent::{Boot, CgroupVersion, Counters, IDLE, Sent},
};
use osb_image::Rootfs;
use osb_sys::{
    cgroup::{Group, Limits, OpenLimits, Version},
    fs::{self, PathError},
    memfd, message,
    rootless::Rights,
    unix,
    userns::IdBase,
};
use serde::{Deserialize, Serialize};

use crate::{
    beginning::Beginning,
    disk::{Disks, Files},
    spawner::{RootPlan, Spawn},
};

const STATE: &str = "state.json";
const SOCKET: &str = "execd.sock";
/// How many processes a sandbox may have that says nothing about it.
pub(crate) const DEFAULT_PIDS: u32 = 1024;
/// How much memory: as much as the published clients ask for when they are not told.
pub(crate) const DEFAULT_MEMORY: Memory = Memory::from_bytes(2 << 30);

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
    /// The name of its control group, below the one that holds all. It is not made of its id if
    /// it was started before it was asked for: then it keeps the group that it was started in.
    /// Sandboxes from before each data directory had a tag do not have it if it is their id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// The very image that it stands on; `host` is known by its name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<ImageDigest>,
}

/// What a sandbox without a purpose is given one with, all open so that nobody has to look for it.
#[derive(Debug)]
pub(crate) struct Gift {
    pub(crate) limits: OpenLimits,
    pub(crate) blank: File,
    /// Where execd waits for its instructions.
    pub(crate) channel: OwnedFd,
}

/// A place that was made.
#[derive(Debug)]
pub(crate) struct Settled {
    own: Files,
    /// Where execd is to listen.
    listener: UnixListener,
    /// Where what the entrypoint prints is kept, if it prints anything.
    printed: Option<File>,
}

/// What execd is handed beside its instructions.
#[derive(Debug, Clone, Copy)]
struct Handed {
    counters: bool,
    printed: bool,
}

/// When execd learns what its sandbox is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// From the start.
    Known(Arc<Beginning>),
    /// When somebody asks for such a sandbox, on this channel.
    Later(OwnedFd),
}

/// The same, without the channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Now,
    Later,
}

impl Purpose {
    pub(crate) fn when(&self) -> When {
        match self {
            Self::Known(_) => When::Now,
            Self::Later(_) => When::Later,
        }
    }
}

impl Place {
    /// The place of sandbox `id` in `directory`, with this control group.
    pub(crate) fn new(directory: &Path, id: SandboxId, group: Group) -> Self {
        Self { id, directory: directory.join(id.to_string()), group }
    }

    /// Makes the directory.
    pub(crate) fn settle(
        &self,
        state: &State,
        disks: &Disks,
        when: When,
    ) -> Result<Settled, PathError> {
        fs::create_dir(&self.directory, 0o700)?;
        match when {
            When::Now => fs::write_whole(self.directory.join(STATE), &self.text(state)?, 0o600)?,
            // It has no name that anybody will look for.
            When::Later => {}
        }
        if disks.rights() == Rights::User {
            self.expect_process()?;
        }
        let own = disks.make(&self.directory, state.disk, state.base)?;
        let listener = unix::listen(&self.directory, SOCKET);
        let named = |error| PathError::new("make", self.directory.join(SOCKET), error);
        let listener = listener.map_err(named)?;
        // Nothing prints nothing; but nobody knows yet what somebody else will ask for.
        let prints = match when {
            When::Now => state.spec.entrypoint != IDLE,
            When::Later => true,
        };
        let named = |error| PathError::new("make a file in", &self.directory, error);
        let printed = prints.then(|| own.keep_printed()).transpose().map_err(named)?;
        Ok(Settled { own, listener, printed })
    }

    /// Makes the control group: answers with its counters, for execd. Until the sandbox has a purpose
    /// there is nothing in it but execd, and its group has no limits.
    pub(crate) fn enclose(
        &self,
        state: &State,
        when: When,
    ) -> Result<Option<[File; 3]>, PathError> {
        self.group.create(&match when {
            When::Now => limits(&state.spec),
            When::Later => Limits::default(),
        })?;
        match when {
            // A sandbox whose use cannot be told is a sandbox all the same.
            When::Now => Ok(self.group.counters().ok()),
            // What it is handed must be certain when its instructions are written.
            When::Later => self.group.is_real().then(|| self.group.counters()).transpose(),
        }
    }

    /// Everything that the spawner needs to be handed of a sandbox that is settled and enclosed: its
    /// instructions, the sandbox's files, and what execd is handed, from its [`Boot`] on.
    pub(crate) fn order(
        &self,
        state: &State,
        rootfs: &Rootfs,
        Settled { own, listener, printed }: Settled,
        counters: Option<[File; 3]>,
        purpose: Purpose,
    ) -> Result<(Spawn, Vec<OwnedFd>), PathError> {
        let instructions = match purpose {
            Purpose::Known(begins) => {
                let handed = Handed { counters: counters.is_some(), printed: printed.is_some() };
                self.file_of(&self.boot(&state.spec, &begins, handed))?.into()
            }
            Purpose::Later(channel) => channel,
        };
        let mut handed = vec![own.into(), instructions, listener.into()];
        handed.extend(counters.into_iter().flatten().chain(printed).map(OwnedFd::from));
        let spawn = Spawn {
            base: state.base,
            root: RootPlan {
                layers: rootfs.layers.clone(),
                views: rootfs.views.iter().map(|view| view.path.clone()).collect(),
                volumes: Vec::new(),
            },
            doors: self.group.doors(),
            processes: limits(&state.spec).pids.filter(|_| !self.group.is_real()),
        };
        Ok((spawn, handed))
    }

    /// The file for the state of a sandbox that has no purpose yet.
    pub(crate) fn blank(&self) -> Result<File, PathError> {
        fs::create(self.directory.join(STATE), 0o600)
    }

    /// Gives a sandbox that was started without a purpose the one that `state` says: its limits, its
    /// instructions, and its place `to`. Until it has its place, a crash takes it away with all others
    /// that have none, whatever is written there and runs in it; so it can begin before.
    pub(crate) fn give(
        &self,
        state: &State,
        begins: &Beginning,
        to: &Self,
        Gift { limits: open, blank, channel }: &Gift,
    ) -> Result<(), PathError> {
        open.limit(&limits(&state.spec))?;
        let handed = Handed { counters: self.group.is_real(), printed: true };
        self.instruct(channel, self.boot(&state.spec, begins, handed))?;
        let mut blank: &File = blank;
        let written = blank.write_all(&self.text(state)?);
        written.map_err(|error| PathError::new("write", self.directory.join(STATE), error))?;
        fs::rename(&self.directory, &to.directory)
    }

    /// Whether what runs in a sandbox already takes no more memory than `state` allows. The kernel would
    /// end some of it, or refuse the limit, as its version has it.
    pub(crate) fn check_room(&self, state: &State) -> Result<(), PathError> {
        let most = limits(&state.spec).memory_bytes.unwrap_or(u64::MAX);
        if !self.group.is_real() || self.group.usage()?.memory <= most {
            return Ok(());
        }
        let error = io::Error::other("its programs take more memory than was asked for");
        Err(PathError::new("limit", &self.directory, error))
    }

    /// Sends execd what it waits for.
    fn instruct(&self, channel: &OwnedFd, boot: Boot) -> Result<(), PathError> {
        let failed = |error| PathError::new("instruct", &self.directory, error);
        let sent = Sent::Here(Box::new(boot));
        match (message::send(channel, &sent, &[]), sent) {
            (Err(error), Sent::Here(boot)) if error.kind() == io::ErrorKind::InvalidInput => {
                let file = self.file_of(&boot)?;
                message::send(channel, &Sent::InFile, &[file.as_fd()]).map_err(failed)
            }
            (sent, _) => sent.map_err(failed),
        }
    }

    /// What is written down of a state.
    fn text(&self, state: &State) -> Result<Vec<u8>, PathError> {
        serde_json::to_vec(state)
            .map_err(|error| PathError::new("make", self.directory.join(STATE), error.into()))
    }

    /// execd's instructions.
    fn boot(&self, spec: &SandboxSpec, begins: &Beginning, handed: Handed) -> Boot {
        let version = match self.group.version() {
            Version::None => None,
            Version::V1 => Some(CgroupVersion::V1),
            Version::V2 => Some(CgroupVersion::V2),
        };
        let counters = version.filter(|_| handed.counters).map(|version| Counters {
            version,
            cpu: spec.resources.cpu,
            memory: Some(spec.resources.memory.unwrap_or(DEFAULT_MEMORY)),
        });
        Boot { output: handed.printed, ..boot(spec, begins, counters) }
    }

    /// A file with execd's instructions.
    fn file_of(&self, boot: &Boot) -> Result<File, PathError> {
        let text = serde_json::to_vec(boot).map_err(io::Error::from);
        text.and_then(|text| memfd::with_content("boot", &text))
            .map_err(|error| PathError::new("make", self.directory.join("boot"), error))
    }

    /// What is written down, if it can be read.
    pub(crate) fn state(&self) -> Result<State, PathError> {
        let path = self.directory.join(STATE);
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

    /// What its entrypoint printed last, as far as it was kept.
    pub(crate) fn printed(&self, disks: &Disks) -> io::Result<Vec<u8>> {
        self.files(disks).map_err(io::Error::other)?.printed()
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
        fs::put_aside(&self.directory, removed.join(self.id.to_string()))
    }
}

/// What a sandbox may use whose spec says this.
pub(crate) fn limits(spec: &SandboxSpec) -> Limits {
    let resources = &spec.resources;
    Limits {
        cpu_millis: resources.cpu.map(osb_core::Cpu::millis),
        memory_bytes: Some(resources.memory.unwrap_or(DEFAULT_MEMORY).bytes()),
        pids: Some(resources.pids.unwrap_or(DEFAULT_PIDS)),
    }
}

fn boot(spec: &SandboxSpec, begins: &Beginning, counters: Option<Counters>) -> Boot {
    let mut env = begins.env.clone();
    env.extend(spec.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    Boot {
        token: spec.token.clone(),
        entrypoint: spec.entrypoint.clone(),
        env,
        workdir: begins.workdir.clone(),
        user: begins.user.clone(),
        stop_signal: Some(begins.stop_signal),
        trust: spec.trusted(),
        counters,
        output: false,
        isolator: true,
        by_descriptor: false,
    }
}
