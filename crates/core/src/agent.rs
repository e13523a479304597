//! What a runtime hands to execd when it starts it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Token;

/// The descriptor on which execd, started by the native runtime, reads its [`Boot`] to the end.
pub const BOOT_FD: i32 = 3;
/// The descriptor of the unix socket on which that execd listens.
pub const LISTEN_FD: i32 = 4;

/// execd's instructions, as JSON on [`BOOT_FD`]: never in arguments or the environment, which
/// every process of the sandbox could read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// What callers must send in `X-EXECD-ACCESS-TOKEN`.
    pub token: Token,
    /// The program that the sandbox is for; execd ends with it.
    pub entrypoint: Vec<String>,
    /// The environment of the entrypoint and of every command.
    pub env: BTreeMap<String, String>,
    /// Where the entrypoint and commands start unless they say otherwise.
    pub workdir: String,
}
