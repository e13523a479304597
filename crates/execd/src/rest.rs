use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use osb_sys::memory;
use tokio::{sync::Notify, time::sleep};

/// How long nothing must have been asked for.
const CALM: Duration = Duration::from_secs(3);

/// Gives memory back when nothing has been asked for a while: most sandboxes wait most of the time.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    asked: AtomicBool,
    resting: AtomicBool,
    end: Notify,
}

impl Rest {
    /// Something is asked for.
    pub(crate) fn disturb(&self) {
        self.asked.store(true, Ordering::Relaxed);
        if self.resting.swap(false, Ordering::Relaxed) {
            self.end.notify_one();
        }
    }

    /// Rests whenever there is time for it, for ever.
    pub(crate) async fn keep<Never>(&self) -> Never {
        loop {
            sleep(CALM).await;
            if self.asked.swap(false, Ordering::Relaxed) {
                continue;
            }
            memory::give_back();
            // Where the kernel does not say what is mapped, more stays mapped than is needed.
            drop(memory::release_code());
            self.resting.store(true, Ordering::Relaxed);
            self.end.notified().await;
        }
    }
}
