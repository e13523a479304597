//! Volumes get their places in the sandbox's root.

mod lent;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use osb_sys::{
    fork::SingleThread,
    identity,
    mount::{self, Attributes, FsOption},
    step::Refusal,
    userns::{self, IdBase, IdRange, RANGE},
};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    bounds::Touched,
    place::Wanted,
    protocol::{Failure, Step},
};

/// What the users of a sandbox other than its root are on the disk of the host: ids that nobody
/// has, the same for all sandboxes, below those that sandboxes run with.
const STRANGERS: u32 = 0x3fff_0000;

/// Every volume has these.
const ALWAYS: Attributes = Attributes::MOUNT_ATTR_NOSUID.union(Attributes::MOUNT_ATTR_NODEV);

/// A volume and where it goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VolumePlan {
    pub(crate) at: PathBuf,
    pub(crate) read_only: bool,
    pub(crate) kind: VolumeKind,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum VolumeKind {
    /// Its files have the ids of the sandbox on disk. A mount of it comes as a descriptor.
    Kept,
    /// Files of the host: the sandbox's root is this user and group there. A mount of it comes as
    /// a descriptor.
    Host { uid: u32, gid: u32 },
    /// A new file system of this size in the memory of the sandbox.
    Memory { bytes: u64 },
    /// A file in the memory of the sandbox, of these users of it. Its content comes as a descriptor.
    Lent { mode: u32, user: u32, group: u32 },
}

impl VolumePlan {
    pub(super) fn comes_as_descriptor(&self) -> bool {
        match self.kind {
            VolumeKind::Kept | VolumeKind::Host { .. } | VolumeKind::Lent { .. } => true,
            VolumeKind::Memory { .. } => false,
        }
    }
}

/// Whose files a sandbox with these volumes may change.
pub(super) fn touched(plans: &[VolumePlan]) -> Touched {
    let is_host = |kind| matches!(kind, VolumeKind::Host { .. });
    if plans.iter().any(|plan| is_host(plan.kind) && !plan.read_only) {
        Touched::HostFiles
    } else {
        Touched::SandboxFiles
    }
}

/// How the owners of each volume's files are translated, where that is not the sandbox's own map.
/// In the order of the plans. To be called where processes have the numbers that `/proc` shows.
pub(super) fn id_maps(
    alone: &SingleThread,
    plans: &[VolumePlan],
    base: IdBase,
) -> Result<Vec<Option<OwnedFd>>, Failure> {
    let map = |plan: &VolumePlan| match plan.kind {
        VolumeKind::Kept | VolumeKind::Memory { .. } | VolumeKind::Lent { .. } => Ok(None),
        VolumeKind::Host { uid, gid } => {
            userns::mapped_namespace(alone, &ranges(uid, base), &ranges(gid, base)).map(Some)
        }
    };
    plans.iter().map(map).collect::<io::Result<_>>().step("translate the owners of a host path")
}

/// `owner` on disk is 0 in the sandbox, and the other ids of the sandbox are strangers on disk.
fn ranges(owner: u32, base: IdBase) -> Vec<IdRange> {
    if (STRANGERS..STRANGERS + RANGE).contains(&owner) {
        return vec![IdRange { inside: STRANGERS, outside: base.0, count: RANGE }];
    }
    vec![
        IdRange { inside: owner, outside: base.0, count: 1 },
        IdRange { inside: STRANGERS + 1, outside: base.0 + 1, count: RANGE - 1 },
    ]
}

/// Attaches the volumes below `root`, where the sandbox's root is put together. `mounts` are those
/// that came as descriptors and `maps` is from [`id_maps`], both in the order of the plans. Without
/// `users` owners are not translated.
pub(super) fn attach(
    alone: &SingleThread,
    root: &Path,
    plans: &[VolumePlan],
    mounts: &[OwnedFd],
    maps: &[Option<OwnedFd>],
    users: Option<BorrowedFd<'_>>,
    base: IdBase,
) -> Result<(), Failure> {
    if plans.is_empty() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).step("open the new root")?;
    let (mut mounts, mut maps) = (mounts.iter(), maps.iter());
    for plan in plans {
        let map = maps.next().and_then(Option::as_ref).map(AsFd::as_fd).or(users);
        let made;
        let mount = match plan.kind {
            VolumeKind::Memory { bytes } => {
                made = memory(bytes, base)?;
                &made
            }
            VolumeKind::Lent { mode, user, group } => {
                let content = mounts.next().ok_or(Errno::BADF).step("take a file")?;
                let owner = (base.0.saturating_add(user), base.0.saturating_add(group));
                made = lent::file(&root, content, mode, owner).step("put a file into memory")?;
                &made
            }
            VolumeKind::Kept | VolumeKind::Host { .. } => {
                let mount = mounts.next().ok_or(Errno::BADF).step("take a volume")?;
                translate(plan, mount, map)?;
                mount
            }
        };
        let kind = FileType::from_raw_mode(fstat(mount).step("look at a volume")?.st_mode);
        let doing = format!("mount a volume at {}", plan.at.display());
        let wanted = Wanted { at: &plan.at, kind, doing: &doing, refusal: Refusal::Place };
        let place = identity::with_files_of(alone, base.0, base.0, || wanted.find_or_make(&root));
        let place = place.step("make the place of a volume")??;
        mount::attach_at(mount, place)
            .map_err(|error| refusal(plan, Refusal::Place, &error.to_string()))?;
        if matches!(plan.kind, VolumeKind::Lent { .. }) {
            lent::hide(&root).step("hide a file in memory")?;
        }
    }
    Ok(())
}

fn refusal(plan: &VolumePlan, refusal: Refusal, cause: &str) -> Failure {
    Failure::refused(refusal, &format!("mount a volume at {}", plan.at.display()), cause)
}

fn translate(
    plan: &VolumePlan,
    mount: &OwnedFd,
    map: Option<BorrowedFd<'_>>,
) -> Result<(), Failure> {
    let attributes = if plan.read_only { ALWAYS | Attributes::MOUNT_ATTR_RDONLY } else { ALWAYS };
    mount::prepare_all(mount, attributes, map).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) => refusal(
            plan,
            Refusal::FileSystem,
            "its file system, or one mounted below it, cannot translate owners: ext4, xfs, \
                 btrfs and tmpfs can",
        ),
        _ => Failure::new("prepare a volume", &error),
    })
}

/// A file system in memory. What is written there counts as memory of the sandbox, and so does
/// every file, even an empty one.
fn memory(bytes: u64, base: IdBase) -> Result<OwnedFd, Failure> {
    let (owner, size) = (base.0.to_string(), bytes.to_string());
    let files = (bytes / 4096).clamp(1024, 1 << 20).to_string();
    let options = [
        FsOption::Text("mode", "1777"),
        FsOption::Text("uid", &owner),
        FsOption::Text("gid", &owner),
        FsOption::Text("size", &size),
        FsOption::Text("nr_inodes", &files),
    ];
    mount::filesystem("tmpfs", &options, ALWAYS).step("make a volume in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_on_disk_is_root_inside_and_no_id_is_mapped_twice() {
        let base = IdBase(0x4001_0000);
        for owner in [0, 1000, 65_534, STRANGERS - 1, STRANGERS, STRANGERS + 7, 0x4001_0000] {
            let ranges = ranges(owner, base);
            let outside: u32 = ranges.iter().map(|range| range.count).sum();
            assert_eq!(outside, RANGE, "{owner}");
            for (index, range) in ranges.iter().enumerate() {
                assert!(range.inside.checked_add(range.count - 1).is_some());
                for other in ranges.iter().skip(index + 1) {
                    let apart = range.inside + range.count <= other.inside
                        || other.inside + other.count <= range.inside;
                    assert!(apart, "{owner}: {ranges:?}");
                }
            }
        }
        assert_eq!(ranges(1000, base)[0], IdRange { inside: 1000, outside: base.0, count: 1 });
    }
}
