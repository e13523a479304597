//! What every sandbox finds in `/etc`, whatever its image.
//!
//! It is a layer of its own, on top of those of the image: an image that has these files has them for
//! another machine, and one may have anything in their place.

use std::path::{Path, PathBuf};

use osb_sys::{
    fs::{self, PathError},
    tree,
    userns::IdBase,
};

/// The files, and what is in them.
pub(crate) const FILES: [(&str, &str); 3] = [
    (
        "etc/hosts",
        "127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         198.18.0.1\tsandbox\n\
         fd53::1\tsandbox\n",
    ),
    ("etc/hostname", "sandbox\n"),
    // Nobody has this address: whatever is sent there leaves the sandbox, and the server answers.
    ("etc/resolv.conf", "nameserver 198.18.0.2\noptions timeout:2 attempts:3\n"),
];

/// Changes with [`FILES`].
const VERSION: &str = "1";

/// Builds the layer below `directory` unless it is there. Its owners are counted from `owners`. It is never
/// changed once it has its name: sandboxes may be stacked on it.
pub(crate) fn prepare(directory: &Path, owners: IdBase) -> Result<PathBuf, PathError> {
    let layer = directory.join(format!("{VERSION}-{}", owners.0));
    if layer.exists() {
        return Ok(layer);
    }
    fs::create_dir_all(directory)?;
    let partial = layer.with_extension("partial");
    tree::remove(&partial)?;
    for at in ["", "etc"] {
        fs::create_dir(partial.join(at), 0o755)?;
        // The process's mask may have taken bits away.
        fs::set_mode(partial.join(at), 0o755)?;
        fs::chown(partial.join(at), owners.0, owners.0)?;
    }
    for (at, content) in FILES {
        fs::write(partial.join(at), content)?;
        fs::set_mode(partial.join(at), 0o644)?;
        fs::chown(partial.join(at), owners.0, owners.0)?;
    }
    fs::rename(&partial, &layer)?;
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_is_built_once_and_has_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let owners = IdBase(rustix::process::geteuid().as_raw());
        let layer = prepare(directory.path(), owners).unwrap();
        assert_eq!(prepare(directory.path(), owners).unwrap(), layer);
        assert_eq!(fs::names(directory.path()).unwrap().len(), 1);
        assert_eq!(fs::names(&layer).unwrap(), ["etc"]);
        assert_eq!(fs::names(layer.join("etc")).unwrap().len(), FILES.len());
    }
}
