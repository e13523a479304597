use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use jiff::Timestamp;
use osb_api::SandboxId;
use serde::{Deserialize, Serialize};

/// What stands between a line and its hash.
const SEAL: &str = ",\"hash\":\"";
const END: &str = "\"}";

/// The hash of a line and of all before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash([u8; SHA256_OUTPUT_LEN]);

impl Hash {
    /// What is before the first line.
    pub(crate) const NONE: Self = Self([0; SHA256_OUTPUT_LEN]);
    const DIGITS: usize = 2 * SHA256_OUTPUT_LEN;

    fn next(self, text: &[u8]) -> Self {
        let hash = digest(&SHA256, &[&self.0[..], text].concat());
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(hash.as_ref());
        Self(bytes)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != Self::DIGITS {
            return None;
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (byte, digits) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digits = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes)).filter(|hash| hash.to_string() == text)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The end of a chain, to which lines are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) number: u64,
    pub(crate) hash: Hash,
}

/// A line without its hash.
#[derive(Serialize)]
struct Line<'a, W> {
    number: u64,
    at: Timestamp,
    sandbox: SandboxId,
    kind: &'a str,
    what: W,
}

/// What is read of a line.
#[derive(Deserialize)]
struct Read<'a> {
    number: u64,
    hash: &'a str,
}

impl Chain {
    pub(crate) const NEW: Self = Self { number: 0, hash: Hash::NONE };

    /// Appends a line to `text`, and to the chain.
    pub(crate) fn add(
        &mut self,
        text: &mut Vec<u8>,
        (at, sandbox, kind): (Timestamp, SandboxId, &str),
        what: impl Serialize,
    ) -> serde_json::Result<()> {
        let number = self.number + 1;
        let mut line = serde_json::to_vec(&Line { number, at, sandbox, kind, what })?;
        // The hash becomes the last field.
        line.pop();
        *self = Self { number, hash: self.hash.next(&line) };
        text.append(&mut line);
        text.extend_from_slice(format!("{SEAL}{}{END}\n", self.hash).as_bytes());
        Ok(())
    }

    /// The chain that ends with this line, which comes without its end; `None` if it is not the one that
    /// follows.
    pub(crate) fn follow(self, line: &[u8]) -> Option<Self> {
        self.hash.follow(line).filter(|next| next.number == self.number + 1)
    }
}

impl Hash {
    /// The chain that ends with a line that follows this hash, whatever its number is.
    pub(crate) fn follow(self, line: &[u8]) -> Option<Chain> {
        let Read { number, hash } = serde_json::from_slice(line).ok()?;
        let length = SEAL.len() + Self::DIGITS + END.len();
        let text = line.len().checked_sub(length).and_then(|end| line.get(..end))?;
        let chain = Chain { number, hash: self.next(text) };
        (Self::parse(hash) == Some(chain.hash)).then_some(chain)
    }
}
