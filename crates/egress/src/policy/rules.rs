use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use osb_api::lifecycle::NetworkRule;

use super::{
    range::{Range, cut},
    readings::Readings,
    requests::Requests,
    target::{BadTarget, Target},
};
use crate::{Name, Verdict, guard::Block};

/// The most ports that one rule names.
const MOST_PORTS: usize = 64;
/// The ports of HTTP, which a rule about requests is about if it names none.
const HTTP_PORTS: [u16; 2] = [80, 443];

/// Rules in order of precedence, found by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    all: Vec<Rule>,
    /// By name, and by the domain that names are below: the numbers of the rules, ascending.
    names: HashMap<Name, Vec<usize>>,
    below: HashMap<Box<str>, Vec<usize>>,
    /// By range, and the lengths that ranges of IPv4 and IPv6 have.
    ranges: HashMap<Range, Vec<usize>>,
    lengths: (BTreeSet<u8>, BTreeSet<u8>),
}

/// What one rule says about its target.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) verdict: Verdict,
    /// As it was written.
    pub(crate) written: Arc<str>,
    /// The domain, if it is about all names below one.
    domain: Option<Name>,
    scope: Scope,
}

/// What of a target a rule is about.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// All if absent.
    ports: Option<BTreeSet<u16>>,
    /// With ports always.
    requests: Option<Requests>,
}

impl Scope {
    pub(crate) fn new(rule: &NetworkRule) -> Result<Self, BadTarget> {
        let requests = Requests::new(rule.methods.as_deref(), rule.paths.as_deref())?;
        let usual = requests.as_ref().map(|_| HTTP_PORTS.as_slice());
        let Some(ports) = rule.ports.as_deref().or(usual) else { return Ok(Self::default()) };
        if ports.is_empty() || ports.len() > MOST_PORTS || ports.contains(&0) {
            return Err(BadTarget::Ports);
        }
        Ok(Self { ports: Some(ports.iter().copied().collect()), requests })
    }

    fn has(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }
}

impl Rules {
    /// Adds a rule behind all others.
    pub(crate) fn push(&mut self, verdict: Verdict, written: &str, target: Target, scope: Scope) {
        let number = self.all.len();
        let domain = if let Target::Below(name) = &target { Some(name.clone()) } else { None };
        let same = match target {
            Target::Name(name) => self.names.entry(name).or_default(),
            Target::Below(name) => self.below.entry(name.as_str().into()).or_default(),
            Target::Range(range) => {
                let (v4, v6) = &mut self.lengths;
                if range.is_v4() { v4 } else { v6 }.insert(range.length());
                self.ranges.entry(range).or_default()
            }
        };
        same.push(number);
        self.all.push(Rule { verdict, written: written.trim().into(), domain, scope });
    }

    /// What was written, in its order.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Verdict, &str)> {
        self.all.iter().map(|rule| (rule.verdict, &*rule.written))
    }

    /// The first rule about a name at a port, or by which some request there may be allowed.
    pub(crate) fn name_at(&self, name: &Name, port: u16) -> Option<&Rule> {
        self.first(self.about(name), |rule| {
            let denies_some = rule.verdict == Verdict::Deny && rule.scope.requests.is_some();
            rule.scope.has(port) && !denies_some
        })
    }

    /// The first rule about a request to a name.
    pub(crate) fn request(&self, name: &Name, port: u16, request: &Readings) -> Option<&Rule> {
        self.first(self.about(name), |rule| {
            let fits = |requests: &Requests| requests.fits(rule.verdict, request);
            rule.scope.has(port) && rule.scope.requests.as_ref().is_none_or(fits)
        })
    }

    /// The first rule about a name at a port, if it is about requests: who keeps it has to look
    /// into connections.
    pub(crate) fn looks_into(&self, name: &Name, port: u16) -> Option<&Rule> {
        let first = self.first(self.about(name), |rule| rule.scope.has(port))?;
        first.scope.requests.is_some().then_some(first)
    }

    /// The first rule by which a name is reached at some port, or after which it is at none.
    pub(crate) fn name(&self, name: &Name) -> Option<&Rule> {
        let mut numbers: Vec<_> = self.about(name).flatten().copied().collect();
        numbers.sort_unstable();
        let mut denied = BTreeSet::new();
        numbers.into_iter().filter_map(|number| self.all.get(number)).find(|rule| {
            match (&rule.scope.ports, rule.verdict) {
                (None, _) => true,
                (Some(ports), Verdict::Allow) => !ports.is_subset(&denied),
                (Some(_), Verdict::Deny) if rule.scope.requests.is_some() => false,
                (Some(ports), Verdict::Deny) => {
                    denied.extend(ports);
                    false
                }
            }
        })
    }

    /// The first rule about an address, in any of its forms, at a port. If the address is guarded,
    /// rules that allow more than its block do not speak of it.
    pub(crate) fn address(
        &self,
        forms: &[IpAddr],
        port: u16,
        guarded: Option<Block>,
    ) -> Option<&Rule> {
        let (v4, v6) = &self.lengths;
        let ranges = forms.iter().flat_map(|form| {
            let lengths = if form.is_ipv4() { v4 } else { v6 };
            lengths.iter().filter_map(|length| Range::new(cut(*form, *length), *length))
        });
        let found = ranges.filter_map(|range| {
            let names_it = guarded.is_none_or(|block| block.range.holds(range));
            let speaks =
                |rule: &Rule| rule.scope.has(port) && (rule.verdict == Verdict::Deny || names_it);
            self.ranges
                .get(&range)?
                .iter()
                .copied()
                .find(|number| self.all.get(*number).is_some_and(speaks))
        });
        self.all.get(found.min()?)
    }

    /// How many characters of a name are below the domain by which the first rule is about it.
    pub(crate) fn below(&self, name: &Name) -> Option<usize> {
        let domain = self.name(name)?.domain.as_ref()?;
        Some(name.as_str().len().saturating_sub(domain.as_str().len() + 1))
    }

    fn about(&self, name: &Name) -> impl Iterator<Item = &Vec<usize>> {
        let below = name.domains().filter_map(|domain| self.below.get(domain));
        self.names.get(name).into_iter().chain(below)
    }

    fn first<'a>(
        &self,
        lists: impl Iterator<Item = &'a Vec<usize>>,
        speaks: impl Fn(&Rule) -> bool,
    ) -> Option<&Rule> {
        let speaks = |number: &&usize| self.all.get(**number).is_some_and(&speaks);
        let found = lists.filter_map(|numbers| numbers.iter().find(speaks)).min()?;
        self.all.get(*found)
    }
}
