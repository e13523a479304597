//! What a runtime hands to execd when it starts it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Account, Cpu, Memory, Token};

/// The descriptor from which execd, started by the native runtime, reads its [`Boot`] to the end. If
/// it is a channel, they arrive there as [`Sent`], and until then execd waits: that
/// is how a sandbox is started before anybody has asked for it. If the channel closes first, execd ends.
pub const BOOT_FD: i32 = 3;
/// The descriptor of the unix socket on which that execd listens. Those of what else [`Boot`] speaks
/// of follow, in the order of its fields and without gaps.
pub const LISTEN_FD: i32 = 4;

/// What runs in a sandbox for which nobody has a program: nothing, until it is ended. Published
/// clients ask for it in so many words; execd does the same without a program.
pub const IDLE: [&str; 3] = ["tail", "-f", "/dev/null"];

/// execd's instructions, as JSON on [`BOOT_FD`]: never in arguments or the environment, which
/// every process of the sandbox could read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// What callers must send in `X-EXECD-ACCESS-TOKEN`.
    pub token: Token,
    /// The program that the sandbox is for; execd ends with it. Without one it ends when it can be
    /// reached no more.
    pub entrypoint: Vec<String>,
    /// The environment of the entrypoint and of every command.
    pub env: BTreeMap<String, String>,
    /// Where the entrypoint and commands start unless they say otherwise. Made if it is missing.
    pub workdir: String,
    /// As whom the entrypoint and commands run unless they say otherwise; without one, as execd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Account>,
    /// With one, `SIGTERM` says that the sandbox is to end: the entrypoint gets the signal of this number in its
    /// place, and execd ends with it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<i32>,
    /// Authorities, as PEM, that programs trust beside those that their image does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// How execd learns what the sandbox uses; without it execd must look for itself. Its three
    /// files are handed over: processor time, memory, and what that memory consists of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// Isolated sessions are made by somebody else, and the channel to them is handed over.
    #[serde(default)]
    pub isolator: bool,
    /// [`LISTEN_FD`] is not a listener but a channel on which connections arrive as descriptors.
    #[serde(default)]
    pub by_descriptor: bool,
}

/// What arrives on a channel in place of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sent {
    /// What to do until the instructions come. Once it is done, execd says so with [`Readied`].
    Ahead(Box<Ahead>),
    /// The instructions.
    Here(Box<Boot>),
    /// They are longer than a message may be: a file with them comes along.
    InFile,
}

/// What execd makes ready in a sandbox that waits for its purpose, and with what: what a [`Boot`] of
/// somebody who asks for nothing in particular would say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    pub code: CodeAhead,
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Account>,
}

/// Interpreters that are started before anybody has a cell for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeAhead {
    pub languages: Vec<String>,
    /// Modules of Python that are imported already.
    pub imports: Vec<String>,
}

/// All that was to be made ready is, as far as it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readied;

/// What a sandbox may use, and in which words the kernel tells what it does use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub version: CgroupVersion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// Whose files they are: of separate trees, or of the one tree that replaced them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    V1,
    V2,
}

/// The descriptors that the isolator finds when it starts.
pub mod isolator {
    /// Its channel to execd.
    pub const CHANNEL_FD: i32 = 3;
    /// The sandbox's user namespace, if it has one.
    pub const USERS_FD: i32 = 4;
}
