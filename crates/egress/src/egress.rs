use std::{
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, PoisonError, RwLock},
    thread::available_parallelism,
    time::Duration,
};

use osb_api::SandboxId;
use osb_core::{Outlets, SystemClock};
use rustix::process::{Resource, getrlimit};
use tokio::{
    runtime::Handle,
    sync::broadcast::{self, error::RecvError},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Counts, Decision, ExtraCa, OperatorError, Policy, RawOperator, Witness,
    datagrams::Datagrams,
    decision::Counters,
    door::Door,
    intercept::{Authority, Interceptor, Root},
    limits::Places,
    opened::Insight,
    operator::Amount,
    streams::{self, RESOLVER},
    upstream::{Resolvers, Upstream},
    vault::Vault,
    webhook::Webhook,
};

/// What may leave all sandboxes, and what has. Clones are the same.
#[derive(Clone)]
pub struct Egress {
    pub(crate) house: Arc<House>,
}

/// How much every sandbox may use of what they share, and where names are resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    pub resolvers: Resolvers,
    /// Connections of one sandbox at the same time.
    pub connections: usize,
    /// Connections that a sandbox may begin in a second. More wait.
    pub new_connections: u32,
    /// Bytes a second that a sandbox may send and receive, together, if that is limited.
    pub bandwidth: Option<u64>,
    /// How long it may take to connect to a host, all of its addresses together.
    pub connect_timeout: Duration,
    /// From what the authorities follow that vouch to sandboxes for hosts. A new one, if absent:
    /// then sandboxes of an earlier server do not trust this one.
    pub root: Option<Root>,
    /// Whom we and the sandboxes trust beside those whom the host and their images do.
    pub extra_ca: Option<ExtraCa>,
    /// Who is told of everything that is denied.
    pub deny_webhook: Option<Webhook>,
    /// Who hears of every decision.
    pub witness: Option<Arc<dyn Witness>>,
}

impl Settings {
    /// What the operator wrote, and the rest as it is without a word.
    pub fn new(raw: &RawOperator) -> Result<Self, OperatorError> {
        let resolver = |text: &String| {
            let alone = text.parse().map(|address| SocketAddr::new(address, RESOLVER));
            alone.or_else(|_| text.parse()).map_err(|_| OperatorError::Resolver(text.clone()))
        };
        let resolvers = raw.resolvers.iter().map(resolver).collect::<Result<Vec<_>, _>>()?;
        let deny_webhook = raw
            .deny_webhook
            .as_ref()
            .map(|url| Webhook::parse(url).ok_or(OperatorError::Webhook))
            .transpose()?;
        if raw.connections == Some(0) {
            return Err(OperatorError::Nothing("connections"));
        }
        if raw.new_connections == Some(0) {
            return Err(OperatorError::Nothing("new-connections"));
        }
        let default = Self::default();
        Ok(Self {
            deny_webhook,
            resolvers: match resolvers.as_slice() {
                [] => Resolvers::Host,
                _ => Resolvers::These(resolvers),
            },
            connections: raw.connections.unwrap_or(default.connections),
            new_connections: raw.new_connections.unwrap_or(default.new_connections),
            bandwidth: raw.bandwidth.as_ref().map(Amount::bytes).transpose()?,
            extra_ca: raw.extra_ca.as_deref().map(ExtraCa::read).transpose()?,
            ..default
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resolvers: Resolvers::Host,
            connections: 1024,
            new_connections: 500,
            bandwidth: None,
            connect_timeout: Duration::from_secs(10),
            root: None,
            extra_ca: None,
            deny_webhook: None,
            witness: None,
        }
    }
}

/// What the doors of all sandboxes share.
pub(crate) struct House {
    pub(crate) settings: Settings,
    pub(crate) upstream: Upstream,
    pub(crate) interceptor: Interceptor,
    pub(crate) root: Root,
    pub(crate) counters: Counters,
    pub(crate) watchers: broadcast::Sender<Arc<Decision>>,
    pub(crate) tasks: TaskTracker,
    /// For two descriptors each.
    pub(crate) places: Places,
    pub(crate) processors: f64,
    doors: RwLock<HashMap<SandboxId, Arc<Door>>>,
}

impl House {
    /// Decisions that wait for a watcher who is slow.
    const WAITING: usize = 1024;

    fn new(settings: Settings) -> io::Result<Self> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // Half is for everything else that the server does.
        let places = Places::new(usize::try_from(descriptors / 2 / 2).unwrap_or(usize::MAX));
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let secret = settings.root.clone().map_or_else(Root::random, Ok)?;
        let interceptor = Interceptor::new(settings.extra_ca.clone(), Arc::new(SystemClock));
        Ok(Self {
            upstream: Upstream::new(settings.resolvers.clone(), places.clone()),
            settings,
            counters: Counters::default(),
            watchers: broadcast::Sender::new(Self::WAITING),
            tasks: TaskTracker::new(),
            places,
            processors: u32::try_from(processors).map_or(1.0, f64::from),
            doors: RwLock::default(),
            interceptor,
            root: secret,
        })
    }
}

impl Egress {
    /// To be called inside of a runtime, which then does all the work.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Handle::try_current().map_err(io::Error::other)?;
        let house = Arc::new(House::new(settings)?);
        if let Some(webhook) = house.settings.deny_webhook.clone() {
            let interceptor = house.interceptor.clone();
            let decisions = house.watchers.subscribe();
            // It never ends by itself.
            let told = house.counters.told.clone();
            TaskTracker::new().spawn(webhook.run(decisions, interceptor, told));
        }
        Ok(Self { house })
    }

    /// What a sandbox must trust so that requests of its programs can be given credentials, as PEM.
    pub fn authority(&self, id: SandboxId) -> io::Result<String> {
        let authority = Authority::new(&self.house.root, id)?;
        Ok(authority.certificate().to_owned())
    }

    /// Whom every sandbox should trust, because the operator does, as PEM.
    pub fn extra_ca(&self) -> Option<&str> {
        self.house.settings.extra_ca.as_ref().map(ExtraCa::pem)
    }

    /// Begins to answer for everything that a sandbox sends. Whoever answered before is gone then.
    ///
    /// With a `vault`, requests get its credentials; the sandbox must trust its authority then, and
    /// if its policy has rules about requests.
    pub fn attend(
        &self,
        id: SandboxId,
        outlets: Outlets,
        policy: Arc<Policy>,
        vault: Option<Arc<Vault>>,
    ) -> io::Result<()> {
        let Outlets { streams, datagrams, answers } = outlets;
        let streams = tokio::net::TcpListener::from_std(streams)?;
        let door = Arc::new(Door::new(id, policy, Insight::new(vault), self.house.clone()));
        let datagrams = Datagrams::new(door.clone(), datagrams, answers)?;
        self.house.tasks.spawn(streams::accept(door.clone(), streams));
        self.house.tasks.spawn(datagrams.receive());
        let mut doors = self.house.doors.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = doors.insert(id, door) {
            earlier.close();
        }
        Ok(())
    }

    /// Replaces the policy of a sandbox. When this returns it is in force, and connections that it
    /// does not cover are cut. `false` if nobody attends to the sandbox.
    pub fn set_policy(&self, id: SandboxId, policy: Arc<Policy>) -> bool {
        let Some(door) = self.door(id) else { return false };
        door.set_policy(policy);
        true
    }

    /// Ends everything of a sandbox. From now on nothing leaves it.
    pub fn leave(&self, id: SandboxId) {
        let mut doors = self.house.doors.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.remove(&id) {
            door.close();
        }
    }

    /// Ends everything of all sandboxes, and waits until it is written down how each connection ended.
    pub async fn stop(&self) {
        /// Nothing takes as long that is cut.
        const PATIENCE: Duration = Duration::from_secs(5);
        let doors =
            std::mem::take(&mut *self.house.doors.write().unwrap_or_else(PoisonError::into_inner));
        for door in doors.values() {
            door.close();
        }
        self.house.tasks.close();
        if timeout(PATIENCE, self.house.tasks.wait()).await.is_err() {
            tracing::warn!("it is not known of all connections how they ended");
        }
    }

    /// The latest decisions about a sandbox, the oldest first; nothing if nobody attends to it.
    pub fn recent(&self, id: SandboxId) -> Vec<Decision> {
        self.door(id).map(|door| door.recent()).unwrap_or_default()
    }

    /// Decisions about all sandboxes as they are made. Who is too slow misses some.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Decision>> {
        self.house.watchers.subscribe()
    }

    /// Decisions about one sandbox as they are made; `None` if nobody attends to it.
    pub fn follow(&self, id: SandboxId) -> Option<Follow> {
        let door = self.door(id)?;
        Some(Follow { watch: door.watch(), closed: door.closed.clone() })
    }

    pub fn counts(&self) -> Counts {
        self.house.counters.counts()
    }

    /// A door without outlets.
    #[cfg(test)]
    pub(crate) fn door_for_tests(
        &self,
        id: SandboxId,
        policy: Arc<Policy>,
        vault: Option<Arc<Vault>>,
    ) -> Arc<Door> {
        let door = Arc::new(Door::new(id, policy, Insight::new(vault), self.house.clone()));
        self.house.doors.write().unwrap_or_else(PoisonError::into_inner).insert(id, door.clone());
        door
    }

    fn door(&self, id: SandboxId) -> Option<Arc<Door>> {
        self.house.doors.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Decisions about one sandbox, as they are made. Who is too slow misses some.
#[derive(Debug)]
pub struct Follow {
    watch: broadcast::Receiver<Arc<Decision>>,
    closed: CancellationToken,
}

impl Follow {
    /// The next decision, or nothing once nobody attends to the sandbox any more.
    pub async fn next(&mut self) -> Option<Arc<Decision>> {
        loop {
            let next = tokio::select! {
                biased;
                next = self.watch.recv() => next,
                () = self.closed.cancelled() => return None,
            };
            match next {
                Ok(decision) => return Some(decision),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("settings", &self.house.settings).finish_non_exhaustive()
    }
}
