//! Control groups, version 1 and 2.

mod alarm;
mod delegated;
mod limits;

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

pub use self::{
    alarm::Alarm,
    limits::{Limits, OpenLimits},
};

use crate::fs::{self, PathError};

/// How this machine arranges its control groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// This process may have none: nothing is limited, counted or stopped.
    None,
    /// One tree per controller; some may share theirs.
    V1 { trees: Controllers },
    /// One tree for all.
    V2 { tree: PathBuf },
}

/// A directory for each controller that a sandbox needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controllers {
    cpu: PathBuf,
    memory: PathBuf,
    pids: PathBuf,
    freezer: PathBuf,
    /// Where processor time is counted.
    accounting: PathBuf,
}

impl Controllers {
    fn same(path: PathBuf) -> Self {
        Self {
            cpu: path.clone(),
            memory: path.clone(),
            pids: path.clone(),
            freezer: path.clone(),
            accounting: path,
        }
    }

    fn below(&self, parent: &str, name: &str) -> Self {
        let below = |tree: &PathBuf| tree.join(parent).join(name);
        Self {
            cpu: below(&self.cpu),
            memory: below(&self.memory),
            pids: below(&self.pids),
            freezer: below(&self.freezer),
            accounting: below(&self.accounting),
        }
    }

    /// Each directory once.
    fn distinct(&self) -> Vec<&PathBuf> {
        let mut all = vec![&self.cpu, &self.memory, &self.pids, &self.freezer, &self.accounting];
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Layout {
    /// Finds the mounted trees, or says which controller is missing.
    pub fn find() -> Result<Self, io::Error> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(io::Error::other)?;
        Self::from_mountinfo(&mounts, &|tree| {
            fs::read_to_string(tree.join("cgroup.controllers")).unwrap_or_default()
        })
    }

    fn from_mountinfo(
        mounts: &str,
        v2_controllers: &dyn Fn(&Path) -> String,
    ) -> Result<Self, io::Error> {
        let mut v1: Vec<(PathBuf, String)> = Vec::new();
        for line in mounts.lines() {
            let Some((place, source)) = line.split_once(" - ") else { continue };
            let Some(at) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut source = source.split(' ');
            match source.next() {
                Some("cgroup2") => {
                    let has = v2_controllers(&at);
                    let has: Vec<&str> = has.split_whitespace().collect();
                    if ["cpu", "memory", "pids"].iter().all(|name| has.contains(name)) {
                        return Ok(Self::V2 { tree: at });
                    }
                }
                Some("cgroup") => v1.push((at, source.nth(1).unwrap_or_default().to_owned())),
                _ => {}
            }
        }
        let find = |name: &str| {
            let tree =
                v1.iter().find(|(_, options)| options.split(',').any(|option| option == name));
            tree.map(|(at, _)| at.clone()).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("the cgroup controller {name} is not mounted"),
                )
            })
        };
        let trees = Controllers {
            cpu: find("cpu")?,
            memory: find("memory")?,
            pids: find("pids")?,
            freezer: find("freezer")?,
            // Without it a sandbox runs as well; only its processor time is not known.
            accounting: find("cpuacct").or_else(|_| find("cpu"))?,
        };
        Ok(Self::V1 { trees })
    }

    /// Prepares the group that will hold all of ours.
    pub fn prepare(&self, parent: &str) -> Result<(), PathError> {
        match self {
            Self::None => Ok(()),
            Self::V1 { trees } => {
                trees
                    .distinct()
                    .iter()
                    .try_for_each(|tree| fs::create_dir_all(tree.join(parent)))?;
                // The kernel rewrites itself when the first group in the system counts TCP memory,
                // and back with the last, which takes milliseconds: let this one be always there.
                let memory = trees.memory.join(parent);
                match set(&memory, "memory.kmem.tcp.limit_in_bytes", i64::MAX) {
                    Err(error) if is_absent(&error) => Ok(()),
                    result => result,
                }
            }
            Self::V2 { tree } => {
                fs::create_dir_all(tree.join(parent))?;
                delegate(&tree.join(parent))
            }
        }
    }

    /// Removes the group that held all of ours and those directly below it, if nothing is in them
    /// any more.
    pub fn dissolve(&self, parent: &str) {
        // What is in use, or gone, stays as it is.
        for name in self.names(parent).unwrap_or_default() {
            self.group(parent, &name).remove().ok();
        }
        self.group(parent, "").remove().ok();
    }

    /// The names of the groups directly below `parent`, those half made included.
    pub fn names(&self, parent: &str) -> Result<BTreeSet<String>, PathError> {
        let mut found = BTreeSet::new();
        for tree in self.trees() {
            let at = tree.join(parent);
            // A group has files of its own beside the groups below it.
            found.extend(fs::names(&at)?.into_iter().filter(|name| at.join(name).is_dir()));
        }
        Ok(found)
    }

    fn trees(&self) -> Vec<&PathBuf> {
        match self {
            Self::None => Vec::new(),
            Self::V1 { trees } => trees.distinct(),
            Self::V2 { tree } => vec![tree],
        }
    }

    /// The group `parent/name`, which may or may not exist.
    pub fn group(&self, parent: &str, name: &str) -> Group {
        let (version, trees) = match self {
            Self::None => return Group::none(),
            Self::V1 { trees } => (Version::V1, trees.clone()),
            Self::V2 { tree } => (Version::V2, Controllers::same(tree.clone())),
        };
        Group { version, at: trees.below(parent, name) }
    }
}

/// Which of the two kinds of files a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// It has none, for it is no group.
    None,
    V1,
    V2,
}

/// One control group: a directory, or under version 1 one per controller.
#[derive(Debug, Clone)]
pub struct Group {
    version: Version,
    at: Controllers,
}

impl Group {
    /// What stands for a group where there is none: limits are not kept, and nothing is known of it.
    fn none() -> Self {
        Self { version: Version::None, at: Controllers::same(PathBuf::from("/nonexistent")) }
    }

    /// Whether it is one at all.
    pub fn is_real(&self) -> bool {
        self.version != Version::None
    }

    /// Makes the group with its limits.
    pub fn create(&self, limits: &Limits) -> Result<(), PathError> {
        if !self.is_real() {
            return Ok(());
        }
        for path in self.at.distinct() {
            fs::create_dir_all(path)?;
        }
        match (self.limit(limits), self.at.memory.parent()) {
            // Whoever else manages the tree may have taken the controllers from below its root.
            (Err(error), Some(parent)) if self.version == Version::V2 && is_absent(&error) => {
                delegate(parent)?;
                self.limit(limits)
            }
            (result, _) => result,
        }
    }

    /// The files into which a process with one thread writes `0` to join the group.
    ///
    /// Through `tasks` that thread goes alone, and the kernel need not hold up every fork on the
    /// machine for it, which takes up to 20 ms (the lock of `cgroup.procs` waits for RCU).
    pub fn doors(&self) -> Vec<PathBuf> {
        let door = match self.version {
            Version::None => return Vec::new(),
            Version::V1 => "tasks",
            Version::V2 => "cgroup.procs",
        };
        self.at.distinct().into_iter().map(|path| path.join(door)).collect()
    }

    /// Whether anything of the group is there.
    pub fn exists(&self) -> bool {
        self.at.distinct().iter().any(|path| path.exists())
    }

    /// The directory of the group, to lock it or to note something on it.
    pub fn open(&self) -> Result<File, PathError> {
        fs::open(&self.at.pids)
    }

    /// The processes in the group; none if it does not exist.
    pub fn processes(&self) -> Vec<Pid> {
        let procs = fs::read_to_string(self.at.pids.join("cgroup.procs")).unwrap_or_default();
        procs.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw).collect()
    }

    /// Stops every process of the group where it stands.
    pub fn freeze(&self) -> Result<(), PathError> {
        match self.version {
            Version::None => Err(self.absence()),
            Version::V1 => set(&self.at.freezer, "freezer.state", "FROZEN"),
            Version::V2 => set(&self.at.freezer, "cgroup.freeze", 1),
        }
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<(), PathError> {
        match self.version {
            Version::None => Err(self.absence()),
            Version::V1 => set(&self.at.freezer, "freezer.state", "THAWED"),
            Version::V2 => set(&self.at.freezer, "cgroup.freeze", 0),
        }
    }

    /// Whether the group is stopped or about to be.
    pub fn is_frozen(&self) -> bool {
        let (file, thawed) = match self.version {
            Version::None => return false,
            Version::V1 => ("freezer.state", "THAWED"),
            Version::V2 => ("cgroup.freeze", "0"),
        };
        fs::read_to_string(self.at.freezer.join(file)).is_ok_and(|text| text.trim() != thawed)
    }

    /// Whether every process of the group has stopped.
    pub fn is_still(&self) -> bool {
        let (file, stopped) = match self.version {
            Version::None => return false,
            Version::V1 => ("freezer.state", "FROZEN"),
            Version::V2 => ("cgroup.events", "frozen 1"),
        };
        let text = fs::read_to_string(self.at.freezer.join(file)).unwrap_or_default();
        text.lines().any(|line| line.trim() == stopped)
    }

    /// How many processes of the group the kernel has ended for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::None => return 0,
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.at.memory.join(file)).unwrap_or_default();
        field(&text, "oom_kill").unwrap_or(0)
    }

    /// What the group has used and uses now.
    pub fn usage(&self) -> Result<Usage, PathError> {
        let (cpu, memory, peak, prefix) = match self.version {
            Version::None => return Err(self.absence()),
            Version::V1 => {
                let memory = ("memory.usage_in_bytes", "memory.max_usage_in_bytes");
                ("cpuacct.usage", memory.0, memory.1, "total_")
            }
            Version::V2 => ("cpu.stat", "memory.current", "memory.peak", ""),
        };
        let read = |at: &Path, file: &str| fs::read_to_string(at.join(file));
        let cpu = read(&self.at.accounting, cpu)?;
        let stat = read(&self.at.memory, "memory.stat")?;
        let cached = ["active_file", "inactive_file"];
        let cached = cached.iter().filter_map(|cache| field(&stat, &format!("{prefix}{cache}")));
        let memory = number(&read(&self.at.memory, memory)?).unwrap_or_default();
        Ok(Usage {
            cpu: match self.version {
                Version::None => Duration::ZERO,
                Version::V1 => Duration::from_nanos(number(&cpu).unwrap_or_default()),
                Version::V2 => Duration::from_micros(field(&cpu, "usage_usec").unwrap_or_default()),
            },
            memory: memory.saturating_sub(cached.sum()),
            memory_peak: read(&self.at.memory, peak).ok().and_then(|text| number(&text)),
            processes: number(&read(&self.at.pids, "pids.current")?).unwrap_or_default(),
        })
    }

    /// Rings when the group may have run out of memory. To be called within a tokio runtime.
    pub fn memory_alarm(&self) -> Result<Alarm, PathError> {
        match self.version {
            Version::None => Err(self.absence()),
            Version::V1 => Alarm::by_event(&self.at.memory),
            Version::V2 => Alarm::by_file(&self.at.memory),
        }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The files that tell what the group uses, open for reading: processor time, memory, and what
    /// that memory consists of.
    pub fn counters(&self) -> Result<[File; 3], PathError> {
        let (cpu, memory) = match self.version {
            Version::None => return Err(self.absence()),
            Version::V1 => ("cpuacct.usage", "memory.usage_in_bytes"),
            Version::V2 => ("cpu.stat", "memory.current"),
        };
        Ok([
            fs::open(self.at.accounting.join(cpu))?,
            fs::open(self.at.memory.join(memory))?,
            fs::open(self.at.memory.join("memory.stat"))?,
        ])
    }

    fn absence(&self) -> PathError {
        PathError::new("use", &self.at.memory, io::ErrorKind::NotFound.into())
    }

    /// Removes the group, which must have no processes. Absence is success.
    pub fn remove(&self) -> io::Result<()> {
        for path in self.at.distinct() {
            match rustix::fs::rmdir(path) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What a group has used since it was made, and uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    /// Without what is kept of files and can be dropped at any time.
    pub memory: u64,
    /// With it. Kernels before 5.19 do not tell it under version 2.
    pub memory_peak: Option<u64>,
    /// Threads included.
    pub processes: u64,
}

/// A file that is one number.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A line of a name and a number.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?))
}

/// Lets the groups below `parent` have limits of their own (version 2). A controller comes down
/// from the root of the tree, one group after the other.
fn delegate(parent: &Path) -> Result<(), PathError> {
    let switches = parent.ancestors().map(|group| group.join("cgroup.subtree_control"));
    let mut switches: Vec<_> = switches.take_while(|switch| switch.exists()).collect();
    while let Some(switch) = switches.pop() {
        // Where only a part of the tree is ours, it was brought down to that part by somebody else.
        if rustix::fs::access(&switch, rustix::fs::Access::WRITE_OK).is_ok() {
            fs::write(switch, "+cpu +memory +pids")?;
        }
    }
    Ok(())
}

fn set(group: &Path, file: &str, value: impl fmt::Display) -> Result<(), PathError> {
    fs::write(group.join(file), format!("{value}"))
}

fn is_absent(error: &PathError) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests;
