//! A process with all that comes from it, found in `/proc` and ended together.

mod table;

use std::{
    collections::HashSet,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use osb_sys::{fs, process, ready};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, pidfd_send_signal};
use tokio::{
    io::Interest,
    time::{sleep, timeout},
};

use crate::reaper::Exited;
use table::{Row, Table};

/// How long a family has between being asked to end and being ended.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait for what was killed; only a process stuck in the kernel takes this long.
const STUCK: Duration = Duration::from_secs(1);

/// How often to look again for what was born since. Members are stopped before they are killed,
/// so each round is there only for what others bore while the list was read.
const ROUNDS: usize = 16;

/// How many processes are held by a descriptor; others are looked at by number.
const HANDLES: usize = 256;

/// How often to look at a process that is not held by a descriptor.
const LOOK: Duration = Duration::from_millis(20);

/// The processes that belong to the leader of a session: its session, and the descendants of all of
/// these, also if they have made a session of their own. A descendant whose parent has ended, in a
/// session of its own, is a daemon by its own decision and belongs to nobody.
#[derive(Debug)]
pub(crate) struct Family(Arc<Mutex<Members>>);

#[derive(Debug)]
struct Members {
    leader: Pid,
    exited: Exited,
    who: Who,
    alive: Vec<Arc<Member>>,
}

/// Who of a family is meant.
#[derive(Debug)]
enum Who {
    All,
    /// The leader's children, but for these, with all that comes from them.
    ChildrenBut(HashSet<Child>),
}

/// A process, and when it began: its number alone may be another's later.
pub(crate) type Child = (Pid, u64);

#[derive(Debug)]
struct Member {
    pid: Pid,
    group: Option<Pid>,
    began: u64,
    handle: Option<OwnedFd>,
}

impl Family {
    pub(crate) fn of(leader: Pid, exited: Exited) -> Self {
        Self::new(leader, exited, Who::All)
    }

    /// Only what comes from the leader's children, and not from those that are spared.
    pub(crate) fn below(leader: Pid, exited: Exited, spared: HashSet<Child>) -> Self {
        Self::new(leader, exited, Who::ChildrenBut(spared))
    }

    fn new(leader: Pid, exited: Exited, who: Who) -> Self {
        let members = Members { leader, exited, who, alive: Vec::new() };
        Self(Arc::new(Mutex::new(members)))
    }

    /// Asks all to end, and kills those that are left after a moment. Returns as soon as all are
    /// gone.
    pub(crate) async fn interrupt(&self) {
        let polite = async {
            loop {
                let members = self.work(Members::ask_to_end).await;
                if members.is_empty() {
                    return;
                }
                gone(&members).await;
            }
        };
        if timeout(GRACE, polite).await.is_err() {
            self.kill().await;
        }
    }

    /// Kills all. Returns as soon as they are gone.
    pub(crate) async fn kill(&self) {
        let members = self.work(Members::kill).await;
        // One that is stuck in the kernel goes when it comes out; its signal is pending.
        drop(timeout(STUCK, gone(&members)).await);
    }

    /// Asks all to end, and waits for nobody.
    pub(crate) async fn ask(&self) {
        drop(self.work(Members::ask_to_end).await);
    }

    /// Reads `/proc` and signals where that may take its time. Returns who is alive.
    async fn work(&self, work: fn(&mut Members)) -> Vec<Arc<Member>> {
        let members = Arc::clone(&self.0);
        let worked = tokio::task::spawn_blocking(move || {
            let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut members);
            members.alive.clone()
        });
        // The only failure is that the program ends.
        worked.await.unwrap_or_default()
    }
}

impl Members {
    /// Asks all to end that were not asked before.
    fn ask_to_end(&mut self) {
        for member in self.find() {
            member.signal(Signal::TERM);
            // One that is stopped would never hear of it.
            member.signal(Signal::CONT);
        }
    }

    /// Stops all until nobody is left who could bear others, and kills them.
    fn kill(&mut self) {
        self.signal_all(Signal::STOP);
        for _ in 0..ROUNDS {
            if self.find().is_empty() {
                break;
            }
            self.signal_all(Signal::STOP);
        }
        self.signal_all(Signal::KILL);
    }

    /// By groups first: that reaches also those who were born since the list was read, because
    /// nobody can be born into a group while it is signalled.
    fn signal_all(&self, signal: Signal) {
        let in_groups: &[_] = match self.who {
            Who::All => &self.alive,
            // They share the group of the leader.
            Who::ChildrenBut(_) => &[],
        };
        let groups: HashSet<Pid> = in_groups.iter().filter_map(|member| member.group).collect();
        // This process is in no family. It has no group that it could name where it was started
        // from outside of its namespace, and `getpgrp` has no answer for that.
        let own_group = Row::read(getpid()).and_then(|row| row.group);
        for &group in groups.iter().filter(|&&group| Some(group) != own_group) {
            // The only failure is that all of it have ended.
            let _ = kill_process_group(group, signal);
        }
        self.alive.iter().for_each(|member| member.signal(signal));
    }

    /// Reads the list of processes, forgets who has ended, and returns who is new.
    fn find(&mut self) -> Vec<Arc<Member>> {
        // Before the list is read: whoever has the leader's number in it then is somebody else,
        // who can have it only because nobody is left in the leader's session.
        let ended = self.exited.ended().is_some();
        let table = Table::read();
        let is_the_leaders = !(ended && table.get(self.leader).is_some());
        self.alive.retain(|member| table.get(member.pid).is_some_and(|row| member.is(row)));
        let known: HashSet<Pid> = self.alive.iter().map(|member| member.pid).collect();
        let own = getpid();
        let belongs = |row: &Row| match &self.who {
            Who::All => row.session == Some(self.leader),
            Who::ChildrenBut(spared) => {
                row.parent == Some(self.leader) && !spared.contains(&(row.pid, row.began))
            }
        };
        let rows = table
            .with_descendants(|row| known.contains(&row.pid) || (is_the_leaders && belongs(row)));
        let rows = rows.into_iter().filter(|row| row.pid != own && !known.contains(&row.pid));
        let room = HANDLES.saturating_sub(self.alive.len());
        let new: Vec<_> = rows
            .enumerate()
            .map(|(at, row)| {
                let handle = (at < room).then(|| process::open(row.pid).ok()).flatten();
                Member { pid: row.pid, group: row.group, began: row.began, handle }
            })
            // The handle may be on another process by now, which then has another beginning.
            .filter(Member::is_alive)
            .map(Arc::new)
            .collect();
        self.alive.extend_from_slice(&new);
        new
    }
}

impl Member {
    fn is(&self, row: &Row) -> bool {
        (self.pid, self.began) == (row.pid, row.began)
    }

    fn is_alive(&self) -> bool {
        Row::read(self.pid).is_some_and(|row| self.is(&row))
    }

    fn signal(&self, signal: Signal) {
        // The only failure that matters is that it has ended, which is what everybody wants.
        let _ = match &self.handle {
            Some(handle) => pidfd_send_signal(handle, signal),
            None if self.is_alive() => kill_process(self.pid, signal),
            None => Ok(()),
        };
    }

    async fn gone(&self) {
        let handle = self.handle.as_ref().and_then(|handle| handle.try_clone().ok());
        let watched = handle.and_then(|handle| ready::register(handle, Interest::READABLE).ok());
        match watched {
            Some(handle) => drop(handle.readable().await),
            None => {
                while self.is_alive() {
                    sleep(LOOK).await;
                }
            }
        }
    }
}

/// The children that a process has at this moment.
pub(crate) fn children(parent: Pid) -> HashSet<Child> {
    let list = format!("/proc/{pid}/task/{pid}/children", pid = parent.as_raw_pid());
    let rows: Vec<Row> = match fs::read_to_string(list) {
        Ok(list) => {
            let pids = list.split_ascii_whitespace();
            pids.filter_map(|pid| Row::read(Pid::from_raw(pid.parse().ok()?)?)).collect()
        }
        // Not every kernel keeps such a list.
        Err(_) => Table::read().children(parent),
    };
    rows.into_iter().map(|row| (row.pid, row.began)).collect()
}

async fn gone(members: &[Arc<Member>]) {
    for member in members {
        member.gone().await;
    }
}
