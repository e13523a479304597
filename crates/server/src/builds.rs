//! Images that are built here.
//!
//! ```text
//!  body ──► spooled ──► context/ ──► plan ──► steps, each a sandbox of its own ──► image
//!                                               │ what it wrote is a layer
//!                                               └─► steps/ remembers it for the next build
//! ```
//!
//! A build is a stream of events that somebody reads: when nobody does any more, it ends. Whatever
//! is needed for one build alone lies below `scratch`, which is cleared at every start.

mod caches;
mod context;
mod fetch;
mod image;
mod keep;
mod lender;
mod mounts;
mod refusals;
mod run;
mod telling;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use osb_build::{Bench, Build, Cache, Caching, Context, Dockerfile, Plan, Wanted};
use osb_registry::{Platform, Reference};
use osb_sys::{
    fs::{self, PathError},
    rootless::Rights,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::{caches::Caches, context::Scratch, lender::Lender, telling::Telling};
pub(crate) use self::{caches::Most, context::Parcelled, telling::Lines};
use crate::{app::App, error::ApiError};

/// How many builds are at work at a time, and how many may wait beside them.
const AT_WORK: usize = 4;
const WAITING: usize = 32;
/// How many steps of one build are at work at a time.
const SIDE_BY_SIDE: usize = 4;

/// What all builds share.
#[derive(Debug)]
pub(crate) struct Builds {
    rights: Rights,
    /// What was done before, and need not be done again.
    pub(crate) steps: Cache,
    caches: Caches,
    scratch: PathBuf,
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Whoever throws away what is old holds this.
    tidying: tokio::sync::Mutex<()>,
}

/// A place among those who build.
#[derive(Debug)]
pub(crate) struct Ticket {
    _place: OwnedSemaphorePermit,
}

impl Builds {
    /// Opens what earlier builds left, and clears away what was for them alone.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, PathError> {
        let directory = data_dir.join("builds");
        let scratch = directory.join("scratch");
        for directory in [&directory, &scratch] {
            fs::create_private_dir_all(directory)?;
        }
        for name in fs::names(&scratch)? {
            drop(Scratch::found(&scratch, &name));
        }
        let rights = Rights::current().map_err(|error| PathError::new("use", &directory, error))?;
        Ok(Self {
            rights,
            steps: Cache::open(directory.join("steps"))?,
            caches: Caches::open(directory.join("caches"))?,
            scratch,
            places: Arc::new(Semaphore::new(AT_WORK + WAITING)),
            turns: Arc::new(Semaphore::new(AT_WORK)),
            tidying: tokio::sync::Mutex::default(),
        })
    }

    /// Takes a place, if there is one.
    pub(crate) fn enter(&self) -> Result<Ticket, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| ApiError::too_many_builds())?;
        Ok(Ticket { _place: place })
    }

    /// A file that is gone when it is closed.
    fn nameless_file(&self) -> Result<File, ApiError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(CWD, &self.scratch, flags, Mode::RUSR | Mode::WUSR);
        file.map(File::from).map_err(ApiError::internal)
    }
}

/// A build that can begin.
pub(crate) struct Ready {
    plan: Plan,
    context: Context,
    names: Vec<Reference>,
    caching: Caching,
    terms: lender::Terms,
    secrets: std::collections::BTreeMap<String, osb_build::Secret>,
    /// Gone when the build is over.
    scratch: Scratch,
    ticket: Ticket,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Ready {
    /// Checks everything that can be checked before anything is done.
    pub(crate) fn check(app: &App, parcelled: Parcelled, ticket: Ticket) -> Result<Self, ApiError> {
        let Parcelled { request, scratch } = parcelled;
        let path = request.dockerfile.as_deref().unwrap_or("Dockerfile");
        let context = Context::open(&scratch.context(), path)?;
        let text = match &request.content {
            Some(text) => text.clone().into_bytes(),
            None => context.dockerfile(path)?,
        };
        let file = Dockerfile::parse(path, &text)?;
        let mut wanted = Wanted::new();
        if let Some(text) = &request.platform {
            wanted.platform = Platform::parse(text).ok_or_else(|| {
                ApiError::invalid(format!("platform {text:?} is none: write linux/amd64"))
            })?;
        }
        wanted.target.clone_from(&request.target);
        wanted.args.clone_from(&request.args);
        wanted.labels.clone_from(&request.labels);
        wanted.epoch = request.source_date_epoch;
        let plan = Plan::new(file, wanted)?;
        let name = |name: &String| {
            Reference::parse(name)
                .ok()
                .filter(|reference| reference.digest().is_none())
                .ok_or_else(|| ApiError::invalid(format!("{name:?} cannot name an image")))
        };
        let names = request.names.iter().map(name).collect::<Result<_, _>>()?;
        let caching = if request.no_cache { Caching::Renew } else { Caching::Use };
        let secrets = context::secrets(&request.secrets)?;
        let terms = lender::Terms::check(app, request.network_policy, request.resource_limits)?;
        Ok(Self { plan, context, names, caching, terms, secrets, scratch, ticket })
    }

    /// Builds, and tells of it. When the answer is dropped, or is not read, the build ends.
    pub(crate) fn build(self, app: App) -> Lines {
        let telling = Telling::default();
        let told = telling.clone();
        let reconciler = app.reconciler.clone();
        let work = Box::pin(async move { self.work(&app, told).await });
        let (lines, overseen) = Lines::new(telling, work);
        reconciler.beside(overseen);
        lines
    }

    async fn work(self, app: &App, telling: Telling) -> osb_api::images::ImageEvent {
        let Self { plan, context, names, caching, terms, secrets, scratch, ticket } = self;
        let (Some(builds), Some(library)) = (&app.builds, app.reconciler.library()) else {
            return telling::failed(ApiError::no_builds());
        };
        let turn = builds.turns.acquire().await;
        let lender = Lender { app, builds, library, terms, telling: telling.clone() };
        let images = library.images();
        let bench =
            Bench::new(images, &lender, builds.steps.clone(), builds.rights, &builds.scratch);
        let work = Build {
            plan: &plan,
            context: &context,
            workshop: &bench,
            progress: &|event| telling.tell(telling::shown(event)),
            clock: &*app.clock,
            secrets: &secrets,
            names: &names,
            caching,
            side_by_side: SIDE_BY_SIDE,
        };
        let outcome = work.run().await;
        drop((bench, turn, ticket));
        scratch.clear().await;
        keep::tidy_later(app);
        match outcome {
            Ok(built) => telling::built(&built.digest, &names),
            Err(error) => telling::failed(error.into()),
        }
    }
}
