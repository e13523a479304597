//! What a sandbox uses.

use axum::{Json as JsonBody, extract::State};
use osb_api::{codes, lifecycle::SandboxUsage};
use osb_core::RuntimeError;

use crate::{app::App, error::ApiError, extract::Id};

/// Tells what a sandbox that runs or is paused uses.
pub(crate) async fn usage(
    State(app): State<App>,
    Id(id): Id,
) -> Result<JsonBody<SandboxUsage>, ApiError> {
    let phase = app.record(id)?.phase();
    let used = app.reconciler.usage(id).await.map_err(|error| match error {
        None => ApiError::not_implemented(
            codes::NOT_SUPPORTED,
            "the runtime of this server cannot tell what sandboxes use",
        ),
        Some(RuntimeError::NotFound(_)) => ApiError::conflict(
            codes::SANDBOX_NOT_RUNNING,
            format!("only a sandbox that runs or is paused uses anything, and this one is {phase}"),
        ),
        Some(error) => ApiError::internal(error),
    })?;
    Ok(JsonBody(SandboxUsage {
        cpu_time_ms: u64::try_from(used.cpu.as_millis()).unwrap_or(u64::MAX),
        memory_bytes: used.memory,
        memory_peak_bytes: used.memory_peak,
        processes: used.processes,
        disk_bytes: used.disk,
    }))
}
