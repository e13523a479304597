//! Volumes that are kept under a name.
//!
//! | in `volumes/<name>` | what it is |
//! | --- | --- |
//! | `volume.json` | whether it goes with the last sandbox that uses it |
//! | `data` | its files, with the ids that they have in sandboxes |
//!
//! A directory gets its name when it is complete and loses it before anything in it is deleted.
//! Who uses a volume is not written down with it: the states of the sandboxes say so.

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use osb_core::{Volume, VolumeProblem, is_volume_name};
use osb_sys::{
    beneath, confined,
    fs::{self, PathError},
    tree,
    userns::IdBase,
};
use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags, renameat_with},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::VolumeError;

/// How the names of volumes begin that are being made. No volume has such a name.
const UNFINISHED: &str = ".new-";

/// How many files are looked at to tell what volumes take, and how many of one volume.
const MAX_ENTRIES: u32 = 200_000;
const MAX_ENTRIES_OF_ONE: u32 = 20_000;

/// The volumes that this runtime keeps.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    directory: PathBuf,
    /// What owners of files are counted from.
    owners: IdBase,
}

#[derive(Debug, Serialize, Deserialize)]
struct Description {
    ephemeral: bool,
}

impl Named {
    /// Opens the directory, and clears away what a crash left unfinished.
    pub(crate) fn open(directory: PathBuf, owners: IdBase) -> Result<Self, PathError> {
        fs::create_private_dir_all(&directory)?;
        fs::set_mode(&directory, 0o700)?;
        for name in fs::names(&directory)? {
            if name.starts_with(UNFINISHED) {
                tree::remove(&directory.join(name))?;
            }
        }
        Ok(Self { directory, owners })
    }

    /// The files of the volume with this name, made if it may be.
    ///
    /// The sandbox that asks must be known as one that uses it, so that nobody removes it.
    pub(super) fn find(
        &self,
        volume: &Volume,
        name: &str,
        create: bool,
        ephemeral: bool,
    ) -> Result<OwnedFd, VolumeError> {
        let failed = |error: io::Error| VolumeError::failed(volume, error);
        if !is_volume_name(name) {
            let message = "a volume's name is small letters, digits and dashes";
            return Err(VolumeError::refused(VolumeProblem::NotFound, message));
        }
        match self.files(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result.map_err(failed),
        }
        if !create {
            let message =
                format!("there is no volume {name:?}, and createIfNotExists says not to make it");
            return Err(VolumeError::refused(VolumeProblem::NotFound, message));
        }
        self.make(name, ephemeral).map_err(|error| failed(io::Error::other(error)))?;
        self.files(name).map_err(failed)
    }

    fn files(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(self.directory.join(name), flags, Mode::empty())?;
        beneath::open(directory, Path::new("data"))
    }

    /// Makes the volume; one that somebody else made meanwhile is success.
    fn make(&self, name: &str, ephemeral: bool) -> Result<(), PathError> {
        let mut unfinished = OsString::from(UNFINISHED);
        unfinished.push(osb_api::SandboxId::random().to_string());
        let unfinished = self.directory.join(unfinished);
        let named = |error: io::Error| PathError::new("make", &unfinished, error);
        fs::create_dir(&unfinished, 0o700)?;
        fs::create_dir(unfinished.join("data"), 0o755)?;
        // Whatever the mask of this process takes away.
        fs::set_mode(unfinished.join("data"), 0o755)?;
        if self.owners != IdBase(0) {
            fs::chown(unfinished.join("data"), self.owners.0, self.owners.0)?;
        }
        let text = serde_json::to_vec(&Description { ephemeral }).map_err(io::Error::from);
        fs::write_whole(unfinished.join("volume.json"), &text.map_err(named)?, 0o600)?;
        let to = self.directory.join(name);
        match renameat_with(CWD, &unfinished, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => tree::remove(&unfinished),
            Err(error) => Err(named(error.into())),
        }
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, PathError> {
        let mut names = fs::names(&self.directory)?;
        names.retain(|name| is_volume_name(name));
        names.sort();
        Ok(names)
    }

    /// Whether the volume goes with the last sandbox that uses it. What cannot be read is kept.
    pub(crate) fn is_ephemeral(&self, name: &str) -> bool {
        let text = fs::read(self.directory.join(name).join("volume.json")).ok();
        let description = text.and_then(|text| serde_json::from_slice::<Description>(&text).ok());
        description.is_some_and(|description| description.ephemeral)
    }

    /// When the volume was made, if it is there: nothing beside its files changes later.
    pub(crate) fn made_at(&self, name: &str) -> Option<SystemTime> {
        let found = rustix::fs::lstat(self.directory.join(name)).ok()?;
        let seconds = Duration::from_secs(u64::try_from(found.st_mtime).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    }

    /// What the files of each of these volumes take, as far as that is soon told.
    pub(crate) fn sizes(&self, names: &[String]) -> io::Result<Vec<Option<u64>>> {
        self.sizes_within(names, MAX_ENTRIES, MAX_ENTRIES_OF_ONE)
    }

    /// The same of one volume, however long that takes.
    pub(crate) fn size(&self, name: &str) -> io::Result<Option<u64>> {
        let sizes = self.sizes_within(&[name.to_owned()], u32::MAX, u32::MAX)?;
        Ok(sizes.into_iter().flatten().next())
    }

    fn sizes_within(
        &self,
        names: &[String],
        mut left: u32,
        most_of_one: u32,
    ) -> io::Result<Vec<Option<u64>>> {
        confined::run(&self.directory, || {
            let size = |name: &String| {
                if !is_volume_name(name) {
                    return None;
                }
                let allowed = left.min(most_of_one);
                let mut unseen = allowed;
                let size = tree::size(self.files(name).ok()?, &mut unseen);
                left -= allowed - unseen;
                size
            };
            names.iter().map(size).collect()
        })
    }

    /// Takes the volume's name away and moves it to where it only waits to be deleted. Absence is
    /// success.
    pub(crate) fn discard(&self, name: &str, removed: &Path) -> Result<Option<PathBuf>, PathError> {
        if !is_volume_name(name) {
            return Ok(None);
        }
        let aside = removed.join(format!("volume-{}", osb_api::SandboxId::random()));
        fs::put_aside(self.directory.join(name), aside)
    }
}

#[cfg(test)]
mod tests {
    use osb_core::VolumeSource;

    use super::*;

    fn find(named: &Named, name: &str, create: bool) -> Result<OwnedFd, VolumeError> {
        let volume = Volume {
            source: VolumeSource::Named { name: name.to_owned(), create, ephemeral: false },
            sub_path: PathBuf::new(),
            at: "/data".into(),
            read_only: false,
        };
        named.find(&volume, name, create, false)
    }

    #[test]
    fn a_volume_is_made_once_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        let named = Named::open(place.path().join("volumes"), IdBase(0)).unwrap();
        assert!(find(&named, "a", false).is_err());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| find(&named, "a", true).unwrap());
            }
        });
        assert_eq!(fs::names(place.path().join("volumes")).unwrap(), ["a"]);
        assert!(find(&named, "a", false).is_ok());
        assert!(!named.is_ephemeral("a"));
    }

    #[test]
    fn what_a_volume_takes_is_told_if_it_has_few_files() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("volumes");
        let named = Named::open(directory.clone(), IdBase(0)).unwrap();
        for name in ["crowded", "small"] {
            find(&named, name, true).unwrap();
        }
        for number in 0..=10 {
            let at = directory.join("crowded/data").join(number.to_string());
            rustix::fs::symlink("nowhere", at).unwrap();
        }
        fs::write(directory.join("small/data/file"), vec![1; 1 << 20]).unwrap();
        fs::symlink(place.path(), directory.join("small/data/out")).unwrap();
        let wanted = ["crowded", "small", "missing", "../volumes"].map(str::to_owned);
        let sizes = named.sizes_within(&wanted, 12, 10).unwrap();
        let small = sizes[1].unwrap();
        assert!((1 << 20..2 << 20).contains(&small), "{small}");
        assert_eq!(sizes, [None, Some(small), None, None]);
        assert_eq!(named.sizes_within(&wanted, 11, 10).unwrap(), [None; 4]);
        assert!(named.sizes(&wanted).unwrap()[0].is_some());
        assert!(named.made_at("small").unwrap() > SystemTime::UNIX_EPOCH);
        assert_eq!(named.made_at("missing"), None);
    }

    #[test]
    fn what_a_crash_left_half_made_is_cleared_and_the_rest_kept() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("volumes");
        let named = Named::open(directory.clone(), IdBase(0)).unwrap();
        find(&named, "a", true).unwrap();
        fs::write(directory.join("a/data/file"), "kept").unwrap();
        fs::create_dir_all(directory.join(".new-x/data")).unwrap();
        let again = Named::open(directory.clone(), IdBase(0)).unwrap();
        assert_eq!(fs::names(&directory).unwrap(), ["a"]);
        assert_eq!(again.names().unwrap(), ["a"]);
        assert!(directory.join("a/data/file").exists());
    }

    #[test]
    fn no_name_leads_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let named = Named::open(place.path().join("volumes"), IdBase(0)).unwrap();
        for name in ["..", ".", "", "a/b", ".new-x", "../volumes"] {
            assert!(find(&named, name, true).is_err(), "{name:?} was accepted");
            assert!(named.discard(name, place.path()).unwrap().is_none(), "{name:?} was removed");
        }
    }
}
