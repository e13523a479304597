use super::*;

const V1: &str = "\
30 29 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
35 30 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
";

#[test]
fn separate_trees_are_version_one_even_beside_an_empty_version_two() {
    let Layout::V1 { trees } = Layout::from_mountinfo(V1, &|_| String::new()).unwrap() else {
        panic!("not version 1")
    };
    assert_eq!(trees.cpu, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(trees.pids, Path::new("/sys/fs/cgroup/pids"));
    assert_eq!(trees.accounting, trees.cpu);
}

#[test]
fn one_tree_with_all_controllers_is_version_two() {
    let mounts = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let layout = Layout::from_mountinfo(mounts, &|_| "cpuset cpu io memory pids".to_owned());
    assert!(matches!(layout.unwrap(), Layout::V2 { tree } if tree == Path::new("/sys/fs/cgroup")));
}

#[test]
fn a_field_is_found_by_its_whole_name() {
    let events = "low 0\noom 3\noom_kill 2\noom_group_kill 1\n";
    assert_eq!(field(events, "oom_kill"), Some(2));
    assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", "oom_kill"), Some(7));
    assert_eq!(field("", "oom_kill"), None);
}

#[test]
fn a_missing_controller_is_named() {
    let without_pids: String =
        V1.lines().filter(|line| !line.contains("pids")).flat_map(|l| [l, "\n"]).collect();
    let error = Layout::from_mountinfo(&without_pids, &|_| String::new()).unwrap_err();
    assert!(error.to_string().contains("pids"), "{error}");
}
