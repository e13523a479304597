//! Which ids of the host belong to which sandbox.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
};

use osb_sys::{
    rootless::{Rights, SHARED},
    userns::{IdBase, RANGE},
};

/// The first id that we hand out: far above those of people and services.
const FIRST: u32 = 0x4000_0000;
/// How many ranges fit below the sign bit, which some programs mistake.
const SLOTS: u32 = (0x8000_0000 - FIRST) / RANGE;

/// How many ranges are chosen before they are needed.
const AHEAD: usize = 8;

/// The ranges in use. Where all sandboxes have the same range, it is single ids of that range that
/// are given to them: each is who makes the namespace of one sandbox, and who is counted for what
/// that sandbox uses.
#[derive(Debug)]
pub(crate) struct Ids {
    rights: Rights,
    used: BTreeSet<IdBase>,
    /// Those of them that will be handed out next.
    next: VecDeque<IdBase>,
}

impl Ids {
    pub(crate) fn new(rights: Rights) -> Self {
        Self { rights, used: BTreeSet::new(), next: VecDeque::new() }
    }

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
        let (first, step, count) = match self.rights {
            Rights::Root => (FIRST, RANGE, SLOTS),
            Rights::User => (SHARED.0, 1, RANGE),
        };
        let start = u32::from_le_bytes(bytes) % count;
        let slots = (start..count).chain(0..start);
        let free = slots.map(|slot| IdBase(first + slot * step)).find(|b| !self.used.contains(b));
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
        let mut ids = Ids::new(Rights::Root);
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

    #[test]
    fn every_sandbox_of_a_user_has_a_maker_of_its_own() {
        let mut ids = Ids::new(Rights::User);
        let mut seen = BTreeSet::new();
        for _ in 0..RANGE {
            let own = ids.take().unwrap().unwrap();
            assert!((SHARED.0..SHARED.0 + RANGE).contains(&own.0));
            assert!(seen.insert(own));
        }
        assert_eq!(ids.take().unwrap(), None);
    }
}
