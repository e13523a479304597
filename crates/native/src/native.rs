use std::{
    collections::HashMap,
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use osb_api::{SandboxId, ports};
use osb_core::{Dialled, Exit, Observed, ObservedState, Pause, Runtime, RuntimeError, SandboxSpec};
use osb_image::{ImageError, Images, Rootfs};
use osb_sys::{cgroup::Layout, fs, memfd, netns::SocketOpener, process, ready, tree};
use tokio::sync::broadcast;
use tokio_util::task::TaskTracker;

use crate::{
    ids::Ids,
    sandbox::{Place, State},
    spawner::{Ended, Spawner, outcome},
};

/// How many changes a slow watcher may fall behind before it misses some.
const NEWS: usize = 1024;
/// How long an ended sandbox's control group may stay busy.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Config {
    /// Where sandboxes, images and everything else of this runtime are kept.
    pub data_dir: PathBuf,
    /// The control group that holds all sandboxes, relative to the root of the tree.
    pub cgroup_parent: String,
    /// A command that runs [`crate::spawner_main`] in a process of its own.
    pub spawner: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use the data directory")]
    Data(#[source] fs::PathError),
    #[error("another server uses the data directory {}", .0.display())]
    InUse(PathBuf),
    #[error("cannot prepare the images")]
    Images(#[source] ImageError),
    #[error("cannot use control groups")]
    Groups(#[source] io::Error),
    #[error("cannot prepare execd")]
    Execd(#[source] io::Error),
}

/// The runtime on this host.
#[derive(Debug, Clone)]
pub struct Native {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    layout: Layout,
    images: Images,
    spawner: Spawner,
    sockets: SocketOpener,
    execd: File,
    known: Mutex<Known>,
    news: broadcast::Sender<Observed>,
    tasks: TaskTracker,
    /// Held for as long as this server lives, so that no other one manages the same sandboxes.
    _lock: File,
}

#[derive(Debug, Default)]
struct Known {
    sandboxes: HashMap<SandboxId, Entry>,
    ids: Ids,
}

#[derive(Debug, Clone)]
struct Entry {
    state: State,
    life: Life,
    /// Whoever makes or removes the sandbox holds this.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Clone)]
enum Life {
    Starting,
    /// The descriptor of the first process.
    Up(Arc<OwnedFd>),
    Over(Exit),
}

impl Native {
    /// Opens the data directory, finds the sandboxes that are there, and is ready.
    ///
    /// Must be called within a tokio runtime.
    pub fn start(config: Config, execd: &[u8]) -> Result<Arc<Self>, StartError> {
        for directory in ["", "sandboxes", "removed", "stage"] {
            fs::create_dir_all(config.data_dir.join(directory)).map_err(StartError::Data)?;
        }
        fs::set_mode(&config.data_dir, 0o700).map_err(StartError::Data)?;
        let lock = lock(&config.data_dir)?;
        let images = Images::open(config.data_dir.join("images")).map_err(StartError::Images)?;
        let layout = Layout::find().map_err(StartError::Groups)?;
        layout
            .prepare(&config.cgroup_parent)
            .map_err(|error| StartError::Groups(io::Error::other(error)))?;
        let tasks = TaskTracker::new();
        let native = Self {
            inner: Arc::new(Inner {
                spawner: Spawner::start(config.spawner.clone(), &tasks),
                sockets: SocketOpener::start().map_err(StartError::Execd)?,
                execd: memfd::sealed_program("execd", execd).map_err(StartError::Execd)?,
                known: Mutex::default(),
                news: broadcast::Sender::new(NEWS),
                config,
                layout,
                images,
                tasks,
                _lock: lock,
            }),
        };
        native.adopt().map_err(StartError::Data)?;
        Ok(Arc::new(native))
    }

    /// Finds what an earlier server left.
    fn adopt(&self) -> Result<(), fs::PathError> {
        for name in fs::names(self.sandboxes())? {
            let Ok(id) = name.parse::<SandboxId>() else { continue };
            let place = self.place(id);
            let Ok(state) = place.state() else {
                // The crash came before anything was started.
                place.discard(&self.removed())?;
                continue;
            };
            let life = match (place.exit(), first_process(&place)) {
                (Some(exit), _) => Life::Over(exit),
                (None, Some(pidfd)) => Life::Up(Arc::new(pidfd)),
                (None, None) => Life::Over(Exit::Unknown),
            };
            let mut known = self.known();
            known.ids.claim(state.base);
            known.sandboxes.insert(id, Entry { state, life: life.clone(), turn: Arc::default() });
            drop(known);
            if let Life::Up(pidfd) = life {
                self.inner.tasks.spawn(self.clone().follow(place, pidfd, None));
            }
        }
        let removed = self.removed();
        self.inner.tasks.spawn_blocking(move || {
            for name in fs::names(&removed).unwrap_or_default() {
                delete(&removed.join(name));
            }
        });
        Ok(())
    }

    fn sandboxes(&self) -> PathBuf {
        self.inner.config.data_dir.join("sandboxes")
    }

    fn removed(&self) -> PathBuf {
        self.inner.config.data_dir.join("removed")
    }

    fn place(&self, id: SandboxId) -> Place {
        Place::new(&self.sandboxes(), &self.inner.layout, &self.inner.config.cgroup_parent, id)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: SandboxId) -> Option<Entry> {
        self.known().sandboxes.get(&id).cloned()
    }

    fn set_life(&self, id: SandboxId, life: Life) {
        if let Some(entry) = self.known().sandboxes.get_mut(&id) {
            entry.life = life;
        }
    }

    fn observe(&self, id: SandboxId, entry: &Entry) -> Observed {
        let state = match &entry.life {
            Life::Starting => ObservedState::Starting,
            Life::Over(exit) => ObservedState::Exited(*exit),
            Life::Up(_) if self.place(id).group.is_frozen() => ObservedState::Paused,
            Life::Up(_) => ObservedState::Running,
        };
        Observed { id, state }
    }

    fn tell(&self, id: SandboxId, state: ObservedState) {
        // Nobody listening is fine: the truth is in the world.
        drop(self.inner.news.send(Observed { id, state }));
    }

    /// Makes the sandbox. On failure everything made so far is taken back.
    async fn make(self, state: State, rootfs: Rootfs) -> Result<Observed, RuntimeError> {
        let id = state.spec.id;
        match self.try_make(&state, rootfs).await {
            Ok(()) => {
                self.tell(id, ObservedState::Running);
                Ok(Observed { id, state: ObservedState::Running })
            }
            Err(error) => {
                if let Err(left) = self.clear(&self.place(id)).await {
                    tracing::error!(sandbox_id = %id, error = %left, "cannot take back a sandbox that failed to start");
                }
                self.forget(id);
                Err(RuntimeError::failed("cannot start the sandbox", error))
            }
        }
    }

    async fn try_make(&self, state: &State, rootfs: Rootfs) -> io::Result<()> {
        let place = self.place(state.spec.id);
        let (theirs, ours) = (state.clone(), place.clone());
        let cover = self.inner.config.data_dir.join("stage");
        let prepared =
            self.inner.tasks.spawn_blocking(move || ours.prepare(&theirs, &rootfs, &cover)).await?;
        let (spawn, boot, listener) = prepared.map_err(io::Error::other)?;
        let (said, status) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let program = self.inner.execd.as_fd().try_clone_to_owned()?;
        let spawned = self.inner.spawner.spawn(spawn, [program, boot, listener, status]).await?;
        let pidfd = Arc::new(spawned.pidfd);
        self.set_life(state.spec.id, Life::Up(pidfd.clone()));
        if let Err(failure) = outcome(said).await? {
            return Err(io::Error::other(failure));
        }
        self.inner.tasks.spawn(self.clone().follow(place, pidfd, Some(spawned.pid)));
        Ok(())
    }

    /// Waits for the first process to end and says so. `child` is its number if our spawner made
    /// it and can tell how it ended.
    async fn follow(self, place: Place, pidfd: Arc<OwnedFd>, child: Option<i32>) {
        if let Err(error) = ended(&pidfd).await {
            tracing::error!(sandbox_id = %place.id, %error, "cannot watch the sandbox");
            return;
        }
        let status = match child {
            Some(pid) => self.inner.spawner.reap(pid).await.ok().flatten(),
            None => None,
        };
        let exit = match status {
            Some(Ended::Code(code)) => Exit::Code(code),
            Some(Ended::Signal(_)) if place.group.oom_kills() > 0 => Exit::OutOfMemory,
            Some(Ended::Signal(signal)) => Exit::Signal(signal),
            None => Exit::Unknown,
        };
        let mut known = self.known();
        let Some(entry) = known.sandboxes.get_mut(&place.id) else { return };
        entry.life = Life::Over(exit);
        drop(known);
        if let Err(error) = place.record(exit)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(sandbox_id = %place.id, %error, "cannot write down how the sandbox ended");
        }
        self.tell(place.id, ObservedState::Exited(exit));
    }

    /// Ends whatever runs in the sandbox, and removes its group and directory.
    async fn clear(&self, place: &Place) -> io::Result<()> {
        let running = match self.entry(place.id).map(|entry| entry.life) {
            Some(Life::Up(pidfd)) => Some(pidfd),
            Some(Life::Starting | Life::Over(_)) | None => None,
        };
        if let Some(pidfd) = running {
            process::kill(&pidfd)?;
            // A stopped process hears no signal before it goes on (cgroup v1).
            place.group.thaw().ok();
            ended(&pidfd).await?;
        }
        self.empty_group(place).await?;
        let (place, removed) = (place.clone(), self.removed());
        let aside = self.inner.tasks.spawn_blocking(move || place.discard(&removed)).await?;
        if let Some(aside) = aside.map_err(io::Error::other)? {
            // Deleting may take long; the sandbox is gone as soon as it has lost its name.
            self.inner.tasks.spawn_blocking(move || delete(&aside));
        }
        Ok(())
    }

    /// Removes the control group, ending what is still in it: after a crash that may be a process
    /// that had not yet become execd.
    async fn empty_group(&self, place: &Place) -> io::Result<()> {
        let deadline = tokio::time::Instant::now() + GROUP_PATIENCE;
        loop {
            for pid in place.group.processes() {
                if let Ok(pidfd) = process::open(pid)
                    && place.group.processes().contains(&pid)
                {
                    process::kill(&pidfd)?;
                }
            }
            match place.group.remove() {
                Ok(()) => return Ok(()),
                Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
                // The kernel takes ended processes out of their group a moment later, and tells
                // nobody when.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    fn forget(&self, id: SandboxId) {
        let mut known = self.known();
        if let Some(entry) = known.sandboxes.remove(&id) {
            known.ids.give_back(entry.state.base);
        }
    }

    fn up(&self, id: SandboxId) -> Result<Arc<OwnedFd>, RuntimeError> {
        match self.entry(id).map(|entry| entry.life) {
            Some(Life::Up(pidfd)) => Ok(pidfd),
            Some(Life::Starting | Life::Over(_)) | None => Err(RuntimeError::NotFound(id)),
        }
    }
}

#[async_trait]
impl Runtime for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Observed, RuntimeError> {
        let rootfs = match self.inner.images.find(&spec.image) {
            Ok(rootfs) => rootfs.clone(),
            Err(ImageError::Unknown(image)) => return Err(RuntimeError::UnknownImage(image)),
            Err(error @ ImageError::Store(_)) => {
                return Err(RuntimeError::failed("cannot find the image", error));
            }
        };
        let (state, turn) = {
            let mut known = self.known();
            if let Some(entry) = known.sandboxes.get(&spec.id) {
                let entry = entry.clone();
                drop(known);
                return if entry.state.spec == *spec {
                    Ok(self.observe(spec.id, &entry))
                } else {
                    Err(RuntimeError::Conflict(spec.id))
                };
            }
            let base = known.ids.take();
            let base = base.map_err(|error| RuntimeError::failed("cannot choose ids", error))?;
            let base = base.ok_or_else(|| {
                RuntimeError::Busy("every range of user ids is in use on this host".to_owned())
            })?;
            let state = State { spec: spec.clone(), base };
            let turn = Arc::new(tokio::sync::Mutex::new(()));
            // Taken before anybody else can see the entry, so a removal waits for the making.
            let held = turn
                .clone()
                .try_lock_owned()
                .map_err(|error| RuntimeError::failed("cannot begin to make the sandbox", error))?;
            let entry = Entry { state: state.clone(), life: Life::Starting, turn };
            known.sandboxes.insert(spec.id, entry);
            (state, held)
        };
        // In a task of its own: a caller that goes away must not leave it half made.
        let native = self.clone();
        let making = self.inner.tasks.spawn(async move {
            let made = native.make(state, rootfs).await;
            drop(turn);
            made
        });
        making.await.map_err(|error| RuntimeError::failed("cannot start the sandbox", error))?
    }

    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(id) else { return Ok(()) };
        let native = self.clone();
        let removing = self.inner.tasks.spawn(async move {
            let turn = entry.turn.lock().await;
            native.clear(&native.place(id)).await?;
            native.forget(id);
            drop(turn);
            native.tell(id, ObservedState::Gone);
            io::Result::Ok(())
        });
        let failed = |error: io::Error| RuntimeError::failed("cannot remove the sandbox", error);
        removing.await.map_err(|error| failed(error.into()))?.map_err(failed)
    }

    async fn list(&self) -> Result<Vec<Observed>, RuntimeError> {
        let names = fs::names(self.sandboxes())
            .map_err(|error| RuntimeError::failed("cannot list the sandboxes", error))?;
        let ids = names.iter().filter_map(|name| name.parse().ok());
        Ok(ids.filter_map(|id| Some(self.observe(id, &self.entry(id)?))).collect())
    }

    fn watch(&self) -> BoxStream<'static, Observed> {
        let news = self.inner.news.subscribe();
        Box::pin(futures_util::stream::unfold(news, |mut news| async move {
            loop {
                match news.recv().await {
                    Ok(observed) => return Some((observed, news)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        }))
    }

    async fn dial(&self, id: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        let pidfd = self.up(id)?;
        if port == ports::EXECD {
            return match self.place(id).connect() {
                Ok(stream) => Ok(Dialled::Unix(stream)),
                Err(error) if is_refusal(&error) => Err(RuntimeError::Refused { id, port }),
                Err(error) => Err(RuntimeError::failed("cannot reach execd", error)),
            };
        }
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            match self.connect(&pidfd, SocketAddr::new(address, port)).await {
                Ok(stream) => return Ok(Dialled::Tcp(stream)),
                Err(error) if is_refusal(&error) => {}
                Err(error) => {
                    return Err(RuntimeError::failed("cannot reach into the sandbox", error));
                }
            }
        }
        Err(RuntimeError::Refused { id, port })
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(self)
    }
}

impl Native {
    async fn connect(&self, pidfd: &OwnedFd, to: SocketAddr) -> io::Result<std::net::TcpStream> {
        let socket = self.inner.sockets.tcp(pidfd, to)?;
        let socket = tokio::net::TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        stream.into_std()
    }
}

#[async_trait]
impl Pause for Native {
    async fn pause(&self, id: SandboxId) -> Result<(), RuntimeError> {
        self.up(id)?;
        let group = self.place(id).group;
        group.freeze().map_err(|error| RuntimeError::failed("cannot pause the sandbox", error))?;
        self.tell(id, ObservedState::Paused);
        Ok(())
    }

    async fn resume(&self, id: SandboxId) -> Result<(), RuntimeError> {
        self.up(id)?;
        let group = self.place(id).group;
        group.thaw().map_err(|error| RuntimeError::failed("cannot resume the sandbox", error))?;
        self.tell(id, ObservedState::Running);
        Ok(())
    }
}

fn lock(data_dir: &Path) -> Result<File, StartError> {
    let path = data_dir.join("lock");
    let failed = |error| StartError::Data(fs::PathError::new("open", &path, error));
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StartError::InUse(data_dir.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// The first process of a sandbox, found by its control group.
fn first_process(place: &Place) -> Option<OwnedFd> {
    let pid = process::init_among(&place.group.processes())?;
    let pidfd = process::open(pid).ok()?;
    // The number may have gone to another process since; then that one is not in the group.
    let still = process::init_among(&place.group.processes()) == Some(pid);
    still.then_some(pidfd)
}

async fn ended(pidfd: &OwnedFd) -> io::Result<()> {
    // A descriptor of its own: one descriptor has one place in the event loop, and the follower
    // and a removal may both wait.
    let handle = ready::register(pidfd.try_clone()?, tokio::io::Interest::READABLE)?;
    drop(handle.readable().await?);
    Ok(())
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn delete(path: &Path) {
    if let Err(error) = tree::remove(path) {
        tracing::warn!(error = %error, "cannot delete what a removed sandbox left");
    }
}
