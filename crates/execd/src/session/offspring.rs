//! What a shell has started, found through the kernel's lists of children.

use std::{collections::HashSet, path::Path};

use osb_sys::fs;
use rustix::process::{Pid, Signal, kill_process};

/// The most processes that are looked at in one walk.
const MOST: usize = 4096;

/// How often to look again for what was born since. All are stopped first, so each round is there
/// only for what they bore while the lists were read.
const ROUNDS: usize = 16;

/// A process, and when it began: its number alone may be another's later.
type Known = (Pid, u64);

/// The children that a shell has at the moment.
pub(super) fn children(shell: Pid) -> HashSet<Known> {
    let main_thread = format!("/proc/{pid}/task/{pid}/children", pid = shell.as_raw_pid());
    numbers(main_thread).into_iter().filter_map(known).collect()
}

/// Signals what the shell has started, but for the spared and what comes from them.
pub(super) fn signal(shell: Pid, spared: &HashSet<Known>, signal: Signal) {
    for pid in descendants(shell, spared) {
        send(pid, signal);
    }
}

/// Kills what the shell has started, but for the spared and what comes from them.
pub(super) fn kill(shell: Pid, spared: &HashSet<Known>) {
    let mut stopped = HashSet::new();
    for _ in 0..ROUNDS {
        let mut any_new = false;
        for pid in descendants(shell, spared) {
            if stopped.insert(pid) {
                send(pid, Signal::STOP);
                any_new = true;
            }
        }
        if !any_new {
            break;
        }
    }
    for pid in stopped {
        send(pid, Signal::KILL);
    }
}

fn send(pid: Pid, signal: Signal) {
    // The only failure that matters is that it has ended, which is what everybody wants.
    let _ = kill_process(pid, signal);
}

fn descendants(shell: Pid, spared: &HashSet<Known>) -> Vec<Pid> {
    let mut found = vec![shell];
    let mut seen = HashSet::from([shell]);
    let mut at = 0;
    while let Some(&parent) = found.get(at)
        && found.len() < MOST
    {
        let tasks = format!("/proc/{}/task", parent.as_raw_pid());
        for task in fs::names(&tasks).unwrap_or_default() {
            for child in numbers(Path::new(&tasks).join(task).join("children")) {
                let is_spared = || known(child).is_some_and(|known| spared.contains(&known));
                if !(parent == shell && is_spared()) && seen.insert(child) {
                    found.push(child);
                }
            }
        }
        at += 1;
    }
    found.remove(0);
    found
}

fn numbers(list: impl AsRef<Path>) -> Vec<Pid> {
    let list = fs::read_to_string(list).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// `pid (name) state …`, where the beginning is the twentieth field after the name.
fn known(pid: Pid) -> Option<Known> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    Some((pid, fields.split_ascii_whitespace().nth(19)?.parse().ok()?))
}
