//! What a step sees that is none of its image.

use std::{path::PathBuf, sync::Arc};

use osb_build::{CacheMount, RunStep, SecretFile, WorkError};
use osb_core::{LentFile, Memory, Volume, VolumeSource};

use super::Builds;

/// How many a step may have.
const MOST: usize = 16;
/// How much a directory in memory holds that does not say.
const DEFAULT_TMPFS: u64 = 1 << 30;
/// Places that are the sandbox's own.
const RESERVED: [&str; 4] = ["/dev", "/proc", "/sys", "/opt/opensandbox"];
const SHARED_MEMORY: &str = "/dev/shm";

/// Volumes and files for the sandbox of a step.
pub(super) struct Mounts {
    pub(super) volumes: Vec<Volume>,
    pub(super) secrets: Arc<Vec<LentFile>>,
    /// Directories that are new, and have to become what the step wants.
    pub(super) new: Vec<CacheMount>,
}

impl Mounts {
    pub(super) fn of(builds: &Builds, step: &RunStep) -> Result<Self, WorkError> {
        let count = step.caches.len() + step.tmpfs.len() + step.secrets.len();
        if count > MOST {
            return Err(WorkError::Refused(format!(
                "a step has at most {MOST} caches, directories in memory and secrets"
            )));
        }
        let (mut volumes, mut new) = (Vec::new(), Vec::new());
        for cache in &step.caches {
            let (name, is_new) = builds
                .caches
                .take(&cache.id)
                .map_err(|error| WorkError::failed("cannot use a cache", error))?;
            if is_new {
                new.push(cache.clone());
            }
            let source = VolumeSource::Named { name, create: true, ephemeral: false };
            volumes.push(volume(source, &cache.target, cache.read_only)?);
        }
        for tmpfs in &step.tmpfs {
            let size = Memory::from_bytes(tmpfs.size.unwrap_or(DEFAULT_TMPFS));
            volumes.push(volume(VolumeSource::Tmpfs { size }, &tmpfs.target, false)?);
        }
        let secrets: Vec<LentFile> = step.secrets.iter().map(secret).collect::<Result<_, _>>()?;
        let mut places: Vec<&PathBuf> =
            volumes.iter().map(|it| &it.at).chain(secrets.iter().map(|it| &it.at)).collect();
        places.sort();
        if let Some(twice) = places.windows(2).find(|pair| pair.first() == pair.last()) {
            let place = twice.first().map(|it| it.display().to_string()).unwrap_or_default();
            return Err(WorkError::Refused(format!("two mounts of a step are at {place}")));
        }
        Ok(Self { volumes, secrets: Arc::new(secrets), new })
    }
}

fn secret(secret: &SecretFile) -> Result<LentFile, WorkError> {
    Ok(LentFile {
        at: place(&secret.target, false)?,
        content: Arc::new(secret.content.clone()),
        mode: secret.mode,
        user: secret.user,
        group: secret.group,
    })
}

fn volume(source: VolumeSource, target: &str, read_only: bool) -> Result<Volume, WorkError> {
    let is_memory = matches!(source, VolumeSource::Tmpfs { .. });
    Ok(Volume { source, sub_path: PathBuf::new(), at: place(target, is_memory)?, read_only })
}

fn place(target: &str, is_memory: bool) -> Result<PathBuf, WorkError> {
    let path = PathBuf::from(target);
    let is_reserved = RESERVED.iter().any(|reserved| path.starts_with(reserved));
    if is_reserved && !(is_memory && target == SHARED_MEMORY) {
        return Err(WorkError::Refused(format!("nothing can be mounted at {target} of a sandbox")));
    }
    Ok(path)
}
