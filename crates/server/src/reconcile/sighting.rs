use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_api::SandboxId;
use osb_core::{Observed, ObservedState};
use tokio::sync::watch;

/// What was last seen of a sandbox.
#[derive(Debug, Clone, Default)]
pub(super) struct Sighting {
    /// `None` when the runtime has nothing of it.
    pub(super) state: Option<ObservedState>,
    /// How many of its processes were ended for lack of memory.
    oom_kills: u64,
    /// Grows with every look and every step, so that an old list cannot undo what is newer.
    count: u64,
    /// Whether its driver is changing it right now.
    busy: bool,
}

impl Sighting {
    pub(super) fn of(observed: Option<Observed>) -> Self {
        let oom_kills = observed.as_ref().map_or(0, |observed| observed.oom_kills);
        Self { state: observed.map(|observed| observed.state), oom_kills, ..Self::default() }
    }

    pub(super) fn observed(&self, id: SandboxId) -> Option<Observed> {
        let oom_kills = self.oom_kills;
        self.state.clone().map(|state| Observed { id, state, oom_kills })
    }

    /// How many of its processes were ended for lack of memory.
    pub(super) fn kills(&self) -> u64 {
        self.oom_kills
    }

    /// Takes news from the runtime. What has ended stays ended, and what is up does not start
    /// again: such news is older than what we know.
    fn hear(&mut self, news: &Observed) -> bool {
        let state = &news.state;
        let outdated = match (&self.state, state) {
            (Some(ObservedState::Exited(_)), ObservedState::Gone) => false,
            (Some(ObservedState::Exited(_)), _)
            | (Some(ObservedState::Running | ObservedState::Paused), ObservedState::Starting) => {
                true
            }
            _ => false,
        };
        if outdated {
            return false;
        }
        let next = (*state != ObservedState::Gone).then(|| state.clone());
        let lacked = self.count_kills(news);
        self.see(next) || lacked
    }

    /// Whether more processes than known were ended for lack of memory.
    fn count_kills(&mut self, news: &Observed) -> bool {
        let more = news.oom_kills > self.oom_kills;
        if more {
            tracing::warn!(
                sandbox_id = %news.id,
                "{} processes of the sandbox were ended for lack of memory so far", news.oom_kills
            );
            self.oom_kills = news.oom_kills;
        }
        more
    }

    fn see(&mut self, state: Option<ObservedState>) -> bool {
        self.count += 1;
        let changed = self.state != state;
        self.state = state;
        changed
    }
}

/// What was last seen of every sandbox that has a driver.
#[derive(Debug, Default)]
pub(super) struct Sightings(Mutex<HashMap<SandboxId, Arc<watch::Sender<Sighting>>>>);

impl Sightings {
    pub(super) fn add(&self, id: SandboxId, first: Sighting) -> Arc<watch::Sender<Sighting>> {
        let sender = Arc::new(watch::Sender::new(first));
        self.lock().insert(id, Arc::clone(&sender));
        sender
    }

    pub(super) fn remove(&self, id: SandboxId) {
        self.lock().remove(&id);
    }

    pub(super) fn hear(&self, news: &Observed) {
        let sender = self.lock().get(&news.id).cloned();
        if let Some(sender) = sender {
            sender.send_if_modified(|sighting| sighting.hear(news));
        }
    }

    /// How far everything was seen that nobody is changing, before a list is made.
    pub(super) fn settled(&self) -> HashMap<SandboxId, u64> {
        self.lock()
            .iter()
            .map(|(id, sender)| (*id, sender.borrow().clone()))
            .filter(|(_, sighting)| !sighting.busy)
            .map(|(id, sighting)| (id, sighting.count))
            .collect()
    }

    /// Takes a list, except for what has moved since `settled`.
    pub(super) fn compare(&self, settled: &HashMap<SandboxId, u64>, list: Vec<Observed>) {
        let list: HashMap<_, _> = list.into_iter().map(|seen| (seen.id, seen)).collect();
        for (id, count) in settled {
            let sender = self.lock().get(id).cloned();
            if let Some(sender) = sender {
                sender.send_if_modified(|sighting| {
                    if sighting.busy || sighting.count != *count {
                        return false;
                    }
                    let seen = list.get(id);
                    let lacked = seen.is_some_and(|seen| sighting.count_kills(seen));
                    sighting.see(seen.map(|seen| seen.state.clone())) || lacked
                });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<watch::Sender<Sighting>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a sandbox as being changed for as long as it lives.
#[derive(Debug)]
pub(super) struct Busy(Arc<watch::Sender<Sighting>>);

impl Busy {
    pub(super) fn new(sender: &Arc<watch::Sender<Sighting>>) -> Self {
        mark(sender, true);
        Self(Arc::clone(sender))
    }

    /// What the change came to.
    pub(super) fn becomes(&self, state: Option<ObservedState>) {
        self.0.send_if_modified(|sighting| sighting.see(state));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        mark(&self.0, false);
    }
}

fn mark(sender: &watch::Sender<Sighting>, busy: bool) {
    sender.send_if_modified(|sighting| {
        sighting.busy = busy;
        sighting.count += 1;
        false
    });
}

#[cfg(test)]
mod tests {
    use osb_core::Exit;

    use super::*;

    fn running(id: SandboxId) -> Observed {
        Observed::new(id, ObservedState::Running)
    }

    #[test]
    fn what_has_ended_stays_ended() {
        let sightings = Sightings::default();
        let id = SandboxId::random();
        let sender = sightings.add(id, Sighting::default());
        sightings.hear(&Observed::new(id, ObservedState::Exited(Exit::Code(0))));
        sightings.hear(&running(id));
        assert_eq!(sender.borrow().state, Some(ObservedState::Exited(Exit::Code(0))));
        sightings.hear(&Observed::new(id, ObservedState::Gone));
        assert_eq!(sender.borrow().state, None);
    }

    #[test]
    fn lack_of_memory_is_counted_and_never_forgotten() {
        let sightings = Sightings::default();
        let id = SandboxId::random();
        let sender = sightings.add(id, Sighting::of(Some(running(id))));
        let mut changes = sender.subscribe();
        sightings.hear(&Observed { oom_kills: 2, ..running(id) });
        assert!(changes.has_changed().expect("a sender"));
        sightings.hear(&running(id));
        let seen = changes.borrow_and_update().observed(id);
        assert_eq!(seen, Some(Observed { oom_kills: 2, ..running(id) }));
    }

    #[test]
    fn an_old_list_does_not_undo_what_is_newer() {
        let sightings = Sightings::default();
        let (started, lost, busy) = (SandboxId::random(), SandboxId::random(), SandboxId::random());
        let senders = [started, lost, busy].map(|id| sightings.add(id, Sighting::default()));
        sightings.hear(&running(lost));
        let _step = Busy::new(&senders[2]);
        let before = sightings.settled();
        sightings.hear(&running(started));
        sightings.compare(&before, vec![running(busy)]);
        assert_eq!(senders[0].borrow().state, Some(ObservedState::Running), "newer than the list");
        assert_eq!(senders[1].borrow().state, None, "not in the list");
        assert_eq!(senders[2].borrow().state, None, "being changed");
    }
}
