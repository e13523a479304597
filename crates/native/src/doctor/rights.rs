//! What a server can do with the rights that it has.

use osb_sys::{
    cgroup::Layout,
    rootless::{self, Obstacle, Rights},
};

use super::{Check, Finding, Outcome};

const AS_ROOT: &str = "run the server as root";

/// Whether the server has what it takes, and what is weaker if it is not root's. `obstacle` is what
/// kept it from becoming root of a namespace, if anything did.
pub(super) fn rights(rights: Rights, obstacle: Option<&Obstacle>) -> Vec<Check> {
    if let Some(Obstacle { found, remedy }) = obstacle {
        let user = rustix::process::geteuid().as_raw();
        let found = format!("the server would run as user {user}, but {found}");
        let remedy = format!("{remedy}; or start it as root, for example with sudo");
        return vec![Check { name: "root", outcome: Outcome::Missing { found, remedy } }];
    }
    match rights {
        Rights::Root => vec![Check::new("root", Ok("the server runs as root".to_owned()))],
        Rights::User if !rootless::has_shared_ids() => vec![Check::new(
            "root",
            Err((
                "the server is root in a container with too few user ids".to_owned(),
                "give the container 65537 ids or more, or run the server outside of it",
            )),
        )],
        Rights::User => without_root(),
    }
}

/// One line for each thing that only root's server has, but for those with lines of their own.
fn without_root() -> Vec<Check> {
    let user = rootless::user().map_or_else(String::new, |user| format!(" {user}"));
    let root = format!("not needed: the server runs as user{user}, with what is weaker below");
    let weaker = |name, found: &str| {
        let (found, remedy) = (found.to_owned(), AS_ROOT.to_owned());
        Check { name, outcome: Outcome::Weaker { found, remedy } }
    };
    vec![
        Check::new("root", Ok(root)),
        weaker(
            "ids of sandboxes",
            "all sandboxes have the same: nothing but namespaces keeps them apart",
        ),
        weaker(
            "shares of users",
            "watches of files and the like: all sandboxes together have the user's one share",
        ),
        weaker("host paths", "none: sandboxes that ask for one are refused"),
    ]
}

pub(super) fn groups(rights: Rights) -> Outcome {
    let version = |layout: &Layout| match layout {
        Layout::None => "none",
        Layout::V1 { .. } => "version 1",
        Layout::V2 { .. } => "version 2",
    };
    match rights {
        Rights::Root => Check::new("", all_groups(version)).outcome,
        Rights::User => match Layout::delegated() {
            Ok(layout) => Outcome::Ok(format!("{}, given to this user", version(&layout))),
            Err(error) => Outcome::Weaker {
                found: format!(
                    "none: processor and memory are not limited, and nothing can be paused or \
                     kept, as {error}"
                ),
                remedy:
                    "start the server with systemd-run --user --scope -p Delegate=yes, or give \
                         its user a group of each controller"
                        .to_owned(),
            },
        },
    }
}

fn all_groups(version: impl Fn(&Layout) -> &'static str) -> Finding {
    Layout::find().map(|layout| version(&layout).to_owned()).map_err(|error| {
        (
            error.to_string(),
            "mount control groups at /sys/fs/cgroup with cpu, memory and pids; in a container, \
             run it with --privileged --cgroupns=host",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_cannot_serve_learns_what_to_do_and_nothing_else() {
        let obstacle = Obstacle { found: "no ids".to_owned(), remedy: "get some".to_owned() };
        let checks = rights(Rights::User, Some(&obstacle));
        let [Check { outcome: Outcome::Missing { found, remedy }, .. }] = checks.as_slice() else {
            panic!("{checks:?}")
        };
        assert!(found.contains("no ids") && remedy.contains("get some"), "{found}; {remedy}");
    }

    #[test]
    fn what_is_weaker_without_root_stops_nobody() {
        let checks = without_root();
        assert!(checks.iter().all(Check::is_ok));
        let weaker = checks.iter().filter(|check| matches!(check.outcome, Outcome::Weaker { .. }));
        assert!(weaker.count() >= 3, "{checks:?}");
    }
}
