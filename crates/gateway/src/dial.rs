use std::sync::Arc;

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Dialled, Runtime, RuntimeError};

/// Opens the streams of a gateway. From outside of a sandbox a runtime does that; from inside it
/// takes no more than to connect.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Opens a stream to a port inside the sandbox, as [`Runtime::dial`] does.
    async fn dial(&self, sandbox: SandboxId, port: u16) -> Result<Dialled, RuntimeError>;
}

#[async_trait]
impl<R: Runtime + ?Sized> Dial for Arc<R> {
    async fn dial(&self, sandbox: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        Runtime::dial(&**self, sandbox, port).await
    }
}
