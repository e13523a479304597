//! A process with all that comes from it, found in `/proc` and ended together.

mod table;

use std::{
    collections::HashSet,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use osb_sys::{process, ready};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, kill_process, kill_process_group, pidfd_send_signal,
};
use tokio::{
    io::Interest,
    time::{sleep, timeout},
};

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

/// Asks the leader of a session and its family to end, and kills those that are left after a
/// moment. Returns as soon as all are gone.
pub(crate) async fn interrupt(leader: Pid) {
    let family = Family::of(leader);
    let polite = async {
        loop {
            let members = family.work(Members::ask_to_end).await;
            if members.is_empty() {
                return;
            }
            gone(&members).await;
        }
    };
    if timeout(GRACE, polite).await.is_err() {
        family.end().await;
    }
}

/// Kills the leader of a session and its family. Returns as soon as all are gone.
pub(crate) async fn kill(leader: Pid) {
    Family::of(leader).end().await;
}

/// The processes that belong to a leader: its session, and the descendants of all of these, also
/// if they have made a session of their own. A descendant whose parent has ended, in a session of
/// its own, is a daemon by its own decision and belongs to nobody.
#[derive(Debug)]
struct Family(Arc<Mutex<Members>>);

#[derive(Debug)]
struct Members {
    leader: Pid,
    /// When the leader began, once it was seen. Another process may have its number later.
    began: Option<u64>,
    alive: Vec<Arc<Member>>,
    /// The group of this process, which is in no family.
    own_group: Option<Pid>,
}

#[derive(Debug)]
struct Member {
    pid: Pid,
    group: Option<Pid>,
    began: u64,
    handle: Option<OwnedFd>,
}

impl Family {
    fn of(leader: Pid) -> Self {
        let own_group = Some(getpgrp());
        let members = Members { leader, began: None, alive: Vec::new(), own_group };
        Self(Arc::new(Mutex::new(members)))
    }

    async fn end(&self) {
        let members = self.work(Members::kill).await;
        // One that is stuck in the kernel goes when it comes out; its signal is pending.
        drop(timeout(STUCK, gone(&members)).await);
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
        let groups: HashSet<Pid> = self.alive.iter().filter_map(|member| member.group).collect();
        for &group in groups.iter().filter(|&&group| Some(group) != self.own_group) {
            // The only failure is that all of it have ended.
            let _ = kill_process_group(group, signal);
        }
        self.alive.iter().for_each(|member| member.signal(signal));
    }

    /// Reads the list of processes, forgets who has ended, and returns who is new.
    fn find(&mut self) -> Vec<Arc<Member>> {
        let table = Table::read();
        let leader = table.get(self.leader).map(|row| row.began);
        self.began = self.began.or(leader);
        let is_the_leader = leader.is_none() || leader == self.began;
        self.alive.retain(|member| table.get(member.pid).is_some_and(|row| member.is(row)));
        let known: HashSet<Pid> = self.alive.iter().map(|member| member.pid).collect();
        let own = getpid();
        let rows = table.with_descendants(|row| {
            known.contains(&row.pid) || (is_the_leader && row.session == Some(self.leader))
        });
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

async fn gone(members: &[Arc<Member>]) {
    for member in members {
        member.gone().await;
    }
}
