//! Directories that outlive builds, for the next: volumes that the runtime keeps. What is known of them
//! beside their files is here, one file for each.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use osb_api::{images::BuildCache, lifecycle::Time};
use osb_core::{Chain, RuntimeError, VolumeProblem, Volumes};
use osb_registry::Digest;
use osb_sys::fs::{self, PathError};

/// How the names of these volumes begin.
const PREFIX: &str = "build-cache-";
/// What all of them together may keep.
const MOST_BYTES: u64 = 20 << 30;
/// How long one is kept that nobody uses.
const LONGEST: Duration = Duration::from_hours(30 * 24);

#[derive(Debug)]
pub(super) struct Caches {
    directory: PathBuf,
}

impl Caches {
    pub(super) fn open(directory: PathBuf) -> Result<Self, PathError> {
        fs::create_private_dir_all(&directory)?;
        Ok(Self { directory })
    }

    /// The volume for a cache, which is used now, and whether there was none before.
    pub(super) fn take(&self, id: &str) -> Result<(String, bool), PathError> {
        let hash = Digest::of(id.as_bytes());
        let short: String = hash.hex().chars().take(32).collect();
        let name = format!("{PREFIX}{short}");
        let path = self.directory.join(&name);
        let is_new = fs::changed(&path)?.is_none();
        let said: String = id.chars().take(1024).collect();
        fs::write_whole(path, said.as_bytes(), 0o600)?;
        Ok((name, is_new))
    }

    /// All of them with when they were used last, the latest first.
    fn all(&self) -> Result<Vec<(SystemTime, String)>, PathError> {
        let mut all = Vec::new();
        for name in fs::names(&self.directory)? {
            if let Some((used, _)) = fs::changed(self.directory.join(&name))? {
                all.push((used, name));
            }
        }
        all.sort_unstable_by(|one, other| other.cmp(one));
        Ok(all)
    }

    /// All of them as clients see them.
    pub(super) fn list(&self) -> Result<Vec<BuildCache>, PathError> {
        let shown = |(used, volume): (SystemTime, String)| {
            let id = fs::read_small(self.directory.join(&volume)).unwrap_or_default();
            let used = Timestamp::try_from(used).unwrap_or_default();
            let id = String::from_utf8_lossy(&id).into_owned();
            BuildCache { id, volume, used_at: Time(used) }
        };
        Ok(self.all()?.into_iter().map(shown).collect())
    }

    /// Removes what nobody has used for long, and then what is too much, the oldest first. What is in use
    /// stays until the next time.
    pub(super) async fn trim(&self, volumes: &dyn Volumes, now: SystemTime, most: Most) {
        let all = match self.all() {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "cannot list the caches of builds");
                return;
            }
        };
        let mut bytes: u64 = 0;
        for (used, name) in all {
            let age = now.duration_since(used).unwrap_or_default();
            if most == Most::Usual && age <= LONGEST {
                let size = volumes.measure(&name).await;
                bytes = bytes.saturating_add(size.ok().flatten().unwrap_or_default());
                if bytes <= MOST_BYTES {
                    continue;
                }
            }
            match volumes.remove(&name).await {
                Ok(()) | Err(RuntimeError::Volume { problem: VolumeProblem::NotFound, .. }) => {
                    fs::remove_file(self.directory.join(&name)).ok();
                }
                Err(RuntimeError::Volume { problem: VolumeProblem::InUse, .. }) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "cannot remove a cache of builds");
                }
            }
        }
    }
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Most {
    /// What has been of use lately.
    Usual,
    Nothing,
}

#[cfg(test)]
mod tests {
    use osb_core::{
        Clock as _, ImageName, Runtime as _, SandboxSpec, SystemClock, Token, Volume, VolumeSource,
        testkit::FakeRuntime,
    };

    use super::*;

    #[tokio::test]
    async fn caches_go_when_nobody_has_used_them_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let caches = Caches::open(directory.path().join("caches")).unwrap();
        let (name, is_new) = caches.take("pip").unwrap();
        assert!(is_new && osb_core::is_volume_name(&name), "{name}");
        assert_eq!(caches.take("pip").unwrap(), (name.clone(), false));
        let (used, _) = caches.take("npm\n2").unwrap();
        let runtime = FakeRuntime::new();
        let sandbox = |name: &str| {
            let id = osb_api::SandboxId::random();
            let entrypoint = vec!["sleep".to_owned()];
            let source =
                VolumeSource::Named { name: name.to_owned(), create: true, ephemeral: false };
            let volume =
                Volume { source, sub_path: PathBuf::new(), at: "/x".into(), read_only: false };
            SandboxSpec {
                volumes: vec![volume],
                ..SandboxSpec::new(id, ImageName::new("host"), entrypoint, Token::new("t"))
            }
        };
        let first = sandbox(&name);
        runtime.ensure(&first).await.unwrap();
        osb_core::Runtime::remove(&runtime, first.id).await.unwrap();
        runtime.ensure(&sandbox(&used)).await.unwrap();
        let volumes = runtime.volumes().unwrap();
        let now = SystemTime::from(SystemClock.now());
        let names = || caches.all().unwrap().into_iter().map(|it| it.1).collect::<Vec<_>>();
        caches.trim(volumes, now, Most::Usual).await;
        assert_eq!(names().len(), 2);
        // The one that is in use stays, however old it is.
        caches.trim(volumes, now + 2 * LONGEST, Most::Usual).await;
        assert_eq!(names(), [used]);
        assert_eq!(volumes.list().await.unwrap().len(), 1);
    }
}
