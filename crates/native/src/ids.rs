//! Which ids of the host belong to which sandbox.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
};

use osb_sys::userns::{IdBase, RANGE};

/// The first id that we hand out: far above those of people and services.
const FIRST: u32 = 0x4000_0000;
/// How many ranges fit below the sign bit, which some programs mistake.
const SLOTS: u32 = (0x8000_0000 - FIRST) / RANGE;

/// How many ranges are chosen before they are needed.
const AHEAD: usize = 8;

/// The ranges in use.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    used: BTreeSet<IdBase>,
    /// Those of them that will be handed out next.
    next: VecDeque<IdBase>,
}

impl Ids {
    /// A range that no sandbox of ours has.
    pub(crate) fn take(&mut self) -> io::Result<Option<IdBase>> {
        while self.next.len() <= AHEAD {
            let Some(base) = self.choose()? else { break };
            self.next.push_back(base);
        }
        Ok(self.next.pop_front())
    }

    /// The ranges that will be taken next.
    pub(crate) fn next(&self) -> Vec<IdBase> {
        self.next.iter().copied().collect()
    }

    /// A range that nobody has. It begins its search at a random place, so that another server on
    /// this host seldom chooses the same.
    fn choose(&mut self) -> io::Result<Option<IdBase>> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let start = u32::from_le_bytes(bytes) % SLOTS;
        let slots = (start..SLOTS).chain(0..start);
        let free = slots.map(|slot| IdBase(FIRST + slot * RANGE)).find(|b| !self.used.contains(b));
        self.used.extend(free);
        Ok(free)
    }

    /// Marks a range that a sandbox found in the world has.
    pub(crate) fn claim(&mut self, base: IdBase) {
        self.next.retain(|next| *next != base);
        self.used.insert(base);
    }

    pub(crate) fn give_back(&mut self, base: IdBase) {
        self.used.remove(&base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sandboxes_share_an_id() {
        let mut ids = Ids::default();
        let mut seen = BTreeSet::new();
        for _ in 0..SLOTS {
            let base = ids.take().unwrap().unwrap();
            assert!(base.0.is_multiple_of(RANGE) && base.0 >= FIRST);
            assert!(base.0.checked_add(RANGE - 1).is_some_and(|last| i32::try_from(last).is_ok()));
            assert!(seen.insert(base));
        }
        assert_eq!(ids.take().unwrap(), None);
        ids.give_back(IdBase(FIRST));
        assert_eq!(ids.take().unwrap(), Some(IdBase(FIRST)));
    }
}
