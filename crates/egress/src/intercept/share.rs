//! How many requests of HTTP/2 may be under way.
//!
//! Each holds its head, and what neither side takes of it, in the server's memory. So all connections
//! of a sandbox share a number of them: the more are open, the less the next one gets.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all connections of a sandbox may have under way together, beside what each has.
const ALL: usize = 400;
/// What each of them has at least, and at most.
const LEAST: u32 = 2;
const MOST: u32 = 100;

/// The requests of HTTP/2 that a sandbox may have under way.
#[derive(Debug)]
pub(crate) struct Shares(Arc<Semaphore>);

impl Default for Shares {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

impl Shares {
    /// What the next connection may have, until that is dropped.
    pub(super) fn share(&self) -> Share {
        let left = u32::try_from(self.0.available_permits()).unwrap_or(u32::MAX);
        let more = (left / 4).min(MOST - LEAST);
        // If others were quicker, it has to do with less.
        Share(Arc::clone(&self.0).try_acquire_many_owned(more).ok())
    }
}

/// The requests that one connection may have under way.
#[derive(Debug)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    pub(super) fn requests(&self) -> u32 {
        let more = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        u32::try_from(more).map_or(MOST, |more| LEAST + more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_connections_there_are_their_requests_are_bounded() {
        let shares = Shares::default();
        let taken: Vec<_> = (0..1000).map(|_| shares.share()).collect();
        let counts: Vec<_> = taken.iter().map(Share::requests).collect();
        assert_eq!((counts[0], counts[999]), (MOST, LEAST));
        assert!(counts.iter().sum::<u32>() <= 400 + 1000 * LEAST);
        drop(taken);
        assert_eq!(shares.share().requests(), MOST);
    }
}
