//! What is ready, and what has become of it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_api::SandboxId;
use osb_core::{ImageName, Memory, PoolStatus, SandboxSpec};
use osb_image::Image;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{PoolConfig, Warm, are_same};

/// How long after a claim no other sandbox is started, while there are enough: the first commands
/// of a new sandbox are what its owner waits for.
const QUIET: Duration = Duration::from_millis(25);

/// How long a pool waits after a failure at first, and at most.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_mins(1);

/// All pools of this server.
#[derive(Debug)]
pub(in super::super) struct Pools {
    stock: Arc<Mutex<Stock>>,
    /// There may be something to do for the keeper.
    changed: Arc<Notify>,
    closed: CancellationToken,
    /// The keeper.
    pub(super) keeping: TaskTracker,
    /// How much each of them may write.
    disk: Option<Memory>,
}

#[derive(Debug, Default)]
struct Stock {
    pools: Vec<Pool>,
    /// How many sandboxes are being made for somebody who waits.
    creating: usize,
    last_claim: Option<Instant>,
    /// Warm ones that nobody can use any more.
    stale: Vec<Warm>,
    is_closed: bool,
}

#[derive(Debug)]
struct Pool {
    image: ImageName,
    /// What has this name now, if anything has.
    current: Option<Image>,
    size: usize,
    /// Oldest first.
    ready: VecDeque<Warm>,
    claims: u64,
    misses: u64,
    failures: u64,
    /// How many have failed since one was of use to somebody.
    in_a_row: u32,
    /// When the next may be started after one has failed.
    not_before: Option<Instant>,
}

/// What the keeper should do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this moment.
    At(Instant),
    /// Start a sandbox of this image.
    Start(ImageName),
}

/// Says that somebody waits for a sandbox to be made.
#[derive(Debug)]
pub(in super::super) struct Creating {
    stock: Arc<Mutex<Stock>>,
    changed: Arc<Notify>,
}

impl Pools {
    pub(in super::super) fn new(configs: &[PoolConfig], disk: Option<Memory>) -> Self {
        let pools = configs.iter().map(|PoolConfig { image, size, .. }| Pool {
            image: image.clone(),
            current: None,
            size: *size,
            ready: VecDeque::new(),
            claims: 0,
            misses: 0,
            failures: 0,
            in_a_row: 0,
            not_before: None,
        });
        let stock = Stock { pools: pools.collect(), ..Stock::default() };
        Self {
            stock: Arc::new(Mutex::new(stock)),
            changed: Arc::default(),
            closed: CancellationToken::new(),
            keeping: TaskTracker::new(),
            disk,
        }
    }

    /// A warm sandbox that can become the one that `spec` asks for, if there is one.
    pub(in super::super) fn take(
        &self,
        spec: &SandboxSpec,
        image: &Image,
        disk: Option<Memory>,
    ) -> Option<Warm> {
        // What else a sandbox can have must be there when its root is put together.
        if spec.snapshot.is_some() || !spec.volumes.is_empty() || disk != self.disk {
            return None;
        }
        let mut stock = self.lock();
        let Stock { pools, last_claim, .. } = &mut *stock;
        let is_of_it = |pool: &&mut Pool| {
            let current = pool.current.as_ref();
            pool.image == spec.image || current.is_some_and(|current| are_same(current, image))
        };
        let pool = pools.iter_mut().find(is_of_it)?;
        let fit = pool.ready.iter().position(|warm| are_same(&warm.image, image));
        let taken = fit.and_then(|at| pool.ready.remove(at));
        match taken {
            Some(_) => {
                pool.claims += 1;
                pool.in_a_row = 0;
                pool.not_before = None;
            }
            None => pool.misses += 1,
        }
        *last_claim = Some(Instant::now());
        self.changed.notify_one();
        taken
    }

    /// Marks for as long as it lives that somebody waits for a sandbox to be made.
    pub(in super::super) fn creating(&self) -> Creating {
        self.lock().creating += 1;
        Creating { stock: Arc::clone(&self.stock), changed: Arc::clone(&self.changed) }
    }

    /// How each pool fares.
    pub(in super::super) fn status(&self) -> Vec<PoolStatus> {
        let stock = self.lock();
        let status = |pool: &Pool| PoolStatus {
            image: pool.image.clone(),
            ready: pool.ready.len(),
            target: pool.size,
            claims: pool.claims,
            misses: pool.misses,
            failures: pool.failures,
        };
        stock.pools.iter().map(status).collect()
    }

    /// Starts nothing more, and hands over all that is ready, which ends if it is dropped.
    pub(in super::super) fn close(&self) -> Vec<Warm> {
        let mut stock = self.lock();
        stock.is_closed = true;
        let mut all = std::mem::take(&mut stock.stale);
        all.extend(stock.pools.iter_mut().flat_map(|pool| pool.ready.drain(..)));
        drop(stock);
        self.closed.cancel();
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().pools.is_empty()
    }

    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    pub(super) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    pub(super) fn stale(&self) -> Vec<Warm> {
        std::mem::take(&mut self.lock().stale)
    }

    /// Looks which images the names of the pools stand for now. What waits on others is stale.
    pub(super) fn compare(&self, find: impl Fn(&ImageName) -> Option<Image>) {
        let mut stock = self.lock();
        let Stock { pools, stale, .. } = &mut *stock;
        for pool in pools {
            let current = find(&pool.image);
            let is_current =
                |warm: &Warm| current.as_ref().is_some_and(|now| are_same(now, &warm.image));
            let (kept, old) = pool.ready.drain(..).partition(is_current);
            pool.ready = kept;
            stale.extend::<VecDeque<_>>(old);
            if pool.current.is_some() && current.is_none() {
                tracing::warn!(image = %pool.image, "the image of a pool is not here any more");
            }
            pool.current = current;
        }
    }

    /// The next thing to do: whichever pool lacks the largest part of its sandboxes comes first.
    pub(super) fn next(&self, now: Instant) -> Next {
        let stock = self.lock();
        let is_wanting = |pool: &&Pool| pool.current.is_some() && pool.ready.len() < pool.size;
        let is_held = |pool: &&Pool| pool.not_before.is_some_and(|moment| now < moment);
        let (held, free): (Vec<_>, Vec<_>) =
            stock.pools.iter().filter(is_wanting).partition(is_held);
        let emptiest = free.into_iter().min_by_key(|pool| pool.ready.len() * 1000 / pool.size);
        let Some(pool) = emptiest else {
            let first = held.iter().filter_map(|pool| pool.not_before).min();
            return first.map_or(Next::Rest, Next::At);
        };
        // Whoever waits for a sandbox needs the machine more; the end of it is a change.
        if stock.creating > 0 || stock.is_closed {
            return Next::Rest;
        }
        match stock.last_claim.map(|at| at + QUIET) {
            Some(quiet) if now < quiet && pool.ready.len() * 2 > pool.size => Next::At(quiet),
            _ => Next::Start(pool.image.clone()),
        }
    }

    /// Adds a warm sandbox, or gives it back if there is no place for it any more.
    pub(super) fn add(&self, image: &ImageName, warm: Warm) -> Result<(), Box<Warm>> {
        let mut stock = self.lock();
        if stock.is_closed {
            return Err(Box::new(warm));
        }
        match stock.pools.iter_mut().find(|pool| pool.image == *image) {
            Some(pool) if pool.ready.len() < pool.size && !warm.watcher.is_finished() => {
                pool.ready.push_back(warm);
            }
            _ => return Err(Box::new(warm)),
        }
        Ok(())
    }

    /// Takes out a warm sandbox that has ended, unless somebody has claimed it.
    pub(super) fn withdraw(&self, id: SandboxId) -> Option<Warm> {
        let mut stock = self.lock();
        let found = stock.pools.iter_mut().find_map(|pool| {
            let place = pool.ready.iter().position(|warm| warm.place.id == id)?;
            pool.fail();
            pool.ready.remove(place)
        });
        self.changed.notify_one();
        found
    }

    pub(super) fn count_failure(&self, image: &ImageName) {
        let mut stock = self.lock();
        if let Some(pool) = stock.pools.iter_mut().find(|pool| pool.image == *image) {
            pool.fail();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        lock(&self.stock)
    }
}

impl Pool {
    /// One could not be started, or has ended. The more of them, the longer it takes until the next.
    fn fail(&mut self) {
        let backoff = FIRST_BACKOFF.saturating_mul(1 << self.in_a_row.min(16)).min(LAST_BACKOFF);
        self.failures += 1;
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.not_before = Some(Instant::now() + backoff);
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        lock(&self.stock).creating -= 1;
        self.changed.notify_one();
    }
}

fn lock(stock: &Mutex<Stock>) -> MutexGuard<'_, Stock> {
    stock.lock().unwrap_or_else(PoisonError::into_inner)
}
