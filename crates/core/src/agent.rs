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
    /// What the entrypoint prints is kept in a file that is handed over, as [`output`] says; without one,
    /// where execd likes.
    #[serde(default)]
    pub output: bool,
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

/// How what an entrypoint printed lies in a file: a head, and a ring that holds the last bytes. Each byte lies at its offset,
/// counted from the first ever, modulo the size of the ring.
pub mod output {
    /// Where the ring begins.
    pub const RING: u64 = 4096;
    /// The most that a ring holds.
    pub const LARGEST: u64 = 1 << 20;
    const MARK: [u8; 8] = *b"printed1";

    /// What the file begins with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Head {
        /// How many bytes the ring holds.
        pub size: u64,
        /// How many bytes were ever written.
        pub end: u64,
    }

    impl Head {
        pub const BYTES: usize = 24;

        pub fn to_bytes(self) -> [u8; Self::BYTES] {
            let mut bytes = [0; Self::BYTES];
            let fields = [MARK, self.size.to_le_bytes(), self.end.to_le_bytes()];
            bytes.iter_mut().zip(fields.as_flattened()).for_each(|(to, from)| *to = *from);
            bytes
        }

        /// The head that these bytes are, if they are one. Whoever wrote them may be hostile.
        pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
            let (fields, _) = bytes.as_chunks::<8>();
            let [mark, size, end] = *fields else { return None };
            let (size, end) = (u64::from_le_bytes(size), u64::from_le_bytes(end));
            (mark == MARK && (1..=LARGEST).contains(&size)).then_some(Self { size, end })
        }

        /// The parts of the file, each from an offset and so long, in which the last bytes are, in
        /// order.
        pub fn parts(self) -> [(u64, u64); 2] {
            let kept = self.end.min(self.size);
            let from = (self.end - kept) % self.size;
            let first = kept.min(self.size - from);
            [(RING + from, first), (RING, kept - first)]
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_head_is_read_as_it_was_written() {
            let head = Head { size: 10, end: 25 };
            assert_eq!(Head::from_bytes(head.to_bytes()), Some(head));
            assert_eq!(Head::from_bytes([0; Head::BYTES]), None);
            for size in [0, LARGEST + 1] {
                assert_eq!(Head::from_bytes(Head { size, end: 1 }.to_bytes()), None);
            }
        }

        #[test]
        fn the_last_bytes_are_found_in_order() {
            let parts = |end| Head { size: 10, end }.parts();
            assert_eq!(parts(0), [(RING, 0), (RING, 0)]);
            assert_eq!(parts(7), [(RING, 7), (RING, 0)]);
            assert_eq!(parts(25), [(RING + 5, 5), (RING, 5)]);
            assert_eq!(parts(u64::MAX), [(RING + 5, 5), (RING, 5)]);
        }
    }
}

/// The descriptors that the isolator finds when it starts.
pub mod isolator {
    /// Its channel to execd.
    pub const CHANNEL_FD: i32 = 3;
    /// The sandbox's user namespace, if it has one.
    pub const USERS_FD: i32 = 4;
}
