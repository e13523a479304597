use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use osb_api::SandboxId;
use serde::Serialize;

use crate::{
    Entry,
    audit::Counters,
    share::{Share, Taken},
};

/// Where entries wait for the thread that writes.
#[derive(Debug)]
pub(crate) struct Desk<E> {
    inbox: Mutex<Inbox<E>>,
    arrived: Condvar,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
struct Inbox<E> {
    sandboxes: HashMap<SandboxId, Waiting<E>>,
    /// Those who have something to be written, in turn.
    turns: VecDeque<SandboxId>,
    /// Since when it is not written down how many entries were missed.
    missing_since: Option<Instant>,
    is_closed: bool,
}

/// What waits of one sandbox.
#[derive(Debug)]
struct Waiting<E> {
    items: VecDeque<Item<E>>,
    shares: HashMap<&'static str, Share>,
    /// Whether the last line is yet to be written, since it could not be.
    is_over: bool,
}

#[derive(Debug)]
pub(crate) enum Item<E> {
    Entry(E),
    Missed(Missed),
    /// Nothing more comes of the sandbox.
    Finished,
}

/// How many entries were not written down.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Missed {
    pub(crate) of: &'static str,
    pub(crate) count: u64,
}

#[derive(Debug)]
pub(crate) enum Next<E> {
    /// What is to be written of one sandbox at once.
    Turn(SandboxId, VecDeque<Item<E>>),
    Nothing,
    /// Nor will there ever be.
    Never,
}

impl<E> Default for Desk<E> {
    fn default() -> Self {
        let inbox = Inbox {
            sandboxes: HashMap::new(),
            turns: VecDeque::new(),
            missing_since: None,
            is_closed: false,
        };
        Self { inbox: Mutex::new(inbox), arrived: Condvar::new(), counters: Counters::default() }
    }
}

impl<E> Desk<E> {
    /// How long others may join what is written, so that many cost little more than one.
    const GATHER: Duration = Duration::from_millis(10);
    /// How often it is written down at most how many entries were missed.
    const MISSING: Duration = Duration::from_secs(1);
    /// Of how many sandboxes that are gone it is remembered what could not be written.
    const REMEMBERED: usize = 100_000;

    pub(crate) fn close(&self) {
        self.inbox().is_closed = true;
        self.arrived.notify_one();
    }

    pub(crate) fn finish(&self, sandbox: SandboxId) {
        let mut inbox = self.inbox();
        inbox.tell_missing(sandbox);
        inbox.push(sandbox, Item::Finished);
        self.arrived.notify_one();
    }

    /// What is to be written next, once there is something or this long has passed.
    pub(crate) fn next(&self, patience: Duration) -> Next<E> {
        let until = Instant::now() + patience;
        let mut inbox = self.inbox();
        loop {
            let now = Instant::now();
            let due = inbox.missing_since.map(|since| since + Self::MISSING);
            if due.is_some_and(|due| due <= now || inbox.is_closed) {
                inbox.missing_since = None;
                let missing = |(id, it): (&SandboxId, &Waiting<E>)| it.is_missing().then_some(*id);
                let missing: Vec<_> = inbox.sandboxes.iter().filter_map(missing).collect();
                for id in missing {
                    inbox.tell_missing(id);
                }
            }
            if let Some(id) = inbox.turns.pop_front() {
                return Next::Turn(id, inbox.take(id));
            }
            if inbox.is_closed {
                return Next::Never;
            }
            if now >= until {
                return Next::Nothing;
            }
            let left = due.map_or(until, |due| due.min(until)) - now;
            let waited = self.arrived.wait_timeout(inbox, left);
            inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !inbox.turns.is_empty() && !inbox.is_closed {
                drop(inbox);
                std::thread::sleep(Self::GATHER);
                inbox = self.inbox();
            }
        }
    }

    /// Forgets whoever has nothing to be written and whose shares are whole again, such as those who
    /// are gone and of whom something came late.
    pub(crate) fn forget(&self, now: Instant) {
        self.inbox().sandboxes.retain(|_, waiting| !waiting.is_as_new(now));
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox<E>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Entry> Desk<E> {
    pub(crate) fn note(&self, sandbox: SandboxId, entry: E) {
        let now = Instant::now();
        let mut inbox = self.inbox();
        if inbox.is_closed {
            self.counters.failed.fetch_add(1, Relaxed);
            return;
        }
        let shares = &mut inbox.sandboxes.entry(sandbox).or_default().shares;
        let share = shares.entry(entry.share()).or_insert_with(|| Share::new(now));
        let is_news = match share.take(now, entry.about()) {
            Taken::Yes => inbox.push(sandbox, Item::Entry(entry)),
            Taken::No => {
                self.counters.too_many.fetch_add(1, Relaxed);
                let is_first = inbox.missing_since.is_none();
                inbox.missing_since.get_or_insert(now);
                is_first
            }
        };
        drop(inbox);
        if is_news {
            self.arrived.notify_one();
        }
    }

    /// Counts what could not be written, to be told of once that is possible again.
    pub(crate) fn give_back(&self, sandbox: SandboxId, items: &VecDeque<Item<E>>) {
        let now = Instant::now();
        let mut inbox = self.inbox();
        // Whoever ends writes no more.
        if inbox.is_closed || inbox.sandboxes.len() >= Self::REMEMBERED {
            return;
        }
        let waiting = inbox.sandboxes.entry(sandbox).or_default();
        waiting.is_over |= items.iter().any(Item::is_last);
        for Missed { of, count } in items.iter().filter_map(Item::as_missed) {
            waiting.shares.entry(of).or_insert_with(|| Share::new(now)).missed += count;
        }
        inbox.missing_since.get_or_insert(now);
    }
}

impl<E> Inbox<E> {
    /// Whether it is the first that waits of this sandbox.
    fn push(&mut self, sandbox: SandboxId, item: Item<E>) -> bool {
        let items = &mut self.sandboxes.entry(sandbox).or_default().items;
        items.push_back(item);
        let is_first = items.len() == 1;
        if is_first {
            self.turns.push_back(sandbox);
        }
        is_first
    }

    fn tell_missing(&mut self, sandbox: SandboxId) {
        let Some(waiting) = self.sandboxes.get_mut(&sandbox) else { return };
        let missed = |(of, share): (&&'static str, &mut Share)| Missed {
            of,
            count: std::mem::take(&mut share.missed),
        };
        let missed: Vec<_> = waiting.shares.iter_mut().map(missed).collect();
        let is_over = std::mem::take(&mut waiting.is_over);
        for missed in missed.into_iter().filter(|missed| missed.count > 0) {
            self.push(sandbox, Item::Missed(missed));
        }
        if is_over {
            self.push(sandbox, Item::Finished);
        }
    }

    fn take(&mut self, sandbox: SandboxId) -> VecDeque<Item<E>> {
        let Some(waiting) = self.sandboxes.get_mut(&sandbox) else { return VecDeque::new() };
        let items = std::mem::take(&mut waiting.items);
        if items.iter().any(Item::is_last) {
            self.sandboxes.remove(&sandbox);
        } else {
            waiting.shares.values_mut().for_each(|share| share.waiting = 0);
        }
        items
    }
}

impl<E> Item<E> {
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Finished)
    }
}

impl<E: Entry> Item<E> {
    /// The same, if it is not written.
    fn as_missed(&self) -> Option<Missed> {
        match self {
            Self::Entry(entry) => Some(Missed { of: entry.share(), count: 1 }),
            Self::Missed(missed) => Some(*missed),
            Self::Finished => None,
        }
    }
}

impl<E> Waiting<E> {
    /// Whether something could not be written that is yet to be told of.
    fn is_missing(&self) -> bool {
        self.is_over || self.shares.values().any(|share| share.missed > 0)
    }

    /// Whether it is as if the sandbox had never done anything.
    fn is_as_new(&self, now: Instant) -> bool {
        let is_silent = self.items.is_empty() && !self.is_over;
        is_silent && self.shares.values().all(|share| share.is_whole(now))
    }
}

impl<E> Default for Waiting<E> {
    fn default() -> Self {
        Self { items: VecDeque::new(), shares: HashMap::new(), is_over: false }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[derive(Debug, Serialize)]
    struct Late;

    impl Entry for Late {
        fn at(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn kind(&self) -> &'static str {
            "late"
        }

        fn share(&self) -> &'static str {
            "late"
        }

        fn about(&self) -> u64 {
            0
        }
    }

    #[test]
    fn whoever_is_gone_is_forgotten_although_others_are_always_busy() {
        let desk = Desk::default();
        for _ in 0..100 {
            let sandbox = SandboxId::random();
            desk.finish(sandbox);
            assert!(matches!(desk.next(Duration::ZERO), Next::Turn(..)));
            desk.note(sandbox, Late);
            assert!(matches!(desk.next(Duration::ZERO), Next::Turn(..)));
        }
        let (busy, now) = (SandboxId::random(), Instant::now());
        desk.note(busy, Late);
        assert_eq!(desk.inbox().sandboxes.len(), 101);
        desk.forget(now + Duration::from_mins(10));
        assert_eq!(desk.inbox().sandboxes.keys().collect::<Vec<_>>(), [&busy]);
    }
}
