//! The stage: a mount namespace with nothing in it but places on which the root of a sandbox is
//! put together.
//!
//! It is built once, and every sandbox begins with a copy of it. So no mount of the host is ever in
//! a sandbox's namespace and none need be taken out of it, which is what `pivot_root` is for: that
//! call looks at every thread on the machine.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use osb_sys::{
    fork::{SingleThread, unshare},
    fs,
    mount::{self, Attributes, FsOption},
    rootless::Rights,
};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    mount::{UnmountFlags, unmount},
    process::{chdir, chroot, fchdir, pivot_root},
    thread::UnshareFlags,
};

use super::protocol::{Failure, Step};

/// What is taken off the stage when the root stands: the places of layers and of the sandbox's own
/// files.
const BELOW: &str = "/below";
/// Where the root is put together.
const ROOT: &str = "/root";
/// How many layers can be stacked.
const LAYERS: usize = 64;

const EMPTY: Attributes = Attributes::MOUNT_ATTR_NOSUID
    .union(Attributes::MOUNT_ATTR_NODEV)
    .union(Attributes::MOUNT_ATTR_NOEXEC);

/// A directory and a file for whatever is to be hidden. All sandboxes have the same, so nobody may
/// open them: with locks and watches they could talk to each other.
pub(super) const HIDDEN_DIRECTORY: &str = "/hidden-directory";
pub(super) const HIDDEN_FILE: &str = "/hidden-file";

#[derive(Debug)]
pub(super) struct Stage {
    namespace: OwnedFd,
}

impl Stage {
    /// Builds it, and comes back.
    pub(super) fn build(alone: &SingleThread, rights: Rights) -> Result<Self, Failure> {
        let visible = match rights {
            Rights::Root => Vec::new(),
            // The kernel lets nobody but the host's root mount one of these where none is to be
            // seen as a whole.
            Rights::User => {
                ["proc", "sys"].map(kernels_own).into_iter().collect::<Result<_, _>>()?
            }
        };
        // There is no /proc on the stage by which to name its namespace.
        let this = File::open("/proc/self/ns").step("find the namespaces of the spawner")?;
        let namespace = || openat(&this, "mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let home = namespace().step("remember the spawner's mounts")?;
        unshare(alone, UnshareFlags::NEWNS).step("make a mount namespace for the stage")?;
        let stage = mount::filesystem("tmpfs", &[FsOption::Text("mode", "755")], EMPTY)
            .step("make a file system for the stage")?;
        mount::attach(&stage, Path::new("/")).step("mount the stage")?;
        fchdir(&stage).step("enter the stage")?;
        // With both names the same, the old root ends up mounted over the new one and is taken away
        // from there; no directory for it is needed. See pivot_root(2).
        pivot_root(".", ".").step("make the stage the root")?;
        unmount(".", UnmountFlags::DETACH).step("leave the host's mounts")?;
        chdir("/").step("enter the stage")?;

        fs::create_dir(ROOT, 0o755).step("make a place for roots")?;
        fs::create_dir(HIDDEN_DIRECTORY, 0).step("make a directory that hides")?;
        fs::write(HIDDEN_FILE, "").step("make a file that hides")?;
        fs::set_mode(HIDDEN_FILE, 0).step("close the file that hides")?;
        fs::create_dir(BELOW, 0o700).step("make a place for layers")?;
        fs::create_dir(files(), 0o700).step("make a place for a sandbox's own files")?;
        for index in 0..LAYERS {
            fs::create_dir(layer(index), 0o755).step("make a place for a layer")?;
        }
        for (name, _) in &visible {
            fs::create_dir(Path::new(BELOW).join(name), 0o755).step("make a place for a view")?;
        }
        mount::restrict(&stage, EMPTY | Attributes::MOUNT_ATTR_RDONLY)
            .step("make the stage read-only")?;
        // A mount of its own, so that it can be taken away with all that is on it.
        let below = mount::view(Path::new(BELOW)).step("open the place for layers")?;
        mount::attach(below, Path::new(BELOW)).step("mount the place for layers")?;
        for (name, view) in visible {
            mount::attach(view, &Path::new(BELOW).join(name)).step("mount a view")?;
        }

        let namespace = namespace().step("keep the stage")?;
        mount::enter(alone, &home).step("go back to the spawner's mounts")?;
        Ok(Self { namespace })
    }

    /// Moves this process to a stage of its own. It sees no mounts of the host afterwards.
    pub(super) fn enter(&self, alone: &SingleThread) -> Result<(), Failure> {
        mount::enter(alone, &self.namespace).step("enter the stage")?;
        unshare(alone, UnshareFlags::NEWNS).step("make a mount namespace")
    }
}

/// Gives each of these mounts a place, and a mount of the sandbox's own files too: kernels before
/// 6.15 stack only on mounts that have one.
///
/// Answers with the places, topmost first, from the directory in which this process is then: there
/// may be many, and an option of a mount holds at most 255 bytes.
pub(super) fn lay(layers: &[OwnedFd], own: &OwnedFd) -> Result<String, Failure> {
    if layers.len() > LAYERS {
        return Err(Failure::new("mount the layers", &Errno::TOOBIG));
    }
    for (index, mount) in layers.iter().enumerate() {
        mount::attach(mount, &layer(index)).step("mount a layer")?;
    }
    mount::attach(own, &files()).step("mount the sandbox's own files")?;
    chdir(BELOW).step("enter the place for layers")?;
    let names = (0..layers.len()).map(|index| index.to_string());
    Ok(names.collect::<Vec<_>>().join(":"))
}

/// Puts up a root, and answers with where it stands.
pub(super) fn put_up(root: &OwnedFd) -> Result<&'static Path, Failure> {
    mount::attach(root, Path::new(ROOT)).step("mount the root")?;
    Ok(Path::new(ROOT))
}

/// Makes it the root of this process. Of the stage only its file system is left, under the root,
/// where no path leads.
pub(super) fn go_live(root: &OwnedFd) -> Result<(), Failure> {
    fchdir(root).step("enter the new root")?;
    unmount(BELOW, UnmountFlags::DETACH).step("take the layers off the stage")?;
    mount::attach(root, Path::new("/")).step("move the new root")?;
    chroot(".").step("make it the root")
}

/// A view of `/proc` or `/sys` as it is here.
fn kernels_own(name: &'static str) -> Result<(&'static str, OwnedFd), Failure> {
    let view = mount::view_or_all(&Path::new("/").join(name)).step("open a view of the kernel")?;
    Ok((name, view))
}

fn layer(index: usize) -> PathBuf {
    Path::new(BELOW).join(index.to_string())
}

fn files() -> PathBuf {
    Path::new(BELOW).join("files")
}
