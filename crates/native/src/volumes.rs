//! Volumes: from what a spec asks for to mounts that the spawner gives a place.
//!
//! Sandboxes write to volumes, and other sandboxes start from what they wrote: every path is
//! resolved by the kernel below a descriptor, and what was found is handed on as a mount.

mod host;
mod named;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use osb_core::{RuntimeError, SandboxSpec, Volume, VolumeProblem, VolumeSource};
use osb_sys::{
    beneath,
    fs::PathError,
    mount,
    rootless::Rights,
    step::{Failure, Refusal},
};
use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};

pub(crate) use self::named::Named;
use crate::spawner::{VolumeKind, VolumePlan};

/// Where volumes come from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) named: Named,
    /// What the operator allowed of the host.
    host_paths: Vec<PathBuf>,
    rights: Rights,
}

/// A volume that a sandbox cannot have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("{message}")]
    Refused { problem: VolumeProblem, message: String },
    #[error("cannot prepare the volume at {}", at.display())]
    Failed {
        at: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    fn refused(problem: VolumeProblem, message: impl Into<String>) -> Self {
        Self::Refused { problem, message: message.into() }
    }

    fn failed(volume: &Volume, source: impl Into<io::Error>) -> Self {
        Self::Failed { at: volume.at.clone(), source: source.into() }
    }
}

impl Sources {
    pub(crate) fn open(
        data_dir: &Path,
        host_paths: Vec<PathBuf>,
        rights: Rights,
    ) -> Result<Self, PathError> {
        let named = Named::open(data_dir.join("volumes"), rights.ids_of_layers())?;
        Ok(Self { named, host_paths, rights })
    }

    /// Finds or makes the volumes of a sandbox. With the plans come mounts that have no place yet,
    /// in the same order, one for each that is not memory.
    pub(crate) fn prepare(
        &self,
        spec: &SandboxSpec,
    ) -> Result<(Vec<VolumePlan>, Vec<OwnedFd>), VolumeError> {
        let mut volumes: Vec<&Volume> = spec.volumes.iter().collect();
        // What lies in another volume is mounted after that one.
        volumes.sort_by(|one, other| one.at.cmp(&other.at));
        let (mut plans, mut mounts) = (Vec::new(), Vec::new());
        for volume in volumes {
            let (kind, found) = match &volume.source {
                VolumeSource::Tmpfs { size } => (VolumeKind::Memory { bytes: size.bytes() }, None),
                VolumeSource::Named { name, create, ephemeral } => {
                    let found = self.named.find(volume, name, *create, *ephemeral)?;
                    (VolumeKind::Kept, Some(found))
                }
                VolumeSource::Host(_) if self.rights == Rights::User => {
                    let message = "this server runs without root and cannot show a sandbox paths \
                                   of its host: use a named volume, or a server that runs as root";
                    return Err(VolumeError::refused(VolumeProblem::HostPathNotAllowed, message));
                }
                VolumeSource::Host(path) => {
                    let found = host::find(volume, path, &self.host_paths)?;
                    let owner =
                        fstat(&found).map_err(|error| VolumeError::failed(volume, error))?;
                    (VolumeKind::Host { uid: owner.st_uid, gid: owner.st_gid }, Some(found))
                }
            };
            if let Some(found) = found {
                mounts.push(detached(volume, &found)?);
            }
            plans.push(VolumePlan { at: volume.at.clone(), read_only: volume.read_only, kind });
        }
        Ok((plans, mounts))
    }
}

/// The part of the volume that is asked for, as a mount without a place.
fn detached(volume: &Volume, whole: &OwnedFd) -> Result<OwnedFd, VolumeError> {
    let part;
    let found = if volume.sub_path.as_os_str().is_empty() {
        whole
    } else {
        part = beneath::open_or_make(whole, &volume.sub_path).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(errno) if is_in_the_way(errno) => VolumeError::refused(
                    VolumeProblem::SubPath,
                    format!(
                        "subPath {} does not lead to anything in its volume: a link or a file is \
                         in the way",
                        volume.sub_path.display()
                    ),
                ),
                _ => VolumeError::failed(volume, error),
            }
        })?;
        &part
    };
    let kind = fstat(found).map_err(|error| VolumeError::failed(volume, error))?.st_mode;
    if !matches!(FileType::from_raw_mode(kind), FileType::Directory | FileType::RegularFile) {
        let problem = if volume.sub_path.as_os_str().is_empty() {
            VolumeProblem::HostPathNotFound
        } else {
            VolumeProblem::SubPath
        };
        let message =
            format!("what is to be shown at {} is no directory and no file", volume.at.display());
        return Err(VolumeError::refused(problem, message));
    }
    mount::view_of(found.as_fd()).map_err(|error| VolumeError::failed(volume, error))
}

/// Whether something that is there keeps a path from being resolved: a link that leads out or
/// nowhere, or a file where a directory should be.
fn is_in_the_way(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::XDEV | Errno::LOOP | Errno::NOTDIR | Errno::NOENT | Errno::EXIST | Errno::AGAIN
    )
}

/// Why a sandbox could not be started, when a volume may be the reason.
pub(crate) fn explain(error: io::Error) -> RuntimeError {
    let error = match error.downcast::<VolumeError>() {
        Ok(VolumeError::Refused { problem, message }) => {
            return RuntimeError::Volume { problem, message };
        }
        Ok(failed @ VolumeError::Failed { .. }) => io::Error::other(failed),
        Err(error) => error,
    };
    match error.downcast::<Failure>() {
        Ok(failure) => {
            let problem = match failure.refusal() {
                Some(Refusal::Place) => VolumeProblem::MountPath,
                Some(Refusal::FileSystem) => VolumeProblem::Unsupported,
                Some(Refusal::Image) => {
                    return RuntimeError::Invalid(format!("the image cannot be used: {failure}"));
                }
                None => return RuntimeError::failed("cannot start the sandbox", failure),
            };
            RuntimeError::Volume { problem, message: failure.to_string() }
        }
        Err(error) => RuntimeError::failed("cannot start the sandbox", error),
    }
}
