//! The image `host`: the host's own programs, and nothing else of the host.
//!
//! `/usr` (and `/bin`, `/lib` where they are not links into it) is shown read-only. Everything
//! else is a small layer that we build: empty directories, a generated `/etc` with two users, and
//! those files of the host's `/etc` that programs need to work and that everybody may read.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use osb_sys::{
    fs::{self, PathError},
    tree,
    userns::IdBase,
};

use crate::{Rootfs, View, etc};

/// Where a system keeps programs: directories to show, or links to repeat.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Directories of the layer, with their modes.
const DIRECTORIES: [(&str, u32); 24] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/pam.d", 0o755),
    ("etc/ssl", 0o755),
    ("etc/pki", 0o755),
    ("etc/pki/tls", 0o755),
    ("home", 0o755),
    ("home/sandbox", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("opt/opensandbox", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

const LINKS: [(&str, &str); 3] =
    [("var/run", "/run"), ("var/lock", "/run/lock"), ("etc/mtab", "/proc/self/mounts")];

/// What programs look up in `/etc`, and that holds no secret on any system we know.
const FROM_ETC: &[&str] = &[
    "alternatives",
    "alpine-release",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "python3",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "system-release",
    "terminfo",
    "timezone",
];

/// Families whose names carry a version, such as `java-17-openjdk` and `python3.11`.
const FROM_ETC_PREFIXES: &[&str] = &["java-", "python3."];

/// Beside [`etc::FILES`].
const GENERATED: [(&str, &str); 5] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    ("etc/shadow", "root:*:::::::\nsandbox:*:::::::\nnobody:*:::::::\n"),
    // Root may become anybody; nobody has a password.
    (
        "etc/pam.d/other",
        "auth sufficient pam_rootok.so\n\
         auth required pam_deny.so\n\
         account required pam_permit.so\n\
         password required pam_deny.so\n\
         session required pam_permit.so\n",
    ),
    // execd makes its file of assignments where there is none, but the first command would wait for
    // that.
    ("opt/opensandbox/.env", ""),
];

/// The user `sandbox`, in the ids of the layer.
const SANDBOX_USER: u32 = 1000;

/// Builds the layer below `directory` unless an equal one is there. Its owners are counted from
/// `owners`.
///
/// A layer is never changed once it has its name: sandboxes may be stacked on it.
pub(crate) fn prepare(directory: &Path, owners: IdBase) -> Result<Rootfs, PathError> {
    let sources = sources()?;
    let layer = directory.join(format!("{:016x}", fingerprint(&sources)));
    if !layer.exists() {
        fs::create_dir_all(directory)?;
        let partial = layer.with_extension("partial");
        tree::remove(&partial)?;
        build(&partial, &sources, owners)?;
        fs::rename(&partial, &layer)?;
    }
    let shown = PROGRAMS.iter().map(PathBuf::from).filter(|path| is_directory(path));
    Ok(Rootfs { layers: vec![layer], views: shown.map(|path| View { path }).collect() })
}

/// Something to be made in the layer, at a path below it.
struct Source {
    at: PathBuf,
    what: What,
    /// What tells that the original has changed.
    stamp: (u64, i64, i64),
}

enum What {
    Directory,
    Link(PathBuf),
    Copy(PathBuf),
}

fn sources() -> Result<Vec<Source>, PathError> {
    let mut found = Vec::new();
    for program in PROGRAMS {
        let path = Path::new(program);
        let at = path.strip_prefix("/").unwrap_or(path).to_owned();
        if let Ok(target) = path.read_link() {
            found.push(Source { at, what: What::Link(target), stamp: (0, 0, 0) });
        } else if path.is_dir() {
            found.push(Source { at, what: What::Directory, stamp: (0, 0, 0) });
        }
    }
    let versioned = fs::names("/etc")?
        .into_iter()
        .filter(|name| FROM_ETC_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    let mut names: Vec<String> =
        FROM_ETC.iter().map(|name| (*name).to_owned()).chain(versioned).collect();
    names.sort_unstable();
    let mut pending: Vec<PathBuf> =
        names.iter().rev().map(|name| Path::new("etc").join(name)).collect();
    while let Some(at) = pending.pop() {
        let path = Path::new("/").join(&at);
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let kind = metadata.file_type();
        // Only what every user of the host may read.
        if kind.is_symlink() {
            if let Ok(target) = path.read_link() {
                found.push(Source { at, what: What::Link(target), stamp });
            }
        } else if kind.is_dir() && metadata.mode() & 0o005 == 0o005 {
            let mut children = fs::names(&path)?;
            children.sort_unstable();
            pending.extend(children.iter().rev().map(|name| at.join(name)));
            found.push(Source { at, what: What::Directory, stamp: (0, 0, 0) });
        } else if kind.is_file() && metadata.mode() & 0o004 != 0 {
            found.push(Source { at, what: What::Copy(path), stamp });
        }
    }
    Ok(found)
}

/// Equal for equal layers. Not against forgery: its input is the host's own files.
fn fingerprint(sources: &[Source]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (DIRECTORIES, LINKS, GENERATED, etc::FILES).hash(&mut hasher);
    for source in sources {
        (&source.at, source.stamp).hash(&mut hasher);
        match &source.what {
            What::Directory => 0.hash(&mut hasher),
            What::Link(target) => target.hash(&mut hasher),
            What::Copy(path) => path.hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn build(root: &Path, sources: &[Source], IdBase(owner): IdBase) -> Result<(), PathError> {
    fs::create_dir(root, 0o755)?;
    for (at, mode) in DIRECTORIES {
        fs::create_dir(root.join(at), mode)?;
        // The process's mask has taken bits away.
        fs::set_mode(root.join(at), mode)?;
    }
    for (at, target) in LINKS {
        fs::symlink(target, root.join(at))?;
    }
    for (at, content) in generated() {
        fs::write(root.join(at), content)?;
        fs::set_mode(root.join(at), if at == "etc/shadow" { 0o640 } else { 0o644 })?;
    }
    for source in sources {
        let at = root.join(&source.at);
        match &source.what {
            What::Directory => {
                fs::create_dir_all(&at)?;
                fs::set_mode(&at, 0o755)?;
            }
            What::Link(target) => fs::symlink(target, &at)?,
            What::Copy(path) => {
                fs::write(&at, fs::read(path)?)?;
                fs::set_mode(&at, 0o644)?;
            }
        }
    }
    let all = DIRECTORIES.iter().map(|(at, _)| Path::new(at));
    let all = all.chain(LINKS.iter().map(|(at, _)| Path::new(at)));
    let all = all.chain(generated().map(|(at, _)| Path::new(at)));
    for at in all.chain(sources.iter().map(|source| source.at.as_path())) {
        fs::chown(root.join(at), owner, owner)?;
    }
    let user = owner + SANDBOX_USER;
    fs::chown(root.join("home/sandbox"), user, user)?;
    fs::set_mode(root, 0o755)?;
    fs::chown(root, owner, owner)
}

fn generated() -> impl Iterator<Item = (&'static str, &'static str)> {
    GENERATED.into_iter().chain(etc::FILES)
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_is_built_once_and_holds_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let first = prepare(directory.path(), IdBase(0)).unwrap();
        let again = prepare(directory.path(), IdBase(0)).unwrap();
        assert_eq!(first, again);
        let layer = &first.layers[0];
        let passwd = fs::read_to_string(layer.join("etc/passwd")).unwrap();
        assert_eq!(passwd.lines().count(), 3, "{passwd}");
        assert!(!layer.join("etc/ssh").exists() && !layer.join("etc/ssl/private").exists());
        assert!(layer.join("etc/ld.so.cache").exists() || !Path::new("/etc/ld.so.cache").exists());
        assert!(first.views.iter().any(|view| view.path == Path::new("/usr")));
        assert_eq!(layer.join("tmp").metadata().unwrap().mode() & 0o7777, 0o1777);
        assert_eq!(fs::names(directory.path()).unwrap().len(), 1);
    }
}
