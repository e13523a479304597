//! What the sandbox uses: counted by the kernel for its control group, asked when somebody asks.

mod counter;
mod limit;
mod place;
mod window;

use std::{
    convert::Infallible,
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::Response,
    routing::get,
};
use futures_util::stream;
use osb_api::execd::Metrics;
use osb_core::agent::{CgroupVersion, Counters};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use self::{
    counter::{CpuTime, MemoryUse},
    limit::{CpuLimit, MemoryLimit},
    window::Window,
};
use crate::{daemon::Daemon, error::ApiError, events::now, reply};

/// How often those who watch are told.
const EVERY: Duration = Duration::from_secs(1);

const MIB: f64 = 1_048_576.0;

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new().route("/metrics", get(snapshot)).route("/metrics/watch", get(watch))
}

/// The way to what the sandbox uses and may use. The files are opened once: they are the kernel's,
/// and nothing that happens to the names inside the sandbox matters to them.
#[derive(Debug)]
pub(crate) struct Meter {
    cpu: CpuTime,
    cpu_limits: Vec<CpuLimit>,
    memory: MemoryUse,
    memory_limits: Vec<MemoryLimit>,
    window: Mutex<Window>,
}

impl Meter {
    /// Reads the files that the runtime has handed over: processor time, memory, and its parts.
    pub(crate) fn handed(counters: Counters, [cpu, usage, stat]: [File; 3]) -> Self {
        let (cpu, memory) = match counters.version {
            CgroupVersion::V1 => (CpuTime::V1(cpu), MemoryUse::V1 { usage, stat }),
            CgroupVersion::V2 => (CpuTime::V2(cpu), MemoryUse::V2 { usage, stat }),
        };
        let cpu_limits = counters.cpu.map(CpuLimit::Fixed).into_iter().collect();
        let memory_limits = counters.memory.map(MemoryLimit::Fixed).into_iter().collect();
        Self::new(cpu, cpu_limits, memory, memory_limits)
    }

    /// Looks for the control group of this process, and takes the machine where there is none.
    pub(crate) fn found() -> Self {
        let place = place::Place::find();
        Self::new(place.cpu_time(), place.cpu_limits(), place.memory_use(), place.memory_limits())
    }

    fn new(
        cpu: CpuTime,
        cpu_limits: Vec<CpuLimit>,
        memory: MemoryUse,
        memory_limits: Vec<MemoryLimit>,
    ) -> Self {
        let used = cpu.read().unwrap_or_default();
        let window = Mutex::new(Window::new(Instant::now(), used));
        Self { cpu, cpu_limits, memory, memory_limits, window }
    }

    fn now(&self) -> io::Result<Metrics> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen_through(&mut window)
    }

    /// What is used now, the processors by comparison with what the window remembers.
    fn seen_through(&self, window: &mut Window) -> io::Result<Metrics> {
        let cpus = limit::cpus(&self.cpu_limits)?;
        let total = limit::memory(&self.memory_limits)?;
        let used = self.memory.read()?.min(total);
        let share = window.share(Instant::now(), self.cpu.read()?) / cpus;
        Ok(Metrics {
            cpu_count: cpus.ceil(),
            cpu_used_pct: (share * 100.0).clamp(0.0, 100.0),
            mem_total_mib: float(total) / MIB,
            mem_used_mib: float(used) / MIB,
            timestamp: now(),
        })
    }

    fn window(&self) -> Window {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[expect(clippy::cast_precision_loss, reason = "what is lost lies below any limit's precision")]
fn float(amount: u64) -> f64 {
    amount as f64
}

async fn snapshot(State(daemon): State<Arc<Daemon>>) -> Result<Response, ApiError> {
    daemon
        .meter
        .now()
        .map(|metrics| reply::json(&metrics))
        .map_err(|error| ApiError::runtime(&error))
}

/// Somebody who watches. Nothing is measured before they have taken what was.
struct Watch {
    daemon: Arc<Daemon>,
    window: Window,
    every: Interval,
}

async fn watch(State(daemon): State<Arc<Daemon>>) -> Response {
    let window = daemon.meter.window();
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = Watch { daemon, window, every };
    reply::events(Body::from_stream(stream::unfold(watch, |mut watch| async {
        tokio::select! {
            _ = watch.every.tick() => {}
            () = watch.daemon.ending.cancelled() => return None,
        }
        let line = watch.line();
        Some((Ok::<_, Infallible>(line), watch))
    })))
}

impl Watch {
    fn line(&mut self) -> Bytes {
        let line = match self.daemon.meter.seen_through(&mut self.window) {
            Ok(metrics) => serde_json::to_string(&metrics),
            Err(error) => serde_json::to_string(&serde_json::json!({"error": error.to_string()})),
        };
        let line = line.expect("invariant: numbers and text are always JSON");
        Bytes::from(line + "\n")
    }
}
