//! The runtime itself: what it knows, and the [`Runtime`] seam. The verbs have files of their own.

mod adopt;
mod builds;
pub(crate) mod clear;
mod images;
mod make;
mod memory;
mod network;
mod pause;
mod pool;
mod printed;
mod reach;
mod snapshots;
mod stages;
pub(crate) mod tag;
mod usage;
mod volumes;

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use osb_api::SandboxId;
use osb_core::{
    Builds, Dialled, Exit, Memory, Network, Observed, ObservedState, Pause, PoolStatus, Printed,
    Runtime, RuntimeError, SandboxSpec, Snapshots, StageTimes, Usage, Volumes,
};
use osb_image::{Image, ImageError, Images};
use osb_sys::{
    cgroup::{Group, Layout},
    fs, memfd,
    netns::SocketOpener,
    outlets::Outlets,
    rootless::Rights,
    userns::IdBase,
};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::task::TaskTracker;

pub use self::pool::PoolConfig;
use self::pool::Pools;
use crate::{
    disk::Disks,
    ids::Ids,
    layout,
    sandbox::{DEFAULT_PIDS, Place, State},
    shelf::{self, Shelf},
    spawner::Spawner,
    volumes::Sources,
};

/// How many changes a slow watcher may fall behind before it misses some.
const NEWS: usize = 1024;

#[derive(Debug, Clone)]
pub struct Config {
    /// Where sandboxes, images and everything else of this runtime are kept.
    pub data_dir: PathBuf,
    /// The control group that holds all sandboxes, relative to the root of the tree.
    pub cgroup_parent: String,
    /// How much a sandbox may write that does not say; `None` is as much as there is.
    pub default_disk: Option<Memory>,
    /// A command that runs [`crate::spawner_main`] in a process of its own.
    pub spawner: Vec<String>,
    /// Which sandboxes are started before they are asked for.
    pub pools: Vec<PoolConfig>,
    /// Directories of the host that sandboxes may be shown, and what lies below them.
    pub host_paths: Vec<PathBuf>,
    /// What the operator says about images.
    pub images: osb_image::Settings,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use the data directory")]
    Data(#[source] fs::PathError),
    #[error("another server uses the data directory {}", .0.display())]
    InUse(PathBuf),
    #[error("cannot prepare the images")]
    Images(#[source] ImageError),
    #[error("cannot keep a pool that the configuration asks for")]
    Pool(#[source] ImageError),
    #[error("cannot learn the rights of this process")]
    Rights(#[source] io::Error),
    #[error("cannot use control groups")]
    Groups(#[source] io::Error),
    #[error("sandboxes that do not say cannot have the disk that is configured")]
    Disk(#[source] io::Error),
    #[error("cannot end the sandboxes of a trial")]
    Trial(#[source] io::Error),
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
    rights: Rights,
    layout: Layout,
    /// What tells the control groups of this data directory from those of others.
    tag: String,
    images: Images,
    disks: Disks,
    shelf: Shelf,
    volumes: Sources,
    spawner: Spawner,
    pools: Pools,
    stages: stages::Stages,
    sockets: SocketOpener,
    execd: File,
    known: Mutex<Known>,
    news: broadcast::Sender<Observed>,
    tasks: TaskTracker,
    /// What clears away the files of removed sandboxes.
    deletions: TaskTracker,
    /// Whoever measures volumes holds this: it takes the disk's time, and is nobody's hurry.
    measuring: Arc<tokio::sync::Mutex<()>>,
    /// Whoever takes a snapshot holds a permit.
    snapshots: Semaphore,
    /// Files for sandboxes that are to be made.
    lent: builds::Lending,
    /// Held for as long as this server lives, so that no other one manages the same sandboxes:
    /// the data directory, and its control group.
    locks: Vec<File>,
}

#[derive(Debug)]
struct Known {
    sandboxes: HashMap<SandboxId, Entry>,
    ids: Ids,
    /// Those that nobody has asked for yet.
    outlets: HashMap<SandboxId, Outlets>,
}

impl Known {
    fn new(rights: Rights) -> Self {
        Self { sandboxes: HashMap::new(), ids: Ids::new(rights), outlets: HashMap::new() }
    }

    fn take_ids(&mut self) -> Result<IdBase, RuntimeError> {
        let base = self.ids.take();
        let base = base.map_err(|error| RuntimeError::failed("cannot choose ids", error))?;
        base.ok_or_else(|| {
            RuntimeError::Busy("every range of user ids is in use on this host".to_owned())
        })
    }
}

#[derive(Debug, Clone)]
struct Entry {
    state: State,
    life: Life,
    /// What it stands on, which stays for as long as this is held.
    _image: Option<Image>,
    /// Whoever makes, removes, stops or keeps the sandbox holds this.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether it is to be removed, and nobody need wait for a snapshot of it.
    leaving: Arc<AtomicBool>,
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
    pub async fn start(config: Config, execd: &[u8]) -> Result<Arc<Self>, StartError> {
        let rights = Rights::current().map_err(StartError::Rights)?;
        let own = ["", "sandboxes", "pool", "removed"];
        for directory in own.into_iter().chain(shelf::DIRECTORIES) {
            fs::create_private_dir_all(config.data_dir.join(directory))
                .map_err(StartError::Data)?;
        }
        for directory in ["sandboxes", "pool"] {
            fs::spread(config.data_dir.join(directory));
        }
        fs::set_mode(&config.data_dir, 0o700).map_err(StartError::Data)?;
        let lock = lock(&config.data_dir)?;
        let images = config.data_dir.join("images");
        let images = Images::open(images, rights.ids_of_layers(), config.images.clone());
        let images = images.map_err(StartError::Images)?;
        for pool in &config.pools {
            pool::check(&images, &pool.image).map_err(StartError::Pool)?;
        }
        let disks = Disks::open(&config.data_dir, rights).map_err(StartError::Data)?;
        if let Some(limit) = config.default_disk {
            disks.check(limit).map_err(|unable| StartError::Disk(io::Error::other(unable)))?;
        }
        let volumes = Sources::open(&config.data_dir, config.host_paths.clone(), rights);
        let volumes = volumes.map_err(StartError::Data)?;
        let layout = layout::take(rights, &config.data_dir).map_err(StartError::Groups)?;
        let tag = tag::of(&config.data_dir).map_err(StartError::Data)?;
        layout
            .prepare(&format!("{}/{tag}", config.cgroup_parent))
            .map_err(|error| StartError::Groups(io::Error::other(error)))?;
        let held = tag::hold(&layout.group(&config.cgroup_parent, &tag), &config.data_dir)
            .map_err(StartError::Groups)?;
        let tasks = TaskTracker::new();
        let shelf = Shelf::new(&config.data_dir);
        let native = Self {
            inner: Arc::new(Inner {
                spawner: Spawner::start(config.spawner.clone(), &tasks),
                pools: Pools::new(&config.pools, config.default_disk),
                stages: stages::Stages::default(),
                sockets: SocketOpener::start().map_err(StartError::Execd)?,
                execd: memfd::sealed_program("execd", execd).map_err(StartError::Execd)?,
                known: Mutex::new(Known::new(rights)),
                news: broadcast::Sender::new(NEWS),
                config,
                rights,
                layout,
                tag,
                images,
                disks,
                shelf,
                volumes,
                tasks,
                deletions: TaskTracker::new(),
                measuring: Arc::default(),
                snapshots: Semaphore::new(snapshots::AT_ONCE),
                lent: builds::Lending::default(),
                locks: [Some(lock), held].into_iter().flatten().collect(),
            }),
        };
        native.adopt().await.map_err(StartError::Data)?;
        native.keep_pools();
        Ok(Arc::new(native))
    }

    /// Leaves the data directory, with the sandboxes in it as they are, to another server. This
    /// one must not be used any more.
    pub fn release(&self) -> io::Result<()> {
        drop(self.inner.pools.close());
        self.inner.locks.iter().try_for_each(File::unlock)
    }

    /// Waits until the files of all sandboxes that were removed so far are deleted.
    pub async fn deleted(&self) {
        self.inner.deletions.close();
        self.inner.deletions.wait().await;
        self.inner.deletions.reopen();
    }

    /// What sandboxes can be made of here.
    pub fn images(&self) -> &Images {
        &self.inner.images
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Whether sandboxes are in control groups, which count, limit and stop them.
    fn has_groups(&self) -> bool {
        self.inner.layout != Layout::None
    }

    /// Whether one that was started before it was asked for can have the limits of this spec.
    fn fits_warm(&self, spec: &SandboxSpec) -> bool {
        let fits = self.has_groups() || spec.resources.pids.is_none_or(|pids| pids == DEFAULT_PIDS);
        fits && self.inner.lent.of(spec.id).is_none()
    }

    fn sandboxes(&self) -> PathBuf {
        self.inner.config.data_dir.join("sandboxes")
    }

    fn removed(&self) -> PathBuf {
        self.inner.config.data_dir.join("removed")
    }

    fn place(&self, id: SandboxId) -> Place {
        match self.entry(id) {
            Some(entry) => self.place_of(&entry.state),
            None => self.place_in(&self.sandboxes(), id),
        }
    }

    fn place_of(&self, state: &State) -> Place {
        let id = state.spec.id;
        let group = match &state.group {
            Some(name) => self.group(name),
            None => self.group(&id.to_string()),
        };
        Place::new(&self.sandboxes(), id, group)
    }

    fn place_in(&self, directory: &Path, id: SandboxId) -> Place {
        Place::new(directory, id, self.group(&self.group_name(id)))
    }

    /// What the control group of a sandbox is called that is started with this id.
    fn group_name(&self, id: SandboxId) -> String {
        format!("{}/{id}", self.inner.tag)
    }

    fn group(&self, name: &str) -> Group {
        self.inner.layout.group(&self.inner.config.cgroup_parent, name)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: SandboxId) -> Option<Entry> {
        self.known().sandboxes.get(&id).cloned()
    }

    fn restate(&self, state: &State) {
        if let Some(entry) = self.known().sandboxes.get_mut(&state.spec.id) {
            entry.state = state.clone();
        }
    }

    fn set_life(&self, id: SandboxId, life: Life) {
        if let Some(entry) = self.known().sandboxes.get_mut(&id) {
            entry.life = life;
        }
    }

    fn observe(&self, id: SandboxId, entry: &Entry) -> Observed {
        let place = self.place_of(&entry.state);
        let state = match &entry.life {
            Life::Starting => ObservedState::Starting,
            Life::Over(exit) => ObservedState::Exited(*exit),
            Life::Up(_) if place.is_paused() => ObservedState::Paused,
            Life::Up(_) => ObservedState::Running,
        };
        Observed { id, state, oom_kills: place.group.oom_kills() }
    }

    fn tell(&self, id: SandboxId, state: ObservedState) {
        // Nobody listening is fine: the truth is in the world.
        drop(self.inner.news.send(Observed::new(id, state)));
    }

    fn forget(&self, id: SandboxId) {
        let mut known = self.known();
        if let Some(entry) = known.sandboxes.remove(&id) {
            known.ids.give_back(entry.state.base);
            known.outlets.remove(&id);
            self.release_volumes(&known, &entry.state.spec);
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
        let image = self.find_image(spec)?;
        let disk = spec.resources.disk.or(self.inner.config.default_disk);
        if let Some(limit) = disk {
            self.inner.disks.check(limit).map_err(RuntimeError::Invalid)?;
        }
        // Users are looked up in the files that it begins with: those of a snapshot come later.
        let begins = match spec.snapshot {
            None => Some(self.beginning(&image, &self.ground(&image))?),
            Some(_) => None,
        };
        let (state, warm, turn) = {
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
            let warm = self.fits_warm(spec).then(|| self.inner.pools.take(spec, &image, disk));
            let warm = warm.flatten();
            let (base, group) = match &warm {
                Some(warm) => (warm.base, self.group_name(warm.id())),
                None => (known.take_ids()?, self.group_name(spec.id)),
            };
            let stands_on = images::digest(&image);
            let state =
                State { spec: spec.clone(), base, disk, group: Some(group), image: stands_on };
            let turn = Arc::new(tokio::sync::Mutex::new(()));
            // Taken before anybody else can see the entry, so a removal waits for the making.
            let held = turn
                .clone()
                .try_lock_owned()
                .map_err(|error| RuntimeError::failed("cannot begin to make the sandbox", error))?;
            let leaving = Arc::default();
            let (life, stays) = (Life::Starting, Some(image.clone()));
            let entry = Entry { state: state.clone(), life, _image: stays, turn, leaving };
            known.sandboxes.insert(spec.id, entry);
            (state, warm, held)
        };
        let spoilt = match warm.zip(begins.as_ref()) {
            Some((warm, begins)) => match self.claim(warm, &state, begins) {
                Ok(claimed) => return Ok(claimed),
                Err(spoilt) => Some(spoilt),
            },
            None => None,
        };
        // In a task of its own: a caller that goes away must not leave it half made.
        let native = self.clone();
        let making = self.inner.tasks.spawn(async move {
            let made = native.make(state, image, begins, spoilt).await;
            drop(turn);
            made
        });
        making.await.map_err(|error| RuntimeError::failed("cannot start the sandbox", error))?
    }

    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(id) else { return Ok(()) };
        let native = self.clone();
        let removing = self.inner.tasks.spawn(async move {
            entry.leaving.store(true, Ordering::Relaxed);
            let turn = entry.turn.lock().await;
            native.wind_down(id).await;
            native.clear(&native.place(id)).await?;
            native.forget(id);
            drop(turn);
            if entry.state.spec.snapshot.is_some() {
                native.clear_shelf();
            }
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
        self.reach(id, port).await
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.inner.pools.status()
    }

    fn stages(&self) -> Vec<StageTimes> {
        self.inner.stages.tell()
    }

    async fn retire(&self) {
        self.empty_pools().await;
        self.leave_groups();
    }

    fn pause(&self) -> Option<&dyn Pause> {
        self.has_groups().then_some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        // A sandbox must stand still meanwhile.
        self.has_groups().then_some(self)
    }

    fn usage(&self) -> Option<&dyn Usage> {
        self.has_groups().then_some(self)
    }

    fn printed(&self) -> Option<&dyn Printed> {
        Some(self)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }

    fn builds(&self) -> Option<&dyn Builds> {
        Some(self)
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
