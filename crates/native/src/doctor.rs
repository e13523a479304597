//! What this host must have, and how to get what is missing.

mod counters;
mod rights;

use std::{io, path::Path, sync::Arc};

use osb_api::SandboxId;
use osb_core::{Chain, ImageName, Runtime, SandboxSpec, Token};
use osb_sys::{
    cgroup::Layout,
    fs,
    rootless::{Obstacle, Rights},
};

use crate::{Config, Native, disk};

/// The oldest kernel that stacks an overlay on layers with translated owners.
const OLDEST_KERNEL: (u32, u32) = (5, 19);

/// One thing that the native runtime needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is there; the text says what was found.
    Ok(String),
    /// It is not, and the server does without; the texts say what is weaker then and how to get it.
    Weaker { found: String, remedy: String },
    /// It is not; the texts say what was found and how to get it.
    Missing { found: String, remedy: String },
}

impl Check {
    pub fn is_ok(&self) -> bool {
        !matches!(self.outcome, Outcome::Missing { .. })
    }

    fn new(name: &'static str, result: Result<String, (String, &str)>) -> Self {
        let outcome = match result {
            Ok(found) => Outcome::Ok(found),
            Err((found, remedy)) => Outcome::Missing { found, remedy: remedy.to_owned() },
        };
        Self { name, outcome }
    }
}

/// Looks at everything that can be seen without making a sandbox. `obstacle` is what kept a server
/// that is not root's from becoming root of a namespace, if anything did.
pub fn doctor(data_dir: &Path, obstacle: Option<&Obstacle>) -> Vec<Check> {
    let rights = Rights::current().unwrap_or(Rights::User);
    let mut checks = rights::rights(rights, obstacle);
    if obstacle.is_some() {
        return checks;
    }
    checks.extend([
        Check::new("kernel", kernel(&rustix::system::uname().release().to_string_lossy())),
        Check::new("user namespaces", user_namespaces()),
        Check::new("overlay file system", overlay()),
        Check { name: "control groups", outcome: rights::groups(rights) },
        Check::new("data directory", data(data_dir)),
        Check { name: "disk limits", outcome: disk_limits(data_dir, rights) },
        Check { name: "numbers of the host", outcome: counters::outcome() },
        Check { name: "network", outcome: network(osb_sys::outlets::try_apart()) },
        Check { name: "landlock", outcome: landlock(osb_sys::confined::version()) },
    ]);
    checks
}

/// Makes a sandbox in a data directory of its own and removes it again.
pub async fn trial(config: Config, execd: &[u8]) -> Check {
    let (directory, parent) = (config.data_dir.clone(), config.cgroup_parent.clone());
    let outcome = try_sandbox(config, execd).await;
    let cleared = osb_sys::tree::remove(&directory);
    if let Ok(layout) = Layout::usable() {
        layout.dissolve(&parent);
    }
    let remedy = "mend what is named here; the lines above may say how";
    Check::new(
        "a sandbox starts",
        match (outcome, cleared) {
            (Ok(took), Ok(())) => Ok(took),
            (Err(found), _) => Err((found, remedy)),
            (_, Err(error)) => Err((Chain(&error).to_string(), remedy)),
        },
    )
}

async fn try_sandbox(config: Config, execd: &[u8]) -> Result<String, String> {
    let native: Arc<Native> =
        Native::start(config, execd).await.map_err(|error| Chain(&error).to_string())?;
    let spec = SandboxSpec::new(
        SandboxId::random(),
        ImageName::new("host"),
        vec!["sleep".to_owned(), "60".to_owned()],
        Token::new("trial"),
    );
    let begun = std::time::Instant::now();
    let made = native.ensure(&spec).await.map_err(|error| Chain(&error).to_string());
    let took = begun.elapsed();
    let removed = native.remove(spec.id).await.map_err(|error| Chain(&error).to_string());
    // The caller deletes the directory: two who delete the same files get into each other's way.
    native.deleted().await;
    made.and(removed)?;
    Ok(format!("in {:.1} ms", took.as_secs_f64() * 1000.0))
}

type Finding = Result<String, (String, &'static str)>;

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    };
    let found = format!("Linux {release}");
    if version >= OLDEST_KERNEL {
        Ok(found)
    } else {
        Err((found, "install Linux 5.19 or newer; Debian 12 and Ubuntu 22.10 have it"))
    }
}

fn user_namespaces() -> Finding {
    let remedy = "enable them: sysctl -w user.max_user_namespaces=65536";
    match fs::read_to_string("/proc/sys/user/max_user_namespaces") {
        Ok(most) if most.trim() == "0" => Err(("none are allowed".to_owned(), remedy)),
        Ok(most) => Ok(format!("up to {}", most.trim())),
        Err(_) => Err((
            "this kernel has none".to_owned(),
            "install a kernel with CONFIG_USER_NS, as all distributions ship",
        )),
    }
}

fn overlay() -> Finding {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().last() == Some("overlay")) {
        Ok("known to the kernel".to_owned())
    } else {
        Err(("not known to the kernel".to_owned(), "load it: modprobe overlay"))
    }
}

/// Whether sandboxes' files can live there: overlays cannot keep theirs on every file system.
fn data(data_dir: &Path) -> Finding {
    /// Magic numbers of statfs(2).
    const UNFIT: [(i64, &str); 4] =
        [(0x794c_7630, "overlay"), (0x6969, "nfs"), (0x6573_5546, "fuse"), (0x0102_1997, "9p")];
    let existing =
        data_dir.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("/"));
    let stat = match rustix::fs::statfs(existing) {
        Ok(stat) => stat,
        Err(error) => {
            return Err((error.to_string(), "choose another with --data-dir"));
        }
    };
    match UNFIT.iter().find(|(magic, _)| *magic == stat.f_type) {
        Some((_, name)) => Err((
            format!("{} is on {name}", data_dir.display()),
            "choose a directory on ext4, xfs, btrfs or tmpfs with --data-dir",
        )),
        None => Ok(data_dir.display().to_string()),
    }
}

/// Whether what sandboxes send can be answered for.
fn network(tried: io::Result<()>) -> Outcome {
    match tried {
        Ok(()) => Outcome::Ok("what sandboxes send can be handed to the server".to_owned()),
        Err(error) => Outcome::Weaker {
            found: format!("none: nothing leaves a sandbox, as the packet filter fails: {error}"),
            remedy: "as root: modprobe -a nf_tables nft_tproxy nft_reject_inet; the kernel needs \
                     CONFIG_NFT_TPROXY, CONFIG_NFT_REJECT and IPv6"
                .to_owned(),
        },
    }
}

fn landlock(version: Option<u32>) -> Outcome {
    match version {
        Some(version) => Outcome::Ok(format!("version {version}")),
        None => Outcome::Weaker {
            found: "not there: the server deletes sandboxes' files with all its rights".to_owned(),
            remedy: "boot with landlock in the list of lsm=, on a kernel that is built with it"
                .to_owned(),
        },
    }
}

/// Whether sandboxes can be kept from filling the disk, for those who ask for it.
fn disk_limits(data_dir: &Path, rights: Rights) -> Outcome {
    match disk::describe(data_dir, rights) {
        Ok(found) => Outcome::Ok(found),
        Err(disk::Unable { found, remedy }) => {
            let found = format!("none: sandboxes that ask for one are refused, as {found}");
            Outcome::Weaker { found, remedy: remedy.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_does_without_does_not_stop_it() {
        for version in [None, Some(7)] {
            assert!(Check { name: "landlock", outcome: landlock(version) }.is_ok());
        }
        for tried in [Ok(()), Err(io::Error::from(io::ErrorKind::Unsupported))] {
            assert!(Check { name: "network", outcome: network(tried) }.is_ok());
        }
    }

    #[test]
    fn old_kernels_are_told_apart() {
        for good in ["6.18.44-fc", "5.19.0", "6.1.0-40-amd64", "10.0"] {
            assert!(kernel(good).is_ok(), "{good}");
        }
        for bad in ["5.18.19", "4.19.0-27-amd64", "5.4", "", "x.y"] {
            assert!(kernel(bad).is_err(), "{bad}");
        }
    }
}
