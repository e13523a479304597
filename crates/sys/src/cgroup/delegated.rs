//! Control groups without being root: the part of the tree that was given to a user.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use super::{Controllers, Layout};
use crate::{fs, rootless::Rights};

/// Where a server goes under version 2, for a group with groups below it may have no processes.
const SERVER: &str = "server";

impl Layout {
    /// The groups that a server with the rights of this process can use.
    pub fn usable() -> io::Result<Self> {
        match Rights::current()? {
            Rights::Root => Self::find(),
            Rights::User => Ok(Self::delegated().unwrap_or(Self::None)),
        }
    }

    /// The groups that this process may manage though it is not root, if there are any: those at
    /// and below its own. Under version 2 this process goes to one of its own for that.
    pub fn delegated() -> io::Result<Self> {
        let all = Self::find()?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(io::Error::other)?;
        let layout = all.own_part(&own);
        layout.settle()?;
        Ok(layout)
    }

    /// Whether this process may manage these groups. Under version 2 this process goes there.
    pub fn settle(&self) -> io::Result<()> {
        match self {
            Self::None => {}
            Self::V1 { trees } => trees.distinct().into_iter().try_for_each(|at| writable(at))?,
            Self::V2 { tree } => {
                for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
                    writable(&tree.join(file))?;
                }
                let leaf = tree.join(SERVER);
                fs::create_dir_all(&leaf).map_err(io::Error::other)?;
                fs::write(leaf.join("cgroup.procs"), "0").map_err(io::Error::other)?;
                let switch = tree.join("cgroup.subtree_control");
                fs::write(switch, "+cpu +memory +pids").map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// The same trees, but from the groups on that `own`, a process's list of its groups, names.
    fn own_part(&self, own: &str) -> Self {
        let group = |tree: &Path, controller: &str| {
            let path = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                let is_it = controllers.split(',').any(|name| name == controller);
                is_it.then(|| parts.next())?
            });
            let path = Path::new(path.unwrap_or("/"));
            tree.join(path.strip_prefix("/").unwrap_or(path))
        };
        match self {
            Self::None => Self::None,
            Self::V1 { trees } => {
                let accounting = ["cpuacct", "cpu"].map(|name| group(&trees.accounting, name));
                let [counted, limited] = accounting;
                let is_limited = trees.accounting == trees.cpu;
                Self::V1 {
                    trees: Controllers {
                        cpu: group(&trees.cpu, "cpu"),
                        memory: group(&trees.memory, "memory"),
                        pids: group(&trees.pids, "pids"),
                        freezer: group(&trees.freezer, "freezer"),
                        accounting: if is_limited { limited } else { counted },
                    },
                }
            }
            Self::V2 { tree } => {
                let mut tree = group(tree, "");
                // A server that was started by one that has settled already.
                if tree.file_name().is_some_and(|name| name == SERVER) {
                    tree = tree.parent().map_or_else(|| tree.clone(), PathBuf::from);
                }
                Self::V2 { tree }
            }
        }
    }
}

fn writable(path: &Path) -> io::Result<()> {
    access(path, Access::WRITE_OK).map_err(|error| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("{} is not this user's to write", path.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_process_begins_at_its_own_group() {
        let one = |name: &str| PathBuf::from(format!("/cg/{name}"));
        let trees = Controllers {
            cpu: one("cpu,cpuacct"),
            memory: one("memory"),
            pids: one("pids"),
            freezer: one("freezer"),
            accounting: one("cpu,cpuacct"),
        };
        let own = "5:cpu,cpuacct:/user/ada\n4:memory:/user/ada:x\n3:pids:/\n2:freezer:/f\n0::/\n";
        let Layout::V1 { trees } = (Layout::V1 { trees }).own_part(own) else { panic!() };
        assert_eq!(trees.cpu, one("cpu,cpuacct/user/ada"));
        assert_eq!(trees.accounting, trees.cpu);
        assert_eq!(trees.memory, one("memory/user/ada:x"));
        assert_eq!(trees.pids, one("pids"));
        let v2 = Layout::V2 { tree: "/cg".into() };
        let part = |own: &str| v2.own_part(own);
        assert_eq!(
            part("0::/a.slice/osb.scope\n"),
            Layout::V2 { tree: "/cg/a.slice/osb.scope".into() }
        );
        assert_eq!(part("0::/a/server\n"), Layout::V2 { tree: "/cg/a".into() });
    }
}
