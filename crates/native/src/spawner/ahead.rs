//! Namespaces that are made before they are needed, in moments in which nobody waits for another.
//!
//! They are descriptors and nothing else: they end with the spawner, and none can be left over.

use std::{collections::BTreeMap, io, os::fd::OwnedFd};

use osb_sys::{
    fork::SingleThread,
    netns,
    outlets::Outlets,
    rootless::Rights,
    userns::{IdBase, user_namespace},
};

use super::{
    bounds,
    protocol::{Failure, Spawn, Step},
};

/// How many network namespaces are kept; of user namespaces, as many as the server names.
///
/// They are what takes longest of all that can be made ahead, so there are more of them: many
/// sandboxes may be wanted at once. Each takes some 80 KiB of the kernel's memory and five descriptors.
const NETWORKS: usize = 32;

#[derive(Debug)]
pub(super) struct Ahead {
    rights: Rights,
    networks: Vec<Network>,
    users: BTreeMap<IdBase, OwnedFd>,
    /// The ranges of ids that are to be used next.
    expected: Vec<IdBase>,
    /// Nothing more is made before the next request: something was refused.
    is_refused: bool,
}

/// The namespaces of one sandbox that can be made without it.
#[derive(Debug)]
pub(super) struct Namespaces {
    pub(super) users: OwnedFd,
    pub(super) network: Network,
}

/// A network namespace, and the sockets at which everything arrives that is sent in it.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) namespace: OwnedFd,
    /// Nothing leaves it without them. Whoever needs them opens them later and learns why these
    /// could not be.
    pub(super) outlets: Option<Outlets>,
}

impl Network {
    fn make(alone: &SingleThread) -> io::Result<Self> {
        let (namespace, outlets) = netns::make(alone, || match Outlets::furnish() {
            Ok(outlets) => Ok(Some(outlets)),
            Err(_) => netns::bring_up_loopback().map(|()| None),
        })?;
        Ok(Self { namespace, outlets })
    }
}

impl Ahead {
    pub(super) fn new(rights: Rights) -> Self {
        let (networks, users, expected) = Default::default();
        Self { rights, networks, users, expected, is_refused: false }
    }

    /// Learns which ranges of ids come next.
    pub(super) fn expect(&mut self, bases: Vec<IdBase>) {
        self.users.retain(|base, _| bases.contains(base));
        self.expected = bases;
        self.is_refused = false;
    }

    /// Whether there is nothing left to be made.
    pub(super) fn is_complete(&self) -> bool {
        self.is_refused || (self.networks.len() >= NETWORKS && self.missing().is_none())
    }

    /// Makes one of those that are missing. That it cannot be made is told to whoever needs it.
    pub(super) fn make_one(&mut self, alone: &SingleThread) {
        let made = match self.missing() {
            Some(base) => user_namespace(alone, base, self.rights).map(|users| {
                self.users.insert(base, users);
            }),
            None => Network::make(alone).map(|network| self.networks.push(network)),
        };
        self.is_refused = made.is_err();
    }

    /// Namespaces for a sandbox: those that are there, or new ones.
    pub(super) fn take(
        &mut self,
        alone: &SingleThread,
        spawn: &Spawn,
    ) -> Result<Namespaces, Failure> {
        let make = || user_namespace(alone, spawn.base, self.rights);
        let users = match (spawn.processes, self.users.remove(&spawn.base)) {
            (None, Some(users)) => users,
            (None, None) => make().step("make a user namespace")?,
            // All of a namespace together may have as many as its maker could.
            (Some(most), _) => bounds::with_processes(most, make)?.step("make a user namespace")?,
        };
        let network = match self.networks.pop() {
            Some(network) => network,
            None => Network::make(alone).step("make a network namespace")?,
        };
        Ok(Namespaces { users, network })
    }

    fn missing(&self) -> Option<IdBase> {
        self.expected.iter().copied().find(|base| !self.users.contains_key(base))
    }
}
