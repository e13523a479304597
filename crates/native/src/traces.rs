//! What sandboxes leave on a host, looked up in the host itself.
//!
//! Mounts are not among it: every mount of a sandbox is in a namespace of its own or has no place
//! at all, and goes with the last process that has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use osb_api::SandboxId;
use osb_sys::{
    fs::{self, PathError},
    loop_device,
    rootless::Rights,
};

use crate::{Config, layout, native::tag};

/// The traces of the sandboxes of one data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    /// The control groups, and how many processes are in each.
    groups: BTreeMap<String, usize>,
    /// Those of sandboxes, and what is half made or half deleted. Whole snapshots and volumes are
    /// not among them: they are kept.
    directories: BTreeSet<String>,
    /// Block devices whose file is or was in the data directory.
    devices: BTreeSet<String>,
}

impl Traces {
    /// Looks for everything that is there.
    pub fn find(config: &Config) -> Result<Self, PathError> {
        let names = |part: &str| fs::names(config.data_dir.join(part));
        let mut directories = BTreeSet::new();
        for part in ["sandboxes", "pool"] {
            let names = names(part)?.into_iter();
            directories.extend(names.filter(|name| name.parse::<SandboxId>().is_ok()));
        }
        for part in ["unfinished", "removed"] {
            directories.extend(names(part)?);
        }
        // The kernel names the files of devices without any link.
        let real = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
        Ok(Self {
            groups: groups(config, &directories)?,
            directories,
            devices: loop_device::below(&real)?.into_iter().collect(),
        })
    }

    /// How much of this is not in `other`.
    pub(crate) fn count_without(&self, other: &Self) -> Count {
        let gone = self.groups.iter().filter(|(name, _)| !other.groups.contains_key(*name));
        let processes: Vec<_> = gone.map(|(_, processes)| *processes).collect();
        Count {
            processes: processes.iter().sum(),
            groups: processes.len(),
            directories: self.directories.difference(&other.directories).count(),
            devices: self.devices.difference(&other.devices).count(),
        }
    }

    /// Those of sandboxes that are among `ids`, whose groups have these names.
    pub(crate) fn of(&self, ids: &BTreeSet<SandboxId>, groups: &BTreeSet<String>) -> Self {
        let is_among = |name: &str| name.parse().is_ok_and(|id| ids.contains(&id));
        let mut own = self.clone();
        own.groups.retain(|name, _| groups.contains(name));
        own.directories.retain(|name| is_among(name));
        own.devices.retain(|file| file.split('/').any(is_among));
        own
    }
}

/// How many traces of each kind there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub processes: usize,
    pub groups: usize,
    pub directories: usize,
    pub devices: usize,
}

impl Count {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            processes: self.processes + other.processes,
            groups: self.groups + other.groups,
            directories: self.directories + other.directories,
            devices: self.devices + other.devices,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.processes, "process", "processes"),
            (self.groups, "control group", "control groups"),
            (self.directories, "directory", "directories"),
            (self.devices, "block device", "block devices"),
        ];
        let words: Vec<_> = kinds
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// The groups below the one of this data directory, and those of its sandboxes from before there
/// were tags.
fn groups(
    config: &Config,
    directories: &BTreeSet<String>,
) -> Result<BTreeMap<String, usize>, PathError> {
    let layout = Rights::current().and_then(|rights| layout::find(rights, &config.data_dir));
    let Ok(layout) = layout else { return Ok(BTreeMap::new()) };
    let mut names: Vec<_> = directories.iter().cloned().collect();
    if let Some(tag) = tag::find(&config.data_dir)? {
        let below = layout.names(&format!("{}/{tag}", config.cgroup_parent))?;
        names.extend(below.into_iter().map(|name| format!("{tag}/{name}")));
    }
    let groups = names.into_iter().map(|name| (layout.group(&config.cgroup_parent, &name), name));
    let found = groups.filter(|(group, _)| group.exists());
    Ok(found.map(|(group, name)| (name, group.processes().len())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_said_in_words() {
        let count = Count { processes: 3, groups: 1, directories: 2, devices: 0 };
        assert_eq!(count.to_string(), "3 processes, 1 control group, 2 directories");
        assert_eq!(Count::default().to_string(), "nothing");
    }

    #[test]
    fn processes_count_with_the_group_that_is_gone() {
        let groups = |names: &[(&str, usize)]| {
            let groups = names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            Traces { groups, ..Traces::default() }
        };
        let before = groups(&[("lost", 2), ("kept", 5)]);
        let after = groups(&[("kept", 3)]);
        let expected = Count { processes: 2, groups: 1, ..Count::default() };
        assert_eq!(before.count_without(&after), expected);
        assert!(after.count_without(&before).is_nothing());
    }
}
