mod network;
mod snapshots;
mod volumes;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use self::network::Sent;
use async_trait::async_trait;
use futures_core::stream::BoxStream;
use osb_api::{SandboxId, SnapshotId, ports};

use super::{Gate, Line, answer_ok, gate::Barrier, line::Hangup, news::News};
use crate::{
    Dialled, Exit, ImageName, Network, Observed, ObservedState, Pause, Printed, Runtime,
    RuntimeError, SandboxSpec, Snapshots, Usage, Used, Volumes,
};

/// A runtime whose world is this process's memory.
///
/// It keeps the whole contract of [`Runtime`], and tests can make the world misbehave. A sandbox
/// whose entrypoint is `true`, `false` or `sh -c "exit N"` ends at once, as it would elsewhere, and
/// so does `tail /dev/zero`, for lack of memory; one that begins with `echo WORD;` prints that first. Every other one runs until it is ended. Clones are further runtimes over the same world.
#[derive(Clone)]
pub struct FakeRuntime {
    world: Arc<World>,
    pauses: bool,
    snapshots: bool,
    network: bool,
}

/// A call that tests count and make fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    Ensure,
    Remove,
    List,
    Dial,
    Pause,
    Resume,
    TakeSnapshot,
    DeleteSnapshot,
    ListSnapshots,
    Outlets,
}

/// Text by path.
type Files = BTreeMap<String, String>;

#[derive(Default)]
struct World {
    state: Mutex<State>,
    news: News,
}

#[derive(Default)]
struct State {
    images: HashSet<ImageName>,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    snapshots: BTreeMap<SnapshotId, Files>,
    /// The volumes that are kept, and whether each goes with the last sandbox that uses it.
    volumes: BTreeMap<String, bool>,
    /// What listens in every sandbox.
    listeners: HashMap<u16, Listener>,
    gate: Option<Barrier>,
    /// As `gate`, for snapshots.
    shutter: Option<Barrier>,
    failures: HashMap<Call, VecDeque<RuntimeError>>,
    calls: HashMap<Call, usize>,
}

type Listener = Arc<dyn Fn(Line) + Send + Sync>;

struct Sandbox {
    /// What it was made from; an orphan was made by nobody.
    spec: Option<SandboxSpec>,
    state: ObservedState,
    oom_kills: u64,
    printed: Vec<u8>,
    files: Files,
    listeners: HashMap<u16, Listener>,
    hangups: Vec<Hangup>,
    /// Lines that arrived while the sandbox was paused, in order.
    unanswered: Vec<(Listener, Line)>,
    ends: network::Ends,
}

impl FakeRuntime {
    /// A world with no sandboxes and one image, `host`.
    pub fn new() -> Self {
        let runtime = Self { world: Arc::default(), pauses: true, snapshots: true, network: true };
        runtime.add_image("host");
        runtime.listen_everywhere(ports::EXECD, answer_ok);
        runtime
    }

    /// The same runtime without the power to pause.
    #[must_use]
    pub fn without_pause(self) -> Self {
        Self { pauses: false, ..self }
    }

    /// The same runtime without the power to answer for what sandboxes send.
    #[must_use]
    pub fn without_network(self) -> Self {
        Self { network: false, ..self }
    }

    pub fn add_image(&self, name: &str) {
        self.state().images.insert(ImageName::new(name));
    }

    /// Makes the next call of this kind fail. Several failures queue up.
    pub fn fail_next(&self, call: Call, error: RuntimeError) {
        self.state().failures.entry(call).or_default().push_back(error);
    }

    /// How often this was called, failures included.
    pub fn calls(&self, call: Call) -> usize {
        self.state().calls.get(&call).copied().unwrap_or_default()
    }

    /// Holds back every further `ensure`: its sandbox stays `Starting` until the gate opens.
    pub fn hold_ensures(&self) -> Gate {
        let (gate, barrier) = Gate::new();
        self.state().gate = Some(barrier);
        gate
    }

    /// Lets a service listen on a port of one sandbox. It is called on each dial, by the dialling
    /// task, and must not block.
    pub fn listen(&self, id: SandboxId, port: u16, serve: impl Fn(Line) + Send + Sync + 'static) {
        if let Some(sandbox) = self.state().sandboxes.get_mut(&id) {
            sandbox.listeners.insert(port, Arc::new(serve));
        }
    }

    /// Undoes [`FakeRuntime::listen`]. Streams that are open stay open.
    pub fn unlisten(&self, id: SandboxId, port: u16) {
        if let Some(sandbox) = self.state().sandboxes.get_mut(&id) {
            sandbox.listeners.remove(&port);
        }
    }

    /// Lets a service listen on a port of every sandbox, those to come included. On execd's port
    /// this replaces [`answer_ok`].
    pub fn listen_everywhere(&self, port: u16, serve: impl Fn(Line) + Send + Sync + 'static) {
        self.state().listeners.insert(port, Arc::new(serve));
    }

    /// Ends a sandbox as if its entrypoint had ended; its files stay.
    pub fn end(&self, id: SandboxId, exit: Exit) {
        self.become_state(id, ObservedState::Exited(exit));
    }

    /// Has the entrypoint of a sandbox print this, for [`Printed`].
    pub fn print(&self, id: SandboxId, text: &str) {
        if let Some(sandbox) = self.state().sandboxes.get_mut(&id) {
            sandbox.printed.extend_from_slice(text.as_bytes());
        }
    }

    /// Ends a process of a sandbox as the kernel does for lack of memory.
    pub fn run_out_of_memory(&self, id: SandboxId) {
        let observed = self.state().sandboxes.get_mut(&id).map(|sandbox| {
            sandbox.oom_kills += 1;
            sandbox.observed(id)
        });
        if let Some(observed) = observed {
            self.world.news.publish(&observed);
        }
    }

    /// Takes a sandbox out of the world without a word, as a reboot would.
    pub fn vanish(&self, id: SandboxId) {
        let gone = self.state().sandboxes.remove(&id);
        drop(gone);
    }

    /// Puts a running sandbox into the world that nobody asked for.
    pub fn add_orphan(&self) -> SandboxId {
        let id = SandboxId::random();
        self.state().sandboxes.insert(id, Sandbox::new(None, ObservedState::Running));
        self.publish(id, ObservedState::Running);
        id
    }

    /// The spec from which a sandbox was made, if it exists.
    pub fn spec(&self, id: SandboxId) -> Option<SandboxSpec> {
        self.state().sandboxes.get(&id)?.spec.clone()
    }

    /// The state of a sandbox, if it exists.
    pub fn observed(&self, id: SandboxId) -> Option<ObservedState> {
        self.state().sandboxes.get(&id).map(|sandbox| sandbox.state.clone())
    }

    /// Counts the call, and takes the failure that a test left for it.
    fn begin(&self, call: Call) -> Result<(), RuntimeError> {
        let mut state = self.state();
        *state.calls.entry(call).or_default() += 1;
        match state.failures.get_mut(&call).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Moves a sandbox to another state and says so, if it exists and is not there yet.
    fn become_state(&self, id: SandboxId, next: ObservedState) {
        let changed = {
            let mut state = self.state();
            state.sandboxes.get_mut(&id).is_some_and(|sandbox| sandbox.become_state(&next))
        };
        if changed {
            self.publish(id, next);
        }
    }

    fn publish(&self, id: SandboxId, state: ObservedState) {
        let mut observed = Observed::new(id, state);
        observed.oom_kills = self.state().sandboxes.get(&id).map_or(0, |sandbox| sandbox.oom_kills);
        self.world.news.publish(&observed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.world.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn freeze(&self, id: SandboxId, from: &ObservedState, to: ObservedState) -> PauseResult {
        match self.observed(id) {
            None => return Err(RuntimeError::NotFound(id)),
            Some(state) if state != *from && state != to => {
                return Err(RuntimeError::Invalid(format!("sandbox {id} is not running")));
            }
            Some(_) => {}
        }
        self.become_state(id, to);
        Ok(())
    }
}

type PauseResult = Result<(), RuntimeError>;

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FakeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let states = state.sandboxes.iter().map(|(id, sandbox)| (id, &sandbox.state));
        f.debug_map().entries(states).finish()
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Observed, RuntimeError> {
        self.begin(Call::Ensure)?;
        let gate = {
            let mut state = self.state();
            if let Some(existing) = state.sandboxes.get(&spec.id) {
                if existing.spec.as_ref() != Some(spec) {
                    return Err(RuntimeError::Conflict(spec.id));
                }
                return Ok(existing.observed(spec.id));
            }
            if !state.images.contains(&spec.image) {
                return Err(RuntimeError::UnknownImage(spec.image.clone()));
            }
            let mut sandbox = Sandbox::new(Some(spec.clone()), ObservedState::Starting);
            if let Some(id) = spec.snapshot {
                let files = state.snapshots.get(&id).ok_or(RuntimeError::UnknownSnapshot(id))?;
                sandbox.files.clone_from(files);
            }
            state.find_volumes(spec)?;
            state.sandboxes.insert(spec.id, sandbox);
            state.gate.clone()
        };
        if let Some(gate) = gate {
            self.publish(spec.id, ObservedState::Starting);
            gate.pass().await;
        }
        self.become_state(spec.id, ObservedState::Running);
        if hungry(&spec.entrypoint) {
            self.run_out_of_memory(spec.id);
        }
        if let [shell, option, script] = &*spec.entrypoint
            && (shell.as_str(), option.as_str()) == ("sh", "-c")
            && let Some(word) = script.strip_prefix("echo ").and_then(|rest| rest.split(';').next())
        {
            self.print(spec.id, &format!("{word}\n"));
        }
        if let Some(exit) = brief(&spec.entrypoint) {
            self.become_state(spec.id, ObservedState::Exited(exit));
        }
        let observed = self.state().sandboxes.get(&spec.id).map(|made| made.observed(spec.id));
        observed.ok_or_else(|| {
            RuntimeError::failed("start the sandbox", "it was removed while it started")
        })
    }

    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError> {
        self.begin(Call::Remove)?;
        let removed = self.state().sandboxes.remove(&id);
        self.state().release_volumes();
        if removed.is_some() {
            self.publish(id, ObservedState::Gone);
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Observed>, RuntimeError> {
        self.begin(Call::List)?;
        let state = self.state();
        Ok(state.sandboxes.iter().map(|(id, sandbox)| sandbox.observed(*id)).collect())
    }

    fn watch(&self) -> BoxStream<'static, Observed> {
        Box::pin(self.world.news.subscribe())
    }

    async fn dial(&self, id: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        self.begin(Call::Dial)?;
        let (caller, line) =
            Line::pair().map_err(|source| RuntimeError::failed("make a stream", source))?;
        let answer = {
            let mut state = self.state();
            let everywhere = state.listeners.get(&port).cloned();
            let sandbox = state.sandboxes.get_mut(&id).ok_or(RuntimeError::NotFound(id))?;
            let listener = sandbox.listeners.get(&port).cloned().or(everywhere);
            let refused = RuntimeError::Refused { id, port };
            sandbox.connect(listener.ok_or(refused)?, line, port, id)?
        };
        if let Some((listener, line)) = answer {
            listener(line);
        }
        Ok(Dialled::Unix(caller))
    }

    fn pause(&self) -> Option<&dyn Pause> {
        self.pauses.then_some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.snapshots.then_some(self)
    }

    fn usage(&self) -> Option<&dyn Usage> {
        Some(self)
    }

    fn printed(&self) -> Option<&dyn Printed> {
        Some(self)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        self.network.then_some(self)
    }
}

#[async_trait]
impl Usage for FakeRuntime {
    async fn usage(&self, id: SandboxId) -> Result<Used, RuntimeError> {
        let state = self.state();
        let sandbox = state.sandboxes.get(&id).ok_or(RuntimeError::NotFound(id))?;
        if !matches!(sandbox.state, ObservedState::Running | ObservedState::Paused) {
            return Err(RuntimeError::NotFound(id));
        }
        let limit = sandbox.spec.as_ref().and_then(|spec| spec.resources.disk);
        Ok(Used {
            cpu: Duration::from_millis(5),
            memory: 1 << 20,
            memory_peak: Some(2 << 20),
            processes: 2,
            disk: limit.map(|_| 4096),
        })
    }
}

#[async_trait]
impl Printed for FakeRuntime {
    async fn printed(&self, id: SandboxId) -> Result<Vec<u8>, RuntimeError> {
        let state = self.state();
        let sandbox = state.sandboxes.get(&id).ok_or(RuntimeError::NotFound(id))?;
        Ok(sandbox.printed.clone())
    }
}

#[async_trait]
impl Pause for FakeRuntime {
    async fn pause(&self, id: SandboxId) -> PauseResult {
        self.begin(Call::Pause)?;
        self.freeze(id, &ObservedState::Running, ObservedState::Paused)
    }

    async fn resume(&self, id: SandboxId) -> PauseResult {
        self.begin(Call::Resume)?;
        self.freeze(id, &ObservedState::Paused, ObservedState::Running)?;
        let unanswered = self
            .state()
            .sandboxes
            .get_mut(&id)
            .map(|sandbox| std::mem::take(&mut sandbox.unanswered));
        for (listener, line) in unanswered.into_iter().flatten() {
            listener(line);
        }
        Ok(())
    }
}

impl Sandbox {
    fn new(spec: Option<SandboxSpec>, state: ObservedState) -> Self {
        Self {
            spec,
            state,
            oom_kills: 0,
            printed: Vec::new(),
            files: Files::new(),
            listeners: HashMap::new(),
            hangups: Vec::new(),
            unanswered: Vec::new(),
            ends: network::Ends::default(),
        }
    }

    fn observed(&self, id: SandboxId) -> Observed {
        Observed { id, state: self.state.clone(), oom_kills: self.oom_kills }
    }

    /// Whether that was a change. What has ended stays ended, and its streams break.
    fn become_state(&mut self, next: &ObservedState) -> bool {
        let over = matches!(self.state, ObservedState::Exited(_));
        if over || self.state == *next {
            return false;
        }
        if matches!(next, ObservedState::Exited(_)) {
            self.hangups.clear();
            self.unanswered.clear();
        }
        self.state = next.clone();
        true
    }

    /// The listener and line to bring together now; none while the sandbox is paused, which keeps
    /// callers waiting as a frozen process does.
    fn connect(
        &mut self,
        listener: Listener,
        line: Line,
        port: u16,
        id: SandboxId,
    ) -> Result<Option<(Listener, Line)>, RuntimeError> {
        match self.state {
            ObservedState::Running => {
                self.keep(&line);
                Ok(Some((listener, line)))
            }
            ObservedState::Paused => {
                self.keep(&line);
                self.unanswered.push((listener, line));
                Ok(None)
            }
            ObservedState::Starting | ObservedState::Exited(_) | ObservedState::Gone => {
                Err(RuntimeError::Refused { id, port })
            }
        }
    }

    fn keep(&mut self, line: &Line) {
        self.hangups.retain(|hangup| !hangup.is_over());
        self.hangups.push(line.hangup());
    }
}

/// Whether an entrypoint begins with what takes all memory.
fn hungry(entrypoint: &[String]) -> bool {
    entrypoint.join(" ").trim_start_matches("sh -c ").starts_with("tail /dev/zero")
}

/// How an entrypoint ends that does nothing but end.
fn brief(entrypoint: &[String]) -> Option<Exit> {
    let words: Vec<&str> = entrypoint.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["true" | "/bin/true" | "/usr/bin/true"] => Some(Exit::Code(0)),
        ["false" | "/bin/false" | "/usr/bin/false"] => Some(Exit::Code(1)),
        ["tail", "/dev/zero"] => Some(Exit::OutOfMemory),
        ["sh" | "/bin/sh", "-c", script] => {
            let last = script.rsplit(';').next().unwrap_or_default().trim();
            last.strip_prefix("exit ")?.trim().parse().ok().map(Exit::Code)
        }
        _ => None,
    }
}
