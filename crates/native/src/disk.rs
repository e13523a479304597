//! Where the files are that a sandbox writes, and how much they may take.
//!
//! Without a limit they lie in the sandbox's directory. With one, that directory is a project of
//! the file system if that keeps projects within limits. Otherwise the sandbox has a file system of
//! its own: an image file in its directory, mounted nowhere but in the sandbox, so that it goes
//! with the sandbox whatever becomes of this server.

mod image;
mod project;

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use osb_core::{Memory, agent::output::Head};
use osb_sys::{fs::PathError, mount, quota, rootless::Rights, userns::IdBase};
use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, mkdirat, openat},
    io::Errno,
};

use self::image::Images;

/// Limits are kept in steps of this size.
const STEP: u64 = 1 << 20;
/// More than this no file system of a sandbox's own can have.
const MOST: u64 = 16 << 40;
/// There may be one file for so many bytes.
const BYTES_PER_FILE: u64 = 16 << 10;
/// However small the limit is, so many files may be there.
const FEWEST_FILES: u64 = 4096;

/// In the directory of the overlay's own files: what the entrypoint printed.
const PRINTED: &CStr = c"work/printed";

/// The sandbox's own files: a directory that holds them in `upper`, and the overlay's in `work`.
#[derive(Debug)]
pub(crate) struct Files(OwnedFd);

/// How much a sandbox may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    files: u64,
}

/// Makes and finds the files of sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    data_dir: PathBuf,
    rights: Rights,
    images: Images,
    /// Held while a file system is opened that may be open already.
    opening: Arc<Mutex<()>>,
}

/// How limits are kept here.
#[derive(Debug)]
enum Means {
    Project,
    Image { mkfs: PathBuf },
}

/// Why limits cannot be kept here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unable {
    pub(crate) found: String,
    pub(crate) remedy: &'static str,
}

impl Disks {
    pub(crate) fn open(data_dir: &Path, rights: Rights) -> Result<Self, PathError> {
        Ok(Self {
            data_dir: data_dir.to_owned(),
            rights,
            images: Images::open(data_dir.join("disks"))?,
            opening: Arc::default(),
        })
    }

    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// Whether a sandbox can be given this limit; if not, a sentence that says what to do.
    pub(crate) fn check(&self, limit: Memory) -> Result<(), String> {
        if limit.bytes() > MOST {
            return Err("a disk limit is 16Ti at most".to_owned());
        }
        means(&self.data_dir, self.rights).map(drop).map_err(|Unable { found, remedy }| {
            format!("this server cannot limit the disk of a sandbox: {found}; {remedy}")
        })
    }

    /// Makes the place for the files of the sandbox that has this directory and was given `own`: a
    /// mount without a place.
    pub(crate) fn make(
        &self,
        directory: &Path,
        limit: Option<Memory>,
        own: IdBase,
    ) -> Result<Files, PathError> {
        let base = self.rights.ids_of(own);
        let failed = |doing, error| PathError::new(doing, directory, error);
        let Some(limit) = limit.map(Limit::new) else { return shared(directory, base) };
        let means =
            means(&self.data_dir, self.rights).map_err(|unable| failed("limit", unable.into()))?;
        match means {
            Means::Project => {
                let files = shared(directory, base)?;
                let limited = project::limit(&open(directory)?, base, limit);
                limited.map_err(|error| failed("limit", error))?;
                Ok(files)
            }
            Means::Image { mkfs } => {
                let root = self.images.make(&mkfs, directory, limit)?;
                furnish(&root, base).map_err(|error| failed("make the file system of", error))?;
                Ok(Files(root))
            }
        }
    }

    /// Opens the place of the files of a sandbox, running or not.
    pub(crate) fn find(&self, directory: &Path) -> Result<Files, PathError> {
        // Nobody may find the file system closed while another opens it.
        let opening = self.opening.lock();
        let own = image::reopen(directory)?;
        drop(opening);
        own.map_or_else(|| open(directory), Ok).map(Files)
    }
}

impl Files {
    /// The directory of what the sandbox has written: everything in it is the sandbox's work.
    pub(crate) fn upper(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.0, c"upper", DIRECTORY, Mode::empty())?)
    }

    /// Makes the file for what the entrypoint prints. It lies where the sandbox's own files are, so that it
    /// counts as one of them, and no program of the sandbox sees it there.
    pub(crate) fn keep_printed(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.0, PRINTED, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// What is in that file, oldest first; nothing if there is none.
    pub(crate) fn printed(&self) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&self.0, PRINTED, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut head = [0; Head::BYTES];
        match file.read_exact_at(&mut head, 0) {
            // Nothing was printed yet.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Vec::new()),
            read => read?,
        }
        let head = Head::from_bytes(head).ok_or(io::ErrorKind::InvalidData)?;
        let mut printed = Vec::new();
        for (from, length) in head.parts() {
            let mut part = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact_at(&mut part, from)?;
            printed.append(&mut part);
        }
        Ok(printed)
    }

    /// Whether the sandbox's root was ever put together: the overlay leaves its mark.
    pub(crate) fn were_used(&self) -> bool {
        rustix::fs::statat(&self.0, c"work/work", AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

impl From<Files> for OwnedFd {
    fn from(files: Files) -> Self {
        files.0
    }
}

impl Limit {
    fn new(bytes: Memory) -> Self {
        let bytes = bytes.bytes().next_multiple_of(STEP);
        Self { bytes, files: (bytes / BYTES_PER_FILE).max(FEWEST_FILES) }
    }
}

impl From<Unable> for io::Error {
    fn from(unable: Unable) -> Self {
        Self::new(io::ErrorKind::Unsupported, unable.found)
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(directory: &Path) -> Result<OwnedFd, PathError> {
    rustix::fs::open(directory, DIRECTORY, Mode::empty())
        .map_err(|error| PathError::new("open", directory, error.into()))
}

/// How limits are kept on the file system of the data directory.
fn means(data_dir: &Path, rights: Rights) -> Result<Means, Unable> {
    if rights == Rights::User {
        return Err(Unable {
            found: "neither quotas nor file systems can be made without root".to_owned(),
            remedy: "run the server as root",
        });
    }
    if open(data_dir).is_ok_and(quota::is_enforced) {
        return Ok(Means::Project);
    }
    image::mkfs().map(|mkfs| Means::Image { mkfs })
}

/// What a host has for limits, in words.
pub(crate) fn describe(data_dir: &Path, rights: Rights) -> Result<String, Unable> {
    let existing = data_dir.ancestors().find(|path| path.exists());
    means(existing.unwrap_or_else(|| Path::new("/")), rights).map(|means| match means {
        Means::Project => "project quota of the data directory's file system".to_owned(),
        Means::Image { .. } => "a file system of its own for each limited sandbox".to_owned(),
    })
}

/// The directories that an overlay needs, on the host's file system.
fn shared(directory: &Path, base: IdBase) -> Result<Files, PathError> {
    let made = mount::view(directory).and_then(|view| {
        mount::isolate(&view)?;
        furnish(&view, base)?;
        Ok(Files(view))
    });
    made.map_err(|error| PathError::new("make the directories in", directory, error))
}

fn furnish(directory: &OwnedFd, base: IdBase) -> io::Result<()> {
    mkdirat(directory, c"work", Mode::RWXU)?;
    let open_to_all = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    mkdirat(directory, c"upper", open_to_all)?;
    let owner = (Uid::from_raw(base.0), Gid::from_raw(base.0));
    chownat(directory, c"upper", Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use osb_core::testkit::required;
    use osb_sys::{fs, loop_device::LoopDevice};
    use rustix::fs::{fstatvfs, openat};

    use super::*;

    const BASE: IdBase = IdBase(0x4000_0000);

    /// A data directory, if this machine can limit what is written there.
    fn disks() -> Option<(tempfile::TempDir, Disks)> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let disks = Disks::open(directory.path(), Rights::Root).unwrap();
        Some((directory, disks))
    }

    fn write(files: &Files, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(files.upper()?, name, flags, Mode::RUSR)?;
        io::Write::write_all(&mut std::fs::File::from(file), content)
    }

    #[test]
    fn files_that_were_closed_are_found_again() {
        let Some((directory, disks)) = disks() else { return };
        for limit in [None, Some(Memory::from_bytes(8 << 20))] {
            let place = directory.path().join(format!("{limit:?}"));
            fs::create_dir(&place, 0o700).unwrap();
            let made = disks.make(&place, limit, BASE).unwrap();
            write(&made, "first", b"x").unwrap();
            let beside = disks.find(&place).unwrap();
            write(&beside, "second", b"x").unwrap();
            drop((made, beside));
            let again = disks.find(&place).unwrap();
            for name in ["first", "second"] {
                openat(again.upper().unwrap(), name, OFlags::CLOEXEC, Mode::empty()).unwrap();
            }
            assert!(!again.were_used());
        }
    }

    #[test]
    fn a_limit_is_what_the_files_get() {
        let Some((directory, disks)) = disks() else { return };
        for (index, limit) in [1 << 20, 50 << 20, 1 << 30, 100 << 30].into_iter().enumerate() {
            let place = directory.path().join(index.to_string());
            fs::create_dir(&place, 0o700).unwrap();
            let files = disks.make(&place, Some(Memory::from_bytes(limit)), BASE).unwrap();
            let room = fstatvfs(files.upper().unwrap()).unwrap();
            let bytes = room.f_bavail * room.f_frsize;
            assert!(bytes >= limit, "{bytes} of {limit}");
            assert!(bytes <= limit + limit / 100 + (4 << 20), "{bytes} of {limit}");
            let wanted = Limit::new(Memory::from_bytes(limit)).files;
            assert!(room.f_files >= wanted && room.f_files <= wanted * 2, "{}", room.f_files);
        }
    }

    #[test]
    fn what_is_full_says_so_and_what_is_deleted_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let Some((directory, disks)) = disks() else { return };
        let place = directory.path().join("full");
        fs::create_dir(&place, 0o700).unwrap();
        let files = disks.make(&place, Some(Memory::from_bytes(32 << 20)), BASE).unwrap();
        let error = write(&files, "all", &vec![1; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let Ok(image) = fs::open(place.join("disk.img")) else { return };
        let taken = || {
            rustix::fs::syncfs(files.upper().unwrap()).unwrap();
            image.metadata().unwrap().blocks() * 512
        };
        let full = taken();
        assert!(full >= 32 << 20, "{full} bytes are taken");
        rustix::fs::unlinkat(files.upper().unwrap(), "all", AtFlags::empty()).unwrap();
        assert!(taken() < 4 << 20, "{} bytes are left", taken());
        assert!(LoopDevice::of(&image).unwrap().is_some());
        drop(files);
        // The device goes with its last user, and whoever looks at all devices is one for a moment.
        let is_gone = || LoopDevice::of(&image).unwrap().is_none();
        let mut looks = 0..500;
        while !is_gone() {
            assert!(looks.next().is_some(), "the device is still there");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn asking_for_any_size_does_not_keep_all_of_them() {
        let Some((directory, disks)) = disks() else { return };
        for size in 1..=40 {
            let place = directory.path().join(size.to_string());
            fs::create_dir(&place, 0o700).unwrap();
            disks.make(&place, Some(Memory::from_bytes(size << 20)), BASE).unwrap();
        }
        assert!(fs::count_entries(directory.path().join("disks")).unwrap() <= 32);
    }
}
