//! What the kernel counts for the host as a whole, so that no sandbox has a share of its own.

use osb_sys::fs;

use super::Outcome;
use crate::sandbox::{DEFAULT_MEMORY, DEFAULT_PIDS};

/// What an open file takes of a sandbox's memory.
const OPEN_FILE: u64 = 256;
/// How many terminals a sandbox may have.
const TERMINALS: u64 = 256;

/// A number that the host has, and what one sandbox may take of it that says nothing of its limits.
struct Counter {
    setting: &'static str,
    what: &'static str,
    of_one: u64,
}

const COUNTERS: [Counter; 3] = [
    Counter {
        setting: "fs.file-max",
        what: "open files",
        of_one: DEFAULT_MEMORY.bytes() / OPEN_FILE,
    },
    Counter { setting: "kernel.pid_max", what: "processes", of_one: DEFAULT_PIDS as u64 },
    Counter { setting: "kernel.pty.max", what: "terminals", of_one: TERMINALS },
];

/// Whether one sandbox could leave none of them to the others.
pub(super) fn outcome() -> Outcome {
    judge(|setting| {
        let path = format!("/proc/sys/{}", setting.replace('.', "/"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    })
}

fn judge(limit_of: impl Fn(&str) -> Option<u64>) -> Outcome {
    // A limit that cannot be read is not there.
    let low = COUNTERS.iter().filter_map(|counter| {
        let limit = limit_of(counter.setting)?;
        (limit <= counter.of_one).then_some((counter, limit))
    });
    let low: Vec<_> = low.collect();
    if low.is_empty() {
        return Outcome::Ok("more than one sandbox can use up".to_owned());
    }
    let found = low.iter().map(|(counter, limit)| format!("{limit} {} for all", counter.what));
    let found = found.collect::<Vec<_>>().join(", ");
    let raised =
        low.iter().map(|(counter, _)| format!("{}={}", counter.setting, counter.of_one * 16));
    let raised = raised.collect::<Vec<_>>().join(" ");
    Outcome::Weaker {
        found: format!("{found}: one sandbox can leave none to the others"),
        remedy: format!("raise what is low: sysctl -w {raised}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_sandbox_could_use_up_is_told_with_a_remedy() {
        let large = |_: &str| Some(1 << 40);
        assert!(matches!(judge(large), Outcome::Ok(_)));
        assert!(matches!(judge(|_| None), Outcome::Ok(_)));
        let few_files =
            |setting: &str| Some(if setting == "fs.file-max" { 100_000 } else { 1 << 40 });
        let Outcome::Weaker { found, remedy } = judge(few_files) else { panic!("all is well") };
        assert_eq!(found, "100000 open files for all: one sandbox can leave none to the others");
        assert_eq!(remedy, "raise what is low: sysctl -w fs.file-max=134217728");
    }
}
