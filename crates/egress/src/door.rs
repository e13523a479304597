use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use osb_api::SandboxId;
use osb_core::{Clock as _, SystemClock};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::{
    Attempt, By, Decision, Name, Policy, Protocol, Ruling, Verdict,
    book::{Book, Unknown},
    decision::{End, Log, News},
    egress::House,
    limits::{Bucket, Turns},
    opened::Insight,
    passage::Passages,
};

/// Where everything of one sandbox comes by.
pub(crate) struct Door {
    pub(crate) id: SandboxId,
    pub(crate) house: Arc<House>,
    policy: RwLock<Arc<Policy>>,
    book: Mutex<Book>,
    passages: Mutex<Passages>,
    log: Mutex<Log>,
    /// Made for the first who watches.
    watchers: OnceLock<broadcast::Sender<Arc<Decision>>>,
    /// Ends everything that belongs to the sandbox.
    pub(crate) closed: CancellationToken,
    pub(crate) arrivals: Bucket,
    /// Datagrams in both directions. What comes in the meantime is lost, as datagrams may be.
    pub(crate) datagrams: Bucket,
    /// Questions to the resolver.
    pub(crate) questions: Bucket,
    /// Names that were not asked for before, below a domain that is allowed as a whole.
    pub(crate) strange_names: Bucket,
    /// Questions that are being answered.
    pub(crate) asking: Arc<Semaphore>,
    /// Streams by which questions may come.
    pub(crate) askers: Semaphore,
    /// How often connections pass on a little, which costs us as much as if it were more. Beyond that
    /// it comes later, and more at once.
    bits: Bucket,
    /// The same, of connections that are looked into.
    seen_bits: Bucket,
    pub(crate) turns: Turns,
    pub(crate) bandwidth: Option<Bucket>,
    /// Whom some of its connections are looked into for.
    pub(crate) insight: Insight,
}

/// Whom a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Name(Name),
    Address(IpAddr),
    /// Datagrams to an address.
    Datagrams(IpAddr),
}

impl Door {
    /// Datagrams a second for each processor that there is, and at once after a rest.
    const DATAGRAMS: (f64, f64) = (2_500.0, 1_000.0);
    /// How often a little is passed on in a second for each processor that there is, and at once after
    /// a rest.
    const BITS: (f64, f64) = (2_500.0, 1_000.0);
    const SEEN_BITS: (f64, f64) = (10_000.0, 1_000.0);
    /// What is more than a little.
    const MUCH: usize = 16 * 1024;
    /// Questions a second, and at once after a rest.
    const QUESTIONS: (f64, f64) = (500.0, 1000.0);
    /// Questions that are answered at the same time.
    const ASKING: usize = 64;
    const ASKERS: usize = 64;
    /// Decisions that wait for a watcher who is slow.
    const WAITING: usize = 1024;
    const STRANGE_NAMES: (f64, f64) = (2.0, 200.0);

    pub(crate) fn new(
        id: SandboxId,
        policy: Arc<Policy>,
        insight: Insight,
        house: Arc<House>,
    ) -> Self {
        let settings = &house.settings;
        let arrivals = f64::from(settings.new_connections.max(1));
        #[expect(clippy::cast_precision_loss, reason = "nobody counts bandwidth that precisely")]
        let bandwidth = settings.bandwidth.map(|rate| (rate.max(1024) as f64, rate as f64 / 10.0));
        Self {
            id,
            policy: RwLock::new(policy),
            book: Mutex::new(Book::anywhere()),
            passages: Mutex::default(),
            log: Mutex::default(),
            watchers: OnceLock::new(),
            closed: CancellationToken::new(),
            arrivals: Bucket::new(arrivals, arrivals * 2.0),
            datagrams: Bucket::new(Self::DATAGRAMS.0 * house.processors, Self::DATAGRAMS.1),
            questions: Bucket::new(Self::QUESTIONS.0, Self::QUESTIONS.1),
            strange_names: Bucket::new(Self::STRANGE_NAMES.0, Self::STRANGE_NAMES.1),
            asking: Arc::new(Semaphore::new(Self::ASKING)),
            askers: Semaphore::new(Self::ASKERS),
            bits: Bucket::new(Self::BITS.0 * house.processors, Self::BITS.1),
            seen_bits: Bucket::new(Self::SEEN_BITS.0, Self::SEEN_BITS.1),
            turns: Turns::new(),
            bandwidth: bandwidth.map(|(rate, burst)| Bucket::new(rate, burst.max(65536.0))),
            insight,
            house,
        }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_policy(&self, policy: Arc<Policy>) {
        let new = policy.clone();
        let mut now = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, policy);
        drop(now);
        drop(before);
        // Whoever enters from here on is judged by the new one.
        self.passages().cut_uncovered(&new);
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.passages().cut_all(&Ruling { verdict: Verdict::Deny, by: By::Default });
    }

    /// Pays for so many bytes that a connection has passed on, and says for how long it rests if all of
    /// them together pass on too much.
    pub(crate) fn pay(&self, bytes: usize) -> Option<Duration> {
        self.pay_from(&self.bits, bytes)
    }

    /// The same, for a connection that is looked into.
    pub(crate) fn pay_seen(&self, bytes: usize) -> Option<Duration> {
        self.pay_from(&self.seen_bits, bytes)
    }

    fn pay_from(&self, bits: &Bucket, bytes: usize) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "nobody counts bandwidth that precisely")]
        let paid = self.bandwidth.as_ref().and_then(|bandwidth| bandwidth.spend(bytes as f64));
        let paid = if bytes < Self::MUCH { paid.max(bits.spend(1.0)) } else { paid };
        paid.map(|rest| self.turns.after(rest))
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn passages(&self) -> MutexGuard<'_, Passages> {
        self.passages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom something is for that goes to an address.
    pub(crate) fn target(&self, address: IpAddr) -> Result<Target, Unknown> {
        match self.book().name(address) {
            Some(name) => name.map(Target::Name),
            None => Ok(Target::Address(address)),
        }
    }

    /// Writes down what was decided, and answers with its number in the log.
    pub(crate) fn note(&self, what: Attempt, ruling: Ruling) -> u64 {
        self.house.counters.count(what.protocol, &ruling);
        tracing::debug!(
            sandbox_id = %self.id,
            protocol = what.protocol.as_str(),
            name = what.name.as_ref().map(tracing::field::display),
            address = what.address.map(tracing::field::display),
            port = what.port,
            verdict = ?ruling.verdict,
            by = ?ruling.by,
            "decided what may leave"
        );
        let (decision, news) = self.log().note((self.id, SystemClock.now()), what, ruling);
        let number = decision.number;
        self.tell(decision, news);
        number
    }

    /// Writes down how something ended that was allowed.
    pub(crate) fn ended(&self, number: u64, address: Option<IpAddr>, end: End) {
        let ended = self.log().ended(number, address, end);
        if let Some(decision) = ended {
            self.tell(decision, News::Fresh);
        }
    }

    fn tell(&self, decision: Arc<Decision>, news: News) {
        if let Some(witness) = &self.house.settings.witness {
            witness.saw(&decision);
        }
        // Nobody may be watching.
        if news == News::Fresh {
            if let Some(watchers) = self.watchers.get() {
                drop(watchers.send(decision.clone()));
            }
            drop(self.house.watchers.send(decision));
        }
    }

    /// Decisions as they are made. Others have no part in them, and do not make anybody miss some.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Arc<Decision>> {
        self.watchers.get_or_init(|| broadcast::Sender::new(Self::WAITING)).subscribe()
    }

    pub(crate) fn recent(&self) -> Vec<Decision> {
        self.log().recent()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    /// What the policy says of it, as far as that is known before it is resolved.
    pub(crate) fn judge(&self, policy: &Policy, port: u16) -> Ruling {
        match self {
            Self::Name(name) => policy.name_at(name, port),
            Self::Address(address) => policy.address(*address, port),
            Self::Datagrams(address) => policy.datagram(*address, port),
        }
    }

    /// What the policy says of reaching it at an address.
    pub(crate) fn judge_at(&self, policy: &Policy, at: SocketAddr) -> Ruling {
        match self {
            Self::Name(name) => policy.resolved(name, at.ip(), at.port()),
            Self::Address(_) | Self::Datagrams(_) => self.judge(policy, at.port()),
        }
    }

    pub(crate) fn attempt(&self, port: u16) -> Attempt {
        let (protocol, name, address) = match self {
            Self::Name(name) => (Protocol::Tcp, Some(name.clone()), None),
            Self::Address(address) => (Protocol::Tcp, None, Some(*address)),
            Self::Datagrams(address) => (Protocol::Udp, None, Some(*address)),
        };
        Attempt { protocol, name, address, port, request: None }
    }
}
