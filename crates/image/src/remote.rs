//! Images between registries and the store.
//!
//! ```text
//!  registry ──► manifest, configuration
//!           ──► blobs, several side by side ──► written and hashed, a thread for each
//!                                                  │ several side by side, lowest first
//!                                                  ▼
//!                                               layers ──► the image ──► its name
//! ```
//!
//! Who asks for what somebody else is already asking for waits with them. When nobody waits any more
//! the pull ends; what has arrived stays, and the next one goes on from there.

mod blob;
mod flights;
mod leads;
mod progress;
mod pull;
mod push;

pub use progress::{LayerProgress, LayerStage, Phase, PullProgress};
pub use pull::{Pull, Pulled};
pub use push::PushProgress;

use std::sync::Arc;

use osb_registry::{Client, RegistryError};
use tokio::sync::Semaphore;

use crate::{ImageError, Images};

/// Pulls and pushes images. Copies share what is on its way.
#[derive(Debug, Clone)]
pub struct Remote {
    images: Images,
    client: Client,
    flights: Arc<flights::Flights>,
    leads: Arc<leads::Leads>,
    /// The right to unpack a layer before those below it are, which holds a thread until they are.
    ahead: Arc<Semaphore>,
}

/// How many layers of all pulls are unpacked before those below them are.
const MOST_AHEAD: usize = 32;

/// Why an image was not pulled or pushed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The registry did not give it, or not take it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The image cannot be kept here, or is not here.
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("the work was broken off")]
    Ended,
}

impl RemoteError {
    /// Whether the same may work in a while.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Registry(error) if error.is_transient())
    }
}

impl From<tokio::task::JoinError> for RemoteError {
    fn from(_: tokio::task::JoinError) -> Self {
        Self::Ended
    }
}

impl Remote {
    pub fn new(images: Images, client: Client) -> Self {
        let leads = Arc::new(leads::Leads::read(&images));
        let ahead = Arc::new(Semaphore::new(MOST_AHEAD));
        Self { images, client, flights: Arc::default(), leads, ahead }
    }

    pub fn images(&self) -> &Images {
        &self.images
    }

    pub fn client(&self) -> &Client {
        &self.client
    }
}

#[cfg(test)]
mod tests;
