use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::null;

/// The body of `POST /pty`, which may also be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatePty {
    /// Where the shell starts; made if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Shell text to run in place of an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program and its arguments, in place of a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Who it runs as; as execd itself unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group it runs as; the user's own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Variables for it alone.
    #[serde(
        default,
        deserialize_with = "null::or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
    /// What kind of terminal the client is; `xterm-256color` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// How wide it is at first; 80 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// How high it is at first; 24 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

/// The answer of `POST /pty`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PtyCreated {
    pub session_id: String,
}

/// The answer of `GET /pty/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PtyStatus {
    pub session_id: String,
    pub running: bool,
    /// Bytes ever produced; where a client that has seen everything asks to continue.
    pub output_offset: u64,
}

/// The first byte of a binary WebSocket frame.
pub mod channels {
    /// Client to server: input.
    pub const STDIN: u8 = 0;
    /// Server to client: output.
    pub const STDOUT: u8 = 1;
    /// Server to client: error output, without a terminal only.
    pub const STDERR: u8 = 2;
    /// Server to client: earlier output, after the big-endian 64-bit offset of its first byte.
    pub const REPLAY: u8 = 3;
    /// The close code for a client whose place another has taken.
    pub const TAKEN_OVER: u16 = 4001;
}

/// A text frame from the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PtyClientFrame {
    Resize { cols: u16, rows: u16 },
    Signal { signal: PtySignal },
    Ping,
    Stdin { data: String },
}

/// The signals that a client may send to the shell's process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum PtySignal {
    SigInt,
    SigTerm,
    SigKill,
    SigQuit,
    SigHup,
}

/// A text frame from the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PtyServerFrame {
    Connected {
        session_id: String,
        mode: PtyMode,
    },
    Pong,
    /// The last frame before the connection is closed.
    Exit {
        exit_code: i32,
    },
    Error {
        /// A constant from [`pty_errors`].
        code: String,
        error: String,
    },
}

/// Whether the shell has a terminal or two pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PtyMode {
    Pty,
    Pipe,
}

/// The codes of [`PtyServerFrame::Error`].
pub mod pty_errors {
    pub const SESSION_GONE: &str = "SESSION_GONE";
    pub const START_FAILED: &str = "START_FAILED";
    pub const STDIN_WRITE_FAILED: &str = "STDIN_WRITE_FAILED";
    pub const INVALID_FRAME: &str = "INVALID_FRAME";
    /// Also the code of the refused HTTP request.
    pub use crate::codes::ALREADY_CONNECTED;
    pub const TAKEN_OVER: &str = "TAKEN_OVER";
    pub const RUNTIME_ERROR: &str = "RUNTIME_ERROR";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_as_clients_expect() {
        let connected = PtyServerFrame::Connected { session_id: "s".into(), mode: PtyMode::Pipe };
        insta::assert_snapshot!(
            serde_json::to_string(&connected).unwrap(),
            @r#"{"type":"connected","session_id":"s","mode":"pipe"}"#
        );
        let signal: PtyClientFrame =
            serde_json::from_str(r#"{"type":"signal","signal":"SIGINT"}"#).unwrap();
        assert_eq!(signal, PtyClientFrame::Signal { signal: PtySignal::SigInt });
    }
}
