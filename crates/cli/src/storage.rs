//! The table `[storage]` of the configuration file: what of the host sandboxes may be shown.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Storage {
    /// Directories of the host that a sandbox may have as volumes, with all below them; none if
    /// absent. Since 0.1.
    #[serde(default)]
    allowed_host_paths: Vec<PathBuf>,
}

impl Storage {
    /// The directories, if each can be meant. The server's own data is nobody's volume.
    pub(crate) fn host_paths(self, data_dir: &Path) -> Result<Vec<PathBuf>, Failure> {
        // Where it really is; it may not be there yet.
        let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let real = data_dir.canonicalize().unwrap_or_else(|_| data_dir.clone());
        for path in &self.allowed_host_paths {
            let named = |problem: &str| {
                Failure::Usage(format!("allowed-host-paths: {} {problem}", path.display()))
            };
            let mut parts = path.components();
            let is_plain = parts.next() == Some(Component::RootDir)
                && parts.all(|part| matches!(part, Component::Normal(_)));
            if !is_plain || path == Path::new("/") {
                return Err(named("must be an absolute path without `..`, and not the root"));
            }
            if [&data_dir, &real]
                .iter()
                .any(|ours| ours.starts_with(path) || path.starts_with(ours))
            {
                return Err(named(&format!(
                    "holds files of the server itself, which are in {}",
                    real.display()
                )));
            }
            // Somebody who may change a link on the way could make it lead anywhere.
            if path.canonicalize().is_ok_and(|real| real != *path) {
                return Err(named("has a symbolic link in it: write where it leads"));
            }
        }
        Ok(self.allowed_host_paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, data_dir: &Path) -> Result<Vec<PathBuf>, String> {
        let storage: Storage = toml::from_str(text).map_err(|error| error.to_string())?;
        storage.host_paths(data_dir).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn directories_are_paths_from_the_root() {
        let data = Path::new("/var/lib/opensandbox");
        let paths = check("allowed-host-paths = ['/srv/data', '/home/ada/']", data).unwrap();
        assert_eq!(paths, ["/srv/data", "/home/ada"].map(PathBuf::from));
        assert!(check("", data).unwrap().is_empty());
    }

    #[test]
    fn what_would_open_the_host_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let data = place.join("data");
        osb_sys::fs::create_dir_all(&data).unwrap();
        osb_sys::fs::symlink("/etc", place.join("link")).unwrap();
        let of = |path: &Path| format!("allowed-host-paths = ['{}']", path.display());
        for path in [
            Path::new("/"),
            Path::new("srv"),
            Path::new("/srv/../etc"),
            &place,
            &data,
            &data.join("native"),
            &place.join("link"),
        ] {
            assert!(check(&of(path), &data).is_err(), "{} was accepted", path.display());
        }
        assert!(check(&of(&place.join("other")), &data).is_ok());
        assert!(check("allowed-host-path = []", &data).is_err());
    }
}
