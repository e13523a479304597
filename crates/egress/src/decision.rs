use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use osb_api::SandboxId;

use crate::{Name, Ruling, Verdict, webhook::Told};

/// Who hears of every decision when it is made, and again of a connection when it has ended.
pub trait Witness: fmt::Debug + Send + Sync + 'static {
    /// Must not wait: somebody's connection does.
    fn saw(&self, decision: &Arc<Decision>);
}

/// What was decided about something that a sandbox tried, and what became of it.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Counts what a sandbox tried. What is told of again, such as a connection at its end, has
    /// the number that it had.
    pub number: u64,
    pub sandbox: SandboxId,
    /// When it was decided; the last time if that was more than once.
    pub at: Timestamp,
    pub what: Attempt,
    pub ruling: Ruling,
    /// How often the same was tried with the same outcome. In the numbers of its end are all of
    /// them together.
    pub times: u64,
    /// How it ended, once it has.
    pub end: Option<End>,
}

/// What a sandbox tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub protocol: Protocol,
    /// Whom it is for, if it is for a name.
    pub name: Option<Name>,
    /// Where it goes; unknown as long as a name is not resolved.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// What is asked of the host, of a connection that is looked into.
    pub request: Option<Asked>,
}

/// A request as it is written down: without its query, which may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub method: Box<str>,
    pub path: Box<str>,
    /// What its headers ask for as well.
    pub other_methods: Box<[Box<str>]>,
    pub other_paths: Box<[Box<str>]>,
    /// What became of the credentials that are bound to it.
    pub credentials: Option<CredentialUse>,
}

/// How credentials were used, or why not. Their names, and never what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialUse {
    pub names: Box<[Box<str>]>,
    pub outcome: CredentialOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialOutcome {
    /// The host had them, and answered with this status.
    Answered(u16),
    /// The host may have had them, and did not answer.
    Unanswered,
    /// Nobody had them, for this reason.
    Withheld(&'static str),
}

impl Asked {
    /// The most characters of either that are kept.
    const LONGEST: usize = 256;

    pub fn new(method: &str, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Self {
            method: Self::cut(method),
            path: Self::cut(path),
            other_methods: Box::default(),
            other_paths: Box::default(),
            credentials: None,
        }
    }

    /// The same, with what its headers ask for as well.
    #[must_use]
    pub fn with_others(self, methods: &[String], paths: &[String]) -> Self {
        let cut = |texts: &[String]| texts.iter().map(|text| Self::cut(text)).collect();
        Self { other_methods: cut(methods), other_paths: cut(paths), ..self }
    }

    fn cut(text: &str) -> Box<str> {
        text.chars().take(Self::LONGEST).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A question to a resolver. The port is that of the resolver.
    Dns,
    Tcp,
    Udp,
    /// A request on a connection that is looked into.
    Http,
    /// The use of a vault's credentials for such a request.
    Credential,
}

impl Protocol {
    pub const ALL: [Self; 5] = [Self::Dns, Self::Tcp, Self::Udp, Self::Http, Self::Credential];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Credential => "credential",
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Bytes from the sandbox.
    pub sent: u64,
    /// Bytes to the sandbox.
    pub received: u64,
    pub lasted: Duration,
    pub how: Ending,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By its ends.
    Done,
    /// It never came to be, although it was allowed: the other side could not be reached.
    Unreachable,
    /// The other side was reached, and did not prove who it is: it was sent nothing.
    Unverified,
    /// It was ended because of the ruling.
    Cut(Ruling),
}

impl Decision {
    /// Whether both ended, and differ only in numbers.
    fn is_like(&self, other: &Self) -> bool {
        let how = |decision: &Self| decision.end.as_ref().map(|end| end.how.clone());
        self.end.is_some()
            && self.what == other.what
            && self.ruling == other.ruling
            && how(self) == how(other)
    }

    fn add(&mut self, other: Option<&Self>) {
        self.times += other.map_or(0, |other| other.times);
        let other = other.and_then(|other| other.end.as_ref());
        if let (Some(end), Some(other)) = (&mut self.end, other) {
            end.sent += other.sent;
            end.received += other.received;
            end.lasted += other.lasted;
        }
    }
}

/// Whether those who watch should hear of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Fresh,
    /// They have heard of the same often enough.
    Stale,
}

/// The latest decisions about one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Names and connections.
    recent: Ring,
    /// Requests, which are many: they crowd out only each other.
    requests: Ring,
    /// What has not ended, also if others have taken its place among the latest: nobody hides how
    /// much he sent by trying many other things.
    open: HashMap<u64, Arc<Decision>>,
    counted: u64,
    turns: u64,
}

/// Entries, and when each of them was last touched.
type Ring = VecDeque<(u64, Arc<Decision>)>;

impl Log {
    const LONGEST: usize = 256;

    /// Notes a decision, and answers with it and whether those who watch should hear of it: of what
    /// repeats they do less and less often.
    pub(crate) fn note(
        &mut self,
        (sandbox, at): (SandboxId, Timestamp),
        what: Attempt,
        ruling: Ruling,
    ) -> (Arc<Decision>, News) {
        self.turns += 1;
        let ends = matches!(what.protocol, Protocol::Tcp | Protocol::Udp);
        let alone = ends && ruling.verdict == Verdict::Allow;
        let is_request = matches!(what.protocol, Protocol::Http | Protocol::Credential);
        let ring = if is_request { &mut self.requests } else { &mut self.recent };
        let same = |(_, known): &(u64, Arc<Decision>)| known.what == what && known.ruling == ruling;
        let known = if alone { None } else { ring.iter().rposition(same) };
        if let Some((_, mut known)) = known.and_then(|place| ring.remove(place)) {
            let decision = Arc::make_mut(&mut known);
            decision.times += 1;
            decision.at = at;
            let news = if decision.times.is_power_of_two() { News::Fresh } else { News::Stale };
            ring.push_back((self.turns, known.clone()));
            return (known, news);
        }
        self.counted += 1;
        let number = self.counted;
        let decision =
            Arc::new(Decision { number, sandbox, at, what, ruling, times: 1, end: None });
        if alone {
            self.open.insert(number, decision.clone());
        }
        push(ring, self.turns, decision.clone());
        (decision, News::Fresh)
    }

    /// Notes where a connection went and how it ended, and answers with that alone. It becomes one
    /// entry with the others that ended like it.
    pub(crate) fn ended(
        &mut self,
        number: u64,
        address: Option<IpAddr>,
        end: End,
    ) -> Option<Arc<Decision>> {
        self.turns += 1;
        let mut ended = self.open.remove(&number)?;
        self.recent.retain(|(_, known)| known.number != number);
        let decision = Arc::make_mut(&mut ended);
        decision.what.address = address.or(decision.what.address);
        decision.end = Some(end);
        let mut entry = ended.clone();
        if let Some(place) = self.recent.iter().rposition(|(_, known)| known.is_like(&ended)) {
            let same = self.recent.remove(place);
            Arc::make_mut(&mut entry).add(same.as_ref().map(|(_, known)| &**known));
        }
        push(&mut self.recent, self.turns, entry);
        Some(ended)
    }

    /// What is known still, in the order of what happened last.
    pub(crate) fn recent(&self) -> Vec<Decision> {
        let mut all: Vec<_> = self.recent.iter().chain(&self.requests).collect();
        all.sort_unstable_by_key(|(turn, _)| *turn);
        all.into_iter().map(|(_, decision)| Decision::clone(decision)).collect()
    }
}

fn push(ring: &mut Ring, turn: u64, decision: Arc<Decision>) {
    if ring.len() >= Log::LONGEST {
        ring.pop_front();
    }
    ring.push_back((turn, decision));
}

/// Numbers about everything that all sandboxes tried.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    allowed: [AtomicU64; Protocol::ALL.len()],
    denied: [[AtomicU64; REASONS.len()]; Protocol::ALL.len()],
    pub(crate) open: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) told: Arc<Told>,
}

/// The reasons by which denials are counted.
const REASONS: [&str; 7] = ["rule", "operator", "default", "guard", "mismatch", "limit", "binding"];

/// Numbers about everything that all sandboxes tried since the server started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// What was allowed, by protocol.
    pub allowed: Vec<(Protocol, u64)>,
    /// What was denied, by protocol and reason.
    pub denied: Vec<(Protocol, &'static str, u64)>,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes from sandboxes.
    pub sent: u64,
    /// Bytes to sandboxes.
    pub received: u64,
    /// Denials that the operator wants to hear of, by what became of that.
    pub told: [(&'static str, u64); 3],
}

impl Counters {
    pub(crate) fn count(&self, protocol: Protocol, ruling: &Ruling) {
        let reason = REASONS.iter().position(|reason| *reason == ruling.by.as_str());
        let counter = match ruling.verdict {
            Verdict::Allow => self.allowed.get(protocol as usize),
            Verdict::Deny => self.denied.get(protocol as usize).and_then(|by| by.get(reason?)),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut denied = Vec::new();
        for (protocol, counters) in Protocol::ALL.into_iter().zip(&self.denied) {
            for (reason, counter) in REASONS.into_iter().zip(counters) {
                denied.push((protocol, reason, counter.load(Relaxed)));
            }
        }
        let allowed = Protocol::ALL.into_iter().zip(&self.allowed);
        Counts {
            allowed: allowed.map(|(protocol, n)| (protocol, n.load(Relaxed))).collect(),
            denied,
            open: self.open.load(Relaxed),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            told: [
                ("delivered", self.told.delivered.load(Relaxed)),
                ("failed", self.told.failed.load(Relaxed)),
                ("dropped", self.told.dropped.load(Relaxed)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::By;

    fn attempt(name: &str, protocol: Protocol) -> Attempt {
        let name = Some(Name::parse(name).unwrap());
        Attempt { protocol, name, address: None, port: 443, request: None }
    }

    fn note(log: &mut Log, name: &str, verdict: Verdict) -> (u64, News) {
        let (ruling, what) = (Ruling { verdict, by: By::Default }, attempt(name, Protocol::Tcp));
        let (decision, news) = log.note((SandboxId::random(), Timestamp::UNIX_EPOCH), what, ruling);
        (decision.number, news)
    }

    #[test]
    fn denials_that_repeat_are_one_entry_and_told_of_less_and_less() {
        let mut log = Log::default();
        let told =
            (0..16).filter(|_| note(&mut log, "a.test", Verdict::Deny).1 == News::Fresh).count();
        assert_eq!(told, 5);
        note(&mut log, "b.test", Verdict::Deny);
        assert_eq!(note(&mut log, "a.test", Verdict::Deny).0, 1);
        let times: Vec<u64> = log.recent().iter().map(|decision| decision.times).collect();
        assert_eq!(times, [1, 17]);
    }

    #[test]
    fn every_allowed_connection_is_an_entry_that_learns_its_end() {
        let mut log = Log::default();
        let (first, _) = note(&mut log, "a.test", Verdict::Allow);
        let (second, _) = note(&mut log, "a.test", Verdict::Allow);
        assert_ne!(first, second);
        let end = End { sent: 1, received: 2, lasted: Duration::ZERO, how: Ending::Done };
        assert!(log.ended(first, None, end.clone()).is_some());
        let ends: Vec<_> = log.recent().into_iter().map(|decision| decision.end).collect();
        assert_eq!(ends, [None, Some(end.clone())]);
        let told = log.ended(second, None, end).unwrap();
        assert_eq!((told.times, told.end.as_ref().unwrap().received), (1, 2));
        let recent = log.recent();
        assert_eq!((recent.len(), recent[0].times), (1, 2));
        assert_eq!(recent[0].end.as_ref().unwrap().received, 4);
    }

    #[test]
    fn requests_that_repeat_are_one_entry_and_have_no_query() {
        let mut log = Log::default();
        for path in ["/a?token=1", "/a?token=2", "/b"] {
            let request = Some(Asked::new("GET", path));
            let what = Attempt { request, ..attempt("a.test", Protocol::Http) };
            let ruling = Ruling { verdict: Verdict::Allow, by: By::Rule("a.test".into()) };
            log.note((SandboxId::random(), Timestamp::UNIX_EPOCH), what, ruling);
        }
        let recent = log.recent();
        let paths = recent.iter().map(|it| (&*it.what.request.as_ref().unwrap().path, it.times));
        assert_eq!(paths.collect::<Vec<_>>(), [("/a", 2), ("/b", 1)]);
        assert_eq!(Asked::new("GET", &"/".repeat(1000)).path.len(), 256);
    }

    #[test]
    fn the_log_forgets_the_oldest() {
        let mut log = Log::default();
        for n in 0..1000 {
            note(&mut log, &format!("n{n}.test"), Verdict::Deny);
        }
        let recent = log.recent();
        assert_eq!((recent.len(), recent[0].number), (Log::LONGEST, 745));
    }

    #[test]
    fn whatever_else_is_tried_the_end_of_a_connection_is_told() {
        let mut log = Log::default();
        let (number, _) = note(&mut log, "a.test", Verdict::Allow);
        for n in 0..1000 {
            note(&mut log, &format!("n{n}.test"), Verdict::Deny);
        }
        let end = End { sent: 7, received: 0, lasted: Duration::ZERO, how: Ending::Done };
        let told = log.ended(number, None, end.clone()).unwrap();
        assert_eq!((told.number, told.end.as_ref()), (number, Some(&end)));
        let recent = log.recent();
        assert_eq!((recent.len(), recent.last().unwrap().number), (Log::LONGEST, number));
        assert!(log.ended(number, None, end.clone()).is_none(), "it ended twice");
        assert!(log.ended(2, None, end).is_none(), "what was denied has no end");
    }

    #[test]
    fn requests_crowd_out_no_connections() {
        let mut log = Log::default();
        let (number, _) = note(&mut log, "a.test", Verdict::Allow);
        for n in 0..1000 {
            let request = Some(Asked::new("GET", &format!("/{n}")));
            let what = Attempt { request, ..attempt("a.test", Protocol::Http) };
            let ruling = Ruling { verdict: Verdict::Allow, by: By::Default };
            log.note((SandboxId::random(), Timestamp::UNIX_EPOCH), what, ruling);
        }
        assert_eq!(log.recent().len(), Log::LONGEST + 1);
        let end = End { sent: 0, received: 0, lasted: Duration::ZERO, how: Ending::Done };
        assert!(log.ended(number, None, end).is_some());
        assert_eq!(log.recent().last().unwrap().number, number);
    }
}
