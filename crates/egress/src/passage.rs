use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rustix::net::{connect_unspec, sockopt};
use tokio::{net::TcpStream, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Asked, Attempt, By, Name, Policy, Protocol, Readings, Ruling, Verdict,
    decision::{End, Ending},
    dial::denied_alias,
    door::{Door, Target},
    limits::Place,
};

/// The connections of a sandbox that are open or being made.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    open: HashMap<u64, Open>,
    counted: u64,
}

#[derive(Debug)]
struct Open {
    target: Target,
    port: u16,
    /// The other names by which its own leads there.
    aliases: Arc<[Name]>,
    /// Where it goes, once that is decided: one that is looked into, to one place after the other.
    at: Vec<SocketAddr>,
    tether: Arc<Tether>,
}

/// What a connection hangs on.
#[derive(Debug, Default)]
struct Tether {
    cut: CancellationToken,
    why: OnceLock<Ruling>,
    pair: OnceLock<Arc<Pair>>,
    /// The requests under way, of a connection that is looked into, and how many there were.
    asked: Mutex<(HashMap<u64, Arc<Readings>>, u64)>,
}

/// Both ends of a connection that is passed on: that of the sandbox, and that of the host.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) inside: TcpStream,
    pub(crate) outside: TcpStream,
}

impl Tether {
    fn asked(&self) -> MutexGuard<'_, (HashMap<u64, Arc<Readings>>, u64)> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When this returns, nothing passes any more.
    fn cut(&self, why: &Ruling) {
        drop(self.why.set(why.clone()));
        if let Some(pair) = self.pair.get() {
            pair.sever();
        }
        self.cut.cancel();
    }
}

impl Pair {
    /// Breaks both ends off at once, while others still hold them.
    fn sever(&self) {
        for end in [&self.inside, &self.outside] {
            // To no address: the other side is sent a reset. One that is gone already needs none.
            connect_unspec(end).ok();
        }
    }
}

/// Lets the other side see that a connection was refused or broken, and not that it is complete.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    // At worst it looks complete.
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).ok();
}

/// Lets the other side see that a connection is complete.
pub(crate) fn finish_on_close(stream: &TcpStream) {
    // At worst it looks broken.
    sockopt::set_socket_linger(stream, None).ok();
}

impl Open {
    fn judge(&self, policy: &Policy) -> Ruling {
        let mut ruling = self.target.judge(policy, self.port);
        for at in &self.at {
            if ruling.verdict == Verdict::Deny {
                return ruling;
            }
            ruling = self.target.judge_at(policy, *at);
        }
        let Target::Name(name) = &self.target else { return ruling };
        if ruling.verdict == Verdict::Deny {
            return ruling;
        }
        if let Some(denied) = denied_alias(policy, &self.aliases, self.port) {
            return denied;
        }
        // What is passed on unseen, nobody looks into any more.
        if self.tether.pair.get().is_some()
            && let Some(rule) = policy.looks_into(name, self.port)
        {
            return Ruling { verdict: Verdict::Deny, by: By::Rule(rule) };
        }
        let asked = self.tether.asked();
        let rulings = asked.0.values().map(|request| policy.request(name, self.port, request));
        rulings.into_iter().find(|ruling| ruling.verdict == Verdict::Deny).unwrap_or(ruling)
    }
}

impl Passages {
    /// Cuts what a policy does not cover.
    pub(crate) fn cut_uncovered(&mut self, policy: &Policy) {
        for open in self.open.values() {
            let ruling = open.judge(policy);
            if ruling.verdict == Verdict::Deny {
                open.tether.cut(&ruling);
            }
        }
    }

    pub(crate) fn cut_all(&mut self, why: &Ruling) {
        for open in self.open.values() {
            open.tether.cut(why);
        }
    }
}

/// One connection of a sandbox, from its arrival on. It is counted as long as this lives, and the
/// name that it is for keeps its address.
pub(crate) struct Passage {
    door: Arc<Door>,
    key: u64,
    pub(crate) target: Target,
    pub(crate) port: u16,
    tether: Arc<Tether>,
    pub(crate) traffic: Traffic,
    began: Instant,
    _place: Place,
}

/// The bytes that a connection has carried.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl Traffic {
    /// In both directions.
    pub(crate) fn all(&self) -> u64 {
        self.sent.load(Relaxed) + self.received.load(Relaxed)
    }
}

impl Passage {
    pub(crate) fn enter(door: &Arc<Door>, target: &Target, port: u16) -> Option<Self> {
        let tether = Arc::<Tether>::default();
        let mut passages = door.passages();
        let open = passages.open.len();
        if open >= door.house.settings.connections {
            return None;
        }
        let place = door.house.places.take(open)?;
        passages.counted += 1;
        let key = passages.counted;
        let (aliases, at) = (Arc::default(), Vec::new());
        let open = Open { target: target.clone(), port, aliases, at, tether: tether.clone() };
        passages.open.insert(key, open);
        drop(passages);
        // Those that entered while the door was being closed were not cut with the others.
        if door.closed.is_cancelled() {
            tether.cut.cancel();
        }
        if let Target::Name(name) = target {
            door.book().hold(name);
        }
        door.house.counters.open.fetch_add(1, Relaxed);
        Some(Self {
            door: door.clone(),
            key,
            target: target.clone(),
            port,
            tether,
            traffic: Traffic::default(),
            _place: place,
            began: Instant::now(),
        })
    }

    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    /// Resolves once the connection must end.
    pub(crate) async fn cut(&self) {
        self.tether.cut.cancelled().await;
    }

    /// Why that is so; if nobody said it, the sandbox is gone.
    pub(crate) fn why_cut(&self) -> Ruling {
        let gone = || Ruling { verdict: Verdict::Deny, by: By::Default };
        self.tether.why.get().cloned().unwrap_or_else(gone)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.tether.cut.is_cancelled()
    }

    /// Says by which other names its own leads to its addresses. A policy that denies one of them cuts
    /// the connection from here on.
    pub(crate) fn leads_by(&self, aliases: &Arc<[Name]>) {
        if let Some(open) = self.door.passages().open.get_mut(&self.key) {
            open.aliases = Arc::clone(aliases);
        }
    }

    /// Asks the policy as it is now whether the connection may go there.
    pub(crate) fn may_reach(&self, at: SocketAddr) -> Result<(), Ruling> {
        self.judge(&self.door.passages(), Some(at))
    }

    /// The addresses that are settled are judged as well.
    fn judge(&self, passages: &Passages, at: Option<SocketAddr>) -> Result<(), Ruling> {
        let policy = self.door.policy();
        let whole = passages.open.get(&self.key).map(|open| open.judge(&policy));
        let rulings = [whole, at.map(|at| self.target.judge_at(&policy, at))];
        let denied = rulings.into_iter().flatten().find(|it| it.verdict == Verdict::Deny);
        match denied.or_else(|| self.tether.why.get().cloned()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Says where the connection goes, and asks the policy once more if it has changed meanwhile.
    pub(crate) fn settle(&self, at: SocketAddr, pair: Option<Arc<Pair>>) -> Result<(), Ruling> {
        if let Some(pair) = pair {
            drop(self.tether.pair.set(pair));
        }
        let mut passages = self.door.passages();
        if let Some(open) = passages.open.get_mut(&self.key)
            && !open.at.contains(&at)
        {
            open.at.push(at);
        }
        // A policy that is set from here on finds this connection with its address.
        self.judge(&passages, None)
    }

    /// Says that a request is under way, until what this returns is dropped.
    pub(crate) fn ask(passage: &Arc<Self>, request: Arc<Readings>) -> Asking {
        let mut asked = passage.tether.asked();
        asked.1 += 1;
        let number = asked.1;
        asked.0.insert(number, request);
        Asking { tether: passage.tether.clone(), number }
    }

    /// Writes down what was decided about a request.
    pub(crate) fn note(&self, protocol: Protocol, asked: Asked, ruling: Ruling) {
        let attempt = self.target.attempt(self.port);
        self.door.note(Attempt { protocol, request: Some(asked), ..attempt }, ruling);
    }

    /// Writes down how it ended.
    pub(crate) fn end(&self, number: u64, at: Option<SocketAddr>, how: Ending) {
        let how = match self.tether.why.get() {
            Some(why) => Ending::Cut(why.clone()),
            None => how,
        };
        let (sent, received) =
            (self.traffic.sent.load(Relaxed), self.traffic.received.load(Relaxed));
        let end = End { sent, received, lasted: self.began.elapsed(), how };
        // Whoever is cut off did not come to say where it went.
        let at = at.or_else(|| self.door.passages().open.get(&self.key)?.at.first().copied());
        self.door.ended(number, at.map(|at| at.ip()), end);
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Asking {
    tether: Arc<Tether>,
    number: u64,
}

impl Asking {
    /// It is under way as long as its connection.
    pub(crate) fn stay(self) {
        let mut asked = self.tether.asked();
        if let Some(request) = asked.0.remove(&self.number) {
            // Nobody counts that far.
            asked.0.insert(u64::MAX, request);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.tether.asked().0.remove(&self.number);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.door.passages().open.remove(&self.key);
        self.door.house.counters.open.fetch_sub(1, Relaxed);
        if let Target::Name(name) = &self.target {
            self.door.book().let_go(name);
        }
    }
}
