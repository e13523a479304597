use std::{collections::BTreeMap, fmt};

use osb_api::{SandboxId, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::{Cpu, Memory, Volume};

/// Everything a runtime needs to know to make a sandbox exist.
///
/// It is stored as it stands, so a field that is added later needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: SandboxId,
    pub image: ImageName,
    /// The very image that the name stood for when the sandbox was asked for. Absent where the name
    /// says it all, as `host` does, and where the runtime looks for images itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<ImageDigest>,
    /// The program that the sandbox is for, never empty.
    pub entrypoint: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub resources: Resources,
    /// What execd asks of its callers.
    pub token: Token,
    /// Files that the sandbox starts with, on top of those of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// Storage that is not the sandbox's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// An authority, as PEM, that programs of the sandbox trust beside those that its image does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// Authorities, as PEM, that they trust because the operator does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_trust: Option<String>,
}

impl SandboxSpec {
    /// A sandbox with nothing but what every sandbox has.
    pub fn new(id: SandboxId, image: ImageName, entrypoint: Vec<String>, token: Token) -> Self {
        Self {
            id,
            image,
            image_digest: None,
            entrypoint,
            env: BTreeMap::new(),
            resources: Resources::default(),
            token,
            snapshot: None,
            volumes: Vec::new(),
            trust: None,
            extra_trust: None,
        }
    }

    /// All authorities, as PEM, that programs of the sandbox trust beside those that its image does.
    pub fn trusted(&self) -> Option<String> {
        let all: String = self.trust.iter().chain(&self.extra_trust).map(String::as_str).collect();
        Some(all).filter(|all| !all.is_empty())
    }
}

/// The name under which a client asks for an image, such as `host` or `python:3.12`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageName(String);

impl ImageName {
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the content of an image gives it for a name: the digest of its manifest, `sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageDigest(String);

impl ImageDigest {
    pub fn new(digest: impl Into<String>) -> Self {
        Self(digest.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The limits of a sandbox; what is absent is limited by the host alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// How much the sandbox may write that is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Memory>,
}

/// A secret that opens one sandbox. It prints as dots, so that no log can hold it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one header or message that carries it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_token_does_not_print() {
        assert!(!format!("{:?}", Token::new("hunter2")).contains("hunter2"));
    }
}
