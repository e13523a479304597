//! What a sandbox may reach, compiled from what clients and the operator wrote.
//!
//! Rules about names judge names, rules about addresses judge addresses; among each the first that
//! matches decides: the operator's denials, the operator's permissions, then the policy's rules in
//! their order, then its default. A name that may be reached is still not reached at every address:
//! see [`Policy::resolved`].

mod edit;
pub(crate) mod range;
pub(crate) mod readings;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod target;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

use osb_api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};

pub use self::{
    edit::{add, merge, remove},
    readings::Readings,
    target::{BadTarget, meet},
};
use self::{
    rules::{Rule, Rules, Scope},
    target::Target,
};
use crate::{
    By, Guarded, Name, Operator, Reach, Ruling, Verdict,
    guard::{self, Block},
};

/// What one sandbox may reach. Answers within microseconds, however many rules there are.
#[derive(Debug)]
pub struct Policy {
    rules: Rules,
    default: Verdict,
    operator: Operator,
}

/// A policy that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("a policy has at most {0} rules")]
    TooMany(usize),
    #[error("rule {number} cannot be about {target:?}: {problem}")]
    Rule {
        /// Counted from 1.
        number: usize,
        /// As it was written, cut if it is long.
        target: String,
        problem: BadTarget,
    },
}

impl Policy {
    /// Checks and compiles a policy.
    pub fn compile(wire: &NetworkPolicy, operator: &Operator) -> Result<Self, PolicyError> {
        let most = operator.max_rules();
        if wire.egress.len() > most {
            return Err(PolicyError::TooMany(most));
        }
        let mut rules = Rules::default();
        for (number, rule) in (1..).zip(&wire.egress) {
            let (target, scope) = read(rule).map_err(|problem| PolicyError::Rule {
                number,
                target: rule.target.chars().take(64).collect(),
                problem,
            })?;
            rules.push(verdict(rule.action), &written(rule), target, scope);
        }
        let default = wire.default_action.map_or(Verdict::Deny, verdict);
        Ok(Self { rules, default, operator: operator.clone() })
    }

    /// What holds for a sandbox that has no policy.
    pub fn open(operator: &Operator) -> Self {
        let default = match operator.reach() {
            Reach::Public => Verdict::Allow,
            Reach::Deny => Verdict::Deny,
        };
        Self { rules: Rules::default(), default, operator: operator.clone() }
    }

    /// What allows nothing but what the operator gives everybody.
    pub fn closed(operator: &Operator) -> Self {
        let (rules, default) = (Rules::default(), Verdict::Deny);
        Self { rules, default, operator: operator.clone() }
    }

    /// Whether a name may be resolved: whether it may be reached at any port.
    pub fn name(&self, name: &Name) -> Ruling {
        self.first(|rules| rules.name(name)).unwrap_or_else(|| self.by_default())
    }

    /// How many characters of a name are of the sandbox's choice, if what decides about it is a rule
    /// about a whole domain: its owner hears them.
    pub(crate) fn below(&self, name: &Name) -> Option<usize> {
        let operators = self.operator.rules();
        if operators.name(name).is_some() { operators.below(name) } else { self.rules.below(name) }
    }

    /// Whether a name may be reached at a port. Where it leads is another question.
    pub fn name_at(&self, name: &Name, port: u16) -> Ruling {
        self.first(|rules| rules.name_at(name, port)).unwrap_or_else(|| self.by_default())
    }

    /// Whether this may be asked of a name that is reached at a port.
    pub fn request(&self, name: &Name, port: u16, request: &Readings) -> Ruling {
        let ruling = self.first(|rules| rules.request(name, port, request));
        ruling.unwrap_or_else(|| self.by_default())
    }

    /// The rule for which connections to a name have to be looked into at a port, if there is one.
    pub fn looks_into(&self, name: &Name, port: u16) -> Option<Arc<str>> {
        if self.operator.rules().name_at(name, port).is_some() {
            return None;
        }
        self.rules.looks_into(name, port).map(|rule| Arc::clone(&rule.written))
    }

    /// Whether a name may be reached at this address, which it resolved to. No rule need allow the
    /// address, but none may deny it, and a guarded one must be named by a rule or be the
    /// operator's word.
    pub fn resolved(&self, name: &Name, address: IpAddr, port: u16) -> Ruling {
        let named = self.name_at(name, port);
        if named.verdict == Verdict::Deny {
            return named;
        }
        match self.judge(address, port) {
            Judged::Rule(ruling) if ruling.verdict == Verdict::Deny => ruling,
            Judged::Rule(_) | Judged::Unguarded => named,
            Judged::Guarded(kind) if self.operator.opens(name, kind) => named,
            Judged::Guarded(kind) => deny(By::Guard(kind)),
        }
    }

    /// Whether an address may be reached by those who give no name.
    pub fn address(&self, address: IpAddr, port: u16) -> Ruling {
        match self.judge(address, port) {
            Judged::Rule(ruling) => ruling,
            Judged::Guarded(kind) => deny(By::Guard(kind)),
            Judged::Unguarded => self.by_default(),
        }
    }

    /// Whether datagrams may be sent to an address: only if a rule names it.
    pub fn datagram(&self, address: IpAddr, port: u16) -> Ruling {
        match self.judge(address, port) {
            Judged::Rule(ruling) => ruling,
            Judged::Guarded(kind) => deny(By::Guard(kind)),
            Judged::Unguarded => deny(By::Default),
        }
    }

    fn judge(&self, address: IpAddr, port: u16) -> Judged {
        let address = address.to_canonical();
        let forms = [Some(address), guard::translated(address).map(IpAddr::V4)];
        let forms: Vec<_> = forms.into_iter().flatten().collect();
        let guarded = guard::block(address, self.operator.host())
            .filter(|block| !self.operator.opens_block(&forms, *block));
        match self.first(|rules| rules.address(&forms, port, guarded)) {
            Some(ruling) => Judged::Rule(ruling),
            None => guarded.map_or(Judged::Unguarded, |Block { kind, .. }| Judged::Guarded(kind)),
        }
    }

    /// What the first rule says, the operator's before the policy's.
    fn first<'a>(&'a self, find: impl Fn(&'a Rules) -> Option<&'a Rule>) -> Option<Ruling> {
        let ruling = |rule: &Rule, by: fn(Arc<str>) -> By| Ruling {
            verdict: rule.verdict,
            by: by(Arc::clone(&rule.written)),
        };
        find(self.operator.rules())
            .map(|rule| ruling(rule, By::Operator))
            .or_else(|| find(&self.rules).map(|rule| ruling(rule, By::Rule)))
    }

    fn by_default(&self) -> Ruling {
        Ruling { verdict: self.default, by: By::Default }
    }
}

/// What rules and guard say about an address.
enum Judged {
    Rule(Ruling),
    Guarded(Guarded),
    /// No rule speaks of it, and nothing speaks against it.
    Unguarded,
}

fn deny(by: By) -> Ruling {
    Ruling { verdict: Verdict::Deny, by }
}

fn verdict(action: NetworkAction) -> Verdict {
    match action {
        NetworkAction::Allow => Verdict::Allow,
        NetworkAction::Deny => Verdict::Deny,
    }
}

/// Reads a rule, if it can ever match: what a sandbox sends to itself or to addresses that stand
/// for names meets no rule about addresses.
fn read(rule: &NetworkRule) -> Result<(Target, Scope), BadTarget> {
    let target = Target::parse(&rule.target)?;
    if let Target::Range(range) = target {
        if guard::LOOPBACK.iter().any(|own| own.holds(range)) {
            return Err(BadTarget::Itself);
        }
        if guard::SYNTHETIC.iter().any(|given| given.holds(range)) {
            return Err(BadTarget::Synthetic);
        }
        if rule.is_about_requests() {
            return Err(BadTarget::Nameless);
        }
    }
    Ok((target, Scope::new(rule)?))
}

/// How a rule is called: `example.com`, or `GET,HEAD example.com/a/*,/b`.
fn written(rule: &NetworkRule) -> String {
    const LONGEST: usize = 256;
    let methods = rule.methods.as_ref().map(|methods| methods.join(",").to_ascii_uppercase() + " ");
    let paths = rule.paths.as_ref().map(|paths| paths.join(","));
    let target = rule.target.trim();
    let place = match &rule.ports {
        Some(ports) => {
            let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
            let target = if target.contains(':') { format!("[{target}]") } else { target.into() };
            format!("{target}:{}", ports.join(","))
        }
        None => target.to_owned(),
    };
    let whole = format!("{}{place}{}", methods.unwrap_or_default(), paths.unwrap_or_default());
    whole.chars().take(LONGEST.max(target.len())).collect()
}
