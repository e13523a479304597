//! The control group of this process, where nobody has handed its files over.

use std::path::PathBuf;

use osb_sys::fs;

use super::{
    counter::{CpuTime, MemoryUse},
    limit::{CpuLimit, MemoryLimit},
};

/// How many groups above ours are asked for their limits.
const LEVELS: usize = 16;

/// What the kernel says about mounts and about our groups.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// `/proc/self/mountinfo`.
    mounts: String,
    /// `/proc/self/cgroup`.
    groups: String,
}

impl Place {
    pub(super) fn find() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { mounts: read("/proc/self/mountinfo"), groups: read("/proc/self/cgroup") }
    }

    pub(super) fn cpu_time(&self) -> CpuTime {
        let v1 = || self.own("cpuacct", "cpuacct.usage").map(CpuTime::V1);
        let v2 = || self.own("", "cpu.stat").map(CpuTime::V2);
        let machine = || fs::open("/proc/stat").ok().map(CpuTime::Machine);
        v1().or_else(v2).or_else(machine).unwrap_or(CpuTime::Unknown)
    }

    pub(super) fn memory_use(&self) -> MemoryUse {
        let v1 = || {
            let usage = self.own("memory", "memory.usage_in_bytes")?;
            Some(MemoryUse::V1 { usage, stat: self.own("memory", "memory.stat")? })
        };
        let v2 = || {
            let usage = self.own("", "memory.current")?;
            Some(MemoryUse::V2 { usage, stat: self.own("", "memory.stat")? })
        };
        let machine = || fs::open("/proc/meminfo").ok().map(MemoryUse::Machine);
        v1().or_else(v2).or_else(machine).unwrap_or(MemoryUse::Unknown)
    }

    pub(super) fn cpu_limits(&self) -> Vec<CpuLimit> {
        let v1 = self.lineage("cpu").into_iter().filter_map(|group| {
            let quota = fs::open(group.join("cpu.cfs_quota_us")).ok()?;
            Some(CpuLimit::V1 { quota, period: fs::open(group.join("cpu.cfs_period_us")).ok()? })
        });
        let v2 = self.lineage("").into_iter();
        let v2 = v2.filter_map(|group| fs::open(group.join("cpu.max")).ok().map(CpuLimit::V2));
        v1.chain(v2).collect()
    }

    pub(super) fn memory_limits(&self) -> Vec<MemoryLimit> {
        let v1 = self.own("memory", "memory.stat").map(MemoryLimit::V1);
        let v2 = self.lineage("").into_iter();
        let v2 = v2.filter_map(|group| fs::open(group.join("memory.max")).ok());
        v1.into_iter().chain(v2.map(MemoryLimit::V2)).collect()
    }

    fn own(&self, controller: &str, file: &str) -> Option<std::fs::File> {
        let group = self.lineage(controller).into_iter().next()?;
        fs::open(group.join(file)).ok()
    }

    /// Our group and those above it that can be seen, in the tree of a controller, or in the one tree
    /// of version 2 if that has no name.
    fn lineage(&self, controller: &str) -> Vec<PathBuf> {
        let Some((root, top)) = self.tree(controller) else { return Vec::new() };
        let ours = self.group(controller).unwrap_or("/");
        // A container that shares the host's names for groups sees only its part of the tree.
        let below = if root == "/" { Some(ours) } else { ours.strip_prefix(root) };
        // A group outside of our view is told as a way out of it.
        let below = below.filter(|path| path.split('/').all(|name| name != ".."));
        let names = below.unwrap_or_default().split('/').filter(|name| !name.is_empty());
        let own = names.fold(top.clone(), |path, name| path.join(name));
        let above = own.ancestors().take_while(|path| path.starts_with(&top));
        above.take(LEVELS).map(PathBuf::from).collect()
    }

    /// Which part of a tree is mounted, and where.
    fn tree(&self, controller: &str) -> Option<(&str, PathBuf)> {
        self.mounts.lines().find_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, top) = (mount.next()?, mount.next()?);
            let mut source = source.split(' ');
            let found = match source.next()? {
                "cgroup" => source.nth(1)?.split(',').any(|option| option == controller),
                "cgroup2" => controller.is_empty(),
                _ => false,
            };
            found.then(|| (root, PathBuf::from(top)))
        })
    }

    /// The name of our group in a tree.
    fn group(&self, controller: &str) -> Option<&str> {
        self.groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, group) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(group)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lineage(mounts: &str, groups: &str, controller: &str) -> Vec<String> {
        let place = Place { mounts: mounts.to_owned(), groups: groups.to_owned() };
        let found = place.lineage(controller).into_iter();
        found.map(|path| path.into_os_string().into_string().unwrap()).collect()
    }

    #[test]
    fn a_container_with_its_own_view_is_at_the_top() {
        let mounts = "612 601 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(lineage(mounts, "0::/\n", ""), ["/sys/fs/cgroup"]);
        assert!(lineage(mounts, "0::/\n", "memory").is_empty());
    }

    #[test]
    fn a_container_in_the_view_of_the_host_sees_its_part() {
        let mounts =
            "700 690 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let groups = "4:memory:/docker/abc/inner\n0::/\n";
        let found = ["/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"];
        assert_eq!(lineage(mounts, groups, "memory"), found);
        // Somewhere that cannot be seen from here: what can is the best there is.
        assert_eq!(lineage(mounts, "4:memory:/other\n", "memory"), ["/sys/fs/cgroup/memory"]);
    }

    #[test]
    fn controllers_may_share_a_tree_and_limits_come_from_all_levels() {
        let mounts = "33 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "2:cpu,cpuacct:/a/b\n";
        for controller in ["cpu", "cpuacct"] {
            let top = "/sys/fs/cgroup/cpu,cpuacct";
            let found = [format!("{top}/a/b"), format!("{top}/a"), top.to_owned()];
            assert_eq!(lineage(mounts, groups, controller), found);
        }
    }

    #[test]
    fn without_anything_the_machine_is_taken_or_nothing() {
        let nowhere = Place::default();
        assert!(matches!(nowhere.cpu_time(), CpuTime::Machine(_) | CpuTime::Unknown));
        assert!(matches!(nowhere.memory_use(), MemoryUse::Machine(_) | MemoryUse::Unknown));
        assert!(nowhere.cpu_limits().is_empty() && nowhere.memory_limits().is_empty());
    }

    proptest! {
        #[test]
        fn no_text_leads_out_of_the_tree(group in "[a-z./:]{0,40}", root in "[a-z./]{0,10}") {
            let mounts = format!("1 2 0:3 /{root} /top rw - cgroup2 cgroup rw\n");
            for path in lineage(&mounts, &format!("0::/{group}\n"), "") {
                prop_assert!(path.starts_with("/top") && !path.contains("/../"), "{}", path);
            }
        }
    }
}
