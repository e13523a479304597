//! What sandboxes send: it is answered as long as they are up, by the policy that their record has.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
};

use osb_api::{
    SandboxId,
    lifecycle::{NetworkAction, NetworkPolicy, NetworkRule},
};
use osb_core::{Chain, RuntimeError};
use osb_egress::{
    Egress, FetchError, Operator, Policy, PolicyError, Reach, Verdict, vault::Vaults,
};

use super::{Reconciler, Shared};
use crate::{
    audit::Auditor,
    history::Happening,
    record::{Purpose, Record},
    store::{StoreError, Unchanged},
};

/// Who answers, and by which rules.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(super) egress: Egress,
    operator: RwLock<Operator>,
    pub(super) vaults: Vaults,
    pub(super) turns: Turns,
    pub(super) audit: Arc<Auditor>,
}

impl Outbound {
    pub(crate) fn new(
        egress: Egress,
        operator: Operator,
        vaults: Vaults,
        audit: Arc<Auditor>,
    ) -> Self {
        let operator = RwLock::new(operator);
        Self { egress, operator, vaults, turns: Turns::default(), audit }
    }

    /// What the operator says at the moment.
    fn operator(&self) -> Operator {
        self.operator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on nothing leaves the sandbox.
    pub(super) fn leave(&self, id: SandboxId) {
        self.egress.leave(id);
    }
}

impl Shared {
    /// Begins to answer for what a sandbox sends that is up.
    pub(super) async fn attend(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let Some(power) = self.runtime.network() else { return Ok(()) };
        let outlets = power.outlets(id).await?;
        let turn = self.outbound.turns.of(id);
        let _mine = turn.lock().await;
        let Some(record) = self.store.index().get(id) else { return Ok(()) };
        let policy = Arc::new(self.policy(&record));
        let vault = record.credential_proxy.then(|| self.outbound.vaults.of(id));
        self.outbound.egress.attend(id, outlets, policy, vault).map_err(|source| {
            RuntimeError::failed("cannot answer for what the sandbox sends", source)
        })
    }

    /// The policy of a sandbox. One that cannot be understood any more allows nothing.
    pub(super) fn policy(&self, record: &Record) -> Policy {
        if record.purpose == Purpose::SealedStep {
            return Policy::closed(&Operator::default());
        }
        let operator = self.outbound.operator();
        let Some(wire) = &record.policy else { return Policy::open(&operator) };
        Policy::compile(wire, &operator).unwrap_or_else(|error| {
            tracing::error!(
                sandbox_id = %record.id(), error = %Chain(&error),
                "the policy of the sandbox cannot be kept: it reaches nothing"
            );
            Policy::closed(&operator)
        })
    }
}

impl Reconciler {
    /// Puts what the operator says now in force, for the sandboxes that there are as well.
    pub(crate) async fn set_operator(&self, next: Operator) {
        let outbound = &self.0.outbound;
        *outbound.operator.write().unwrap_or_else(PoisonError::into_inner) = next;
        for record in self.0.store.index().newest_first(|_| true) {
            let id = record.id();
            let turn = outbound.turns.of(id);
            let _mine = turn.lock().await;
            // It may have another policy by now, or be gone.
            if let Some(record) = self.0.store.index().get(id) {
                outbound.egress.set_policy(id, Arc::new(self.0.policy(&record)));
            }
        }
    }

    /// Who answers for what sandboxes send.
    pub(crate) fn egress(&self) -> &Egress {
        &self.0.outbound.egress
    }

    /// Whether this server answers for what sandboxes send, so that policies mean something.
    pub(crate) fn has_network(&self) -> bool {
        self.0.runtime.network().is_some()
    }

    /// The policy of a sandbox as clients write it; without one, what the operator says instead.
    pub(crate) fn wire_policy(&self, record: &Record) -> NetworkPolicy {
        record.policy.as_deref().map_or_else(|| self.no_policy(), NetworkPolicy::clone)
    }

    /// What sandboxes without a policy reach, as if it were one.
    pub(crate) fn no_policy(&self) -> NetworkPolicy {
        NetworkPolicy {
            default_action: Some(match self.0.outbound.operator().reach() {
                Reach::Public => NetworkAction::Allow,
                Reach::Deny => NetworkAction::Deny,
            }),
            egress: Vec::new(),
        }
    }

    /// Fetches a file as a sandbox could that has this policy, and gives it to `keep` as it comes.
    pub(crate) async fn fetch(
        &self,
        policy: Option<&NetworkPolicy>,
        url: &str,
        keep: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<(), FetchError> {
        let Outbound { egress, audit, .. } = &self.0.outbound;
        let operator = self.0.outbound.operator();
        let policy = match policy {
            Some(wire) => Policy::compile(wire, &operator)
                .map_err(|error| FetchError::Address(error.to_string()))?,
            None => Policy::open(&operator),
        };
        let id = SandboxId::random();
        let fetched = egress.fetch(id, Arc::new(policy), url, keep).await;
        audit.finish(id);
        fetched
    }

    /// The rules that the operator gives all sandboxes. They are asked before a policy's.
    pub(crate) fn operator_rules(&self) -> Vec<NetworkRule> {
        let rule = |(verdict, target)| match verdict {
            Verdict::Allow => NetworkRule::new(NetworkAction::Allow, target),
            Verdict::Deny => NetworkRule::new(NetworkAction::Deny, target),
        };
        self.0.outbound.operator().written().map(rule).collect()
    }

    /// Checks a policy, and brings it into the form in which it is kept.
    pub(crate) fn check_policy(&self, wire: NetworkPolicy) -> Result<CheckedPolicy, PolicyError> {
        let compiled = Policy::compile(&wire, &self.0.outbound.operator())?;
        let mut wire = wire;
        wire.default_action.get_or_insert(NetworkAction::Deny);
        for rule in &mut wire.egress {
            rule.target = rule.target.trim().to_owned();
        }
        Ok(CheckedPolicy { wire: Arc::new(wire), compiled: Arc::new(compiled) })
    }

    /// Replaces the policy of a sandbox by what `change` makes of its record; `None` leaves it, and
    /// is the answer then. Once this is answered the policy is kept and in force. One change after
    /// the other is made, and each to its end, even if nobody waits for it any more.
    pub(crate) async fn change_policy<E: Send + 'static>(
        &self,
        id: SandboxId,
        change: impl FnOnce(&Record) -> Result<Option<CheckedPolicy>, E> + Send + 'static,
    ) -> Result<Option<Arc<Record>>, Unchanged<E>> {
        let shared = Arc::clone(&self.0);
        let done = self.0.tasks.spawn(async move {
            let turn = shared.outbound.turns.of(id);
            let _mine = turn.lock().await;
            let record = shared.store.index().get(id).ok_or(Unchanged::Missing)?;
            let Some(next) = change(&record).map_err(Unchanged::Refused)? else {
                return Ok(None);
            };
            let CheckedPolicy { wire, compiled } = next;
            let now = shared.clock.now();
            let changed = shared.store.update(id, move |record: &mut Record| {
                record.tell(
                    now,
                    Happening::PolicyChanged {
                        default: wire.default_action.unwrap_or(NetworkAction::Deny),
                        rules: wire.egress.len(),
                    },
                );
                record.policy = Some(wire);
                Ok(())
            });
            let record = changed.await?;
            // A sandbox that is not up yet gets it when it is.
            shared.outbound.egress.set_policy(id, compiled);
            Ok(Some(record))
        });
        done.await.unwrap_or(Err(Unchanged::Store(StoreError::Closed)))
    }
}

/// A policy that can be kept and enforced.
#[derive(Debug)]
pub(crate) struct CheckedPolicy {
    pub(crate) wire: Arc<NetworkPolicy>,
    pub(crate) compiled: Arc<Policy>,
}

/// Whose turn it is to change what a sandbox reaches.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(super) fn of(&self, id: SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&id).and_then(Weak::upgrade) {
            return turn;
        }
        // Those who are done leave nothing but their ids, which go before more room is made.
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(id, Arc::downgrade(&turn));
        turn
    }
}
