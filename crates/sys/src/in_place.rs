//! Short work that a disk might hold up.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

/// How many threads do such work at this moment while nobody has taken over from them.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Does it on this thread. For work that takes less time than another thread needs to begin with it.
///
/// As long as one thread is left for whatever else there is to do, nobody takes over from this one:
/// to wake somebody for that takes as long as the work itself.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let Ok(runtime) = Handle::try_current() else { return work() };
    if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
        return work();
    }
    let place = Place::take();
    if place.others + 1 < runtime.metrics().num_workers() {
        return work();
    }
    drop(place);
    tokio::task::block_in_place(work)
}

/// A thread that is busy.
struct Place {
    others: usize,
}

impl Place {
    fn take() -> Self {
        Self { others: BUSY.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// More of them than there are threads, each of which waits for the last task.
    #[test]
    fn whatever_is_held_up_others_go_on() {
        let workers = 2;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build();
        let runtime = runtime.unwrap();
        let (done, all_done) = mpsc::channel();
        let held_up: Vec<_> = (0..workers + 2)
            .map(|_| {
                let (go, gone) = mpsc::channel::<()>();
                let done = done.clone();
                runtime.spawn(async move {
                    in_place(|| gone.recv().unwrap());
                    done.send(()).unwrap();
                });
                go
            })
            .collect();
        runtime.spawn(async move {
            for go in held_up {
                go.send(()).unwrap();
            }
        });
        for _ in 0..workers + 2 {
            all_done.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        }
        assert_eq!(BUSY.load(Ordering::Relaxed), 0);
    }
}
