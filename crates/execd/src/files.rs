//! Files of the sandbox.

mod download;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod info;
mod line_range;
mod range;
mod remove;
mod replace;
mod upload;

pub(crate) use download::download;
pub(crate) use info::info;
pub(crate) use remove::remove;
pub(crate) use upload::upload;

use crate::error::ApiError;

/// Runs file operations where they may take long, as on a network file system, without holding up
/// anything else.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ApiError::runtime(&error)),
    }
}
