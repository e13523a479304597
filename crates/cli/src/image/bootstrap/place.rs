use std::path::{Path, PathBuf};

use osb_sys::{
    fs::{self, PathError},
    tree,
};
use rustix::mount::{UnmountFlags, unmount};

/// Where directories are that may become large.
const AROUND: &str = "/var/tmp";

/// A directory that is gone afterwards, with what was mounted in it.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
}

impl Place {
    pub(super) fn make() -> Result<Self, PathError> {
        let made = tempfile::Builder::new().prefix("osb-bootstrap-").tempdir_in(AROUND);
        let made = made.map_err(|error| PathError::new("make a directory in", AROUND, error))?;
        let path = made.path().canonicalize();
        let path = path.map_err(|error| PathError::new("find", made.path(), error))?;
        fs::set_mode(&path, 0o755)?;
        // From here on it is removed with an eye on mounts.
        drop(made.keep());
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The last one mounted covers the others.
        for mount in mounts(&self.path).iter().rev() {
            unmount(mount, UnmountFlags::DETACH).ok();
        }
        // What is still mounted there is not ours to remove.
        if mounts(&self.path).is_empty() {
            drop(tree::remove(&self.path));
        }
    }
}

/// What is mounted below a directory, which has no odd characters in its path.
fn mounts(directory: &Path) -> Vec<PathBuf> {
    // Whoever cannot say what is mounted has to assume something.
    let Ok(all) = fs::read_to_string("/proc/self/mountinfo") else {
        return vec![directory.to_owned()];
    };
    below(&all, directory)
}

fn below(mountinfo: &str, directory: &Path) -> Vec<PathBuf> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    places.filter(|place| place.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use osb_core::testkit;
    use rustix::mount::{MountFlags, mount};

    use super::*;

    #[test]
    fn mounts_are_known_by_their_places() {
        let info = "20 1 8:1 / / rw - ext4 /dev/a rw\n\
                    30 20 0:5 / /var/tmp/x/proc rw - proc proc rw\n\
                    31 20 0:6 / /var/tmp/xy rw - tmpfs tmpfs rw\n";
        assert_eq!(below(info, Path::new("/var/tmp/x")), [Path::new("/var/tmp/x/proc")]);
    }

    #[test]
    fn what_is_mounted_in_it_loses_nothing() {
        if !testkit::required("root", rustix::process::geteuid().is_root()) {
            return;
        }
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        let place = Place::make().unwrap();
        let (path, inner) = (place.path().to_owned(), place.path().join("inner"));
        fs::create_dir_all(&inner).unwrap();
        mount(outside.path(), &inner, "", MountFlags::BIND, None).unwrap();
        assert_eq!(mounts(&path), [inner]);
        drop(place);
        assert!(!path.exists() && outside.path().join("precious").exists());
    }
}
