//! Storage that is not a sandbox's own.

use std::{path::PathBuf, time::SystemTime};

use async_trait::async_trait;
use osb_api::SandboxId;
use serde::{Deserialize, Serialize};

use crate::{Memory, RuntimeError, SandboxSpec};

/// The longest name of a volume that a runtime keeps.
const MAX_NAME: usize = 253;
/// How many of the sandboxes that use a volume an error names.
const MAX_USERS: usize = 8;

/// Storage that is shown at a path of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub source: VolumeSource,
    /// The part of it to show: a relative path without `..`; all of it if empty.
    #[serde(default)]
    pub sub_path: PathBuf,
    /// Where: an absolute path without `..`.
    pub at: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

/// Where the files of a volume are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeSource {
    /// A directory or file of the host. A missing directory is made.
    Host(PathBuf),
    /// Storage that the runtime keeps under this name.
    Named {
        name: String,
        /// Whether a missing one is made.
        create: bool,
        /// Whether one that was made for this sandbox goes with the last that uses it.
        ephemeral: bool,
    },
    /// Memory of the sandbox, gone with it.
    Tmpfs { size: Memory },
}

impl SandboxSpec {
    /// Whether the sandbox uses the volume that the runtime keeps under this name.
    pub fn uses_volume(&self, wanted: &str) -> bool {
        self.named_volumes().any(|name| name == wanted)
    }

    /// The names of the kept volumes that it uses.
    pub fn named_volumes(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| match &volume.source {
            VolumeSource::Named { name, .. } => Some(name.as_str()),
            VolumeSource::Host(_) | VolumeSource::Tmpfs { .. } => None,
        })
    }
}

/// Whether a volume may be kept under this name: small letters, digits and, between them, dashes.
pub fn is_volume_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The power to keep volumes under names, for sandboxes whose [`SandboxSpec::volumes`] ask for
/// them.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// All that are kept, found in the world and not in memory, in the order of their names.
    async fn list(&self) -> Result<Vec<KeptVolume>, RuntimeError>;

    /// How many bytes the files of each of these volumes take. `None` for what is not there or
    /// cannot be told soon.
    async fn sizes(&self, names: &[String]) -> Result<Vec<Option<u64>>, RuntimeError>;

    /// How many bytes the files of one volume take, however long it takes to count them. `None` if it
    /// is not there.
    async fn measure(&self, name: &str) -> Result<Option<u64>, RuntimeError> {
        let sizes = self.sizes(&[name.to_owned()]).await?;
        Ok(sizes.into_iter().flatten().next())
    }

    /// Makes the volume be gone with everything in it. One that is not there is
    /// [`VolumeProblem::NotFound`], and one that a sandbox uses stays, with
    /// [`VolumeProblem::InUse`].
    async fn remove(&self, name: &str) -> Result<(), RuntimeError>;
}

/// A volume that a runtime keeps under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVolume {
    pub name: String,
    /// Whether it goes with the last sandbox that uses it.
    pub ephemeral: bool,
    pub used_by: Vec<SandboxId>,
    pub created_at: SystemTime,
}

impl RuntimeError {
    /// No volume of this name is kept.
    pub fn no_volume(name: &str) -> Self {
        let message = format!("there is no volume {name:?}");
        Self::Volume { problem: VolumeProblem::NotFound, message }
    }

    /// The volume cannot be removed, for these sandboxes use it.
    pub fn volume_in_use(name: &str, users: &[SandboxId]) -> Self {
        let named: Vec<_> = users.iter().take(MAX_USERS).map(ToString::to_string).collect();
        let more = match users.len().saturating_sub(MAX_USERS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join(", ");
        Self::Volume {
            problem: VolumeProblem::InUse,
            message: format!("sandboxes use the volume {name:?}, remove them first: {named}{more}"),
        }
    }
}

/// Why a sandbox cannot have a volume that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeProblem {
    /// The path of the host is not below one that the operator allowed.
    HostPathNotAllowed,
    /// The path of the host is not there, or is neither a directory nor a file.
    HostPathNotFound,
    /// The path of the host is not there and cannot be made.
    HostPathNotMade,
    /// No volume has this name, and none may be made.
    NotFound,
    /// The part of the volume cannot be had.
    SubPath,
    /// There is no way to show it there.
    MountPath,
    /// A sandbox uses the volume.
    InUse,
    /// This runtime or file system cannot do that.
    Unsupported,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volumes_name_is_never_a_path() {
        for good in ["a", "0", "shared-models", &"x".repeat(253)] {
            assert!(is_volume_name(good), "{good:?} was refused");
        }
        for bad in ["", ".", "..", "a/b", "A", "-a", "a-", "a.b", "a b", "ü", &"x".repeat(254)] {
            assert!(!is_volume_name(bad), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_volume_in_use_names_some_of_those_who_use_it() {
        let users = [(); 10].map(|()| SandboxId::random());
        let text = RuntimeError::volume_in_use("a", &users).to_string();
        assert!(text.contains(&users[7].to_string()) && text.ends_with(" and 2 more"), "{text}");
        assert!(!text.contains(&users[8].to_string()), "{text}");
        let one = RuntimeError::volume_in_use("a", &users[..1]).to_string();
        assert!(one.ends_with(&users[0].to_string()), "{one}");
    }
}
