//! What dial promises.

use std::time::{Duration, Instant};

use osb_api::ports;

use super::{Breach, Trial, breach::hold};
use crate::RuntimeError;

/// Nothing listens here in a sandbox that only runs its entrypoint.
const DEAD: u16 = 9;
/// A refusal that takes longer was not one at once.
const AT_ONCE: Duration = Duration::from_secs(1);

pub(super) async fn dialling_reaches_execd(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    trial.ping(&spec).await?;
    trial.ping(&spec).await
}

pub(super) async fn a_dead_port_is_refused_at_once(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    let begun = Instant::now();
    let outcome = trial.runtime.dial(spec.id, DEAD).await;
    let refused = matches!(outcome, Err(RuntimeError::Refused { id, port: DEAD }) if id == spec.id);
    hold!(refused, "a dead port gives {outcome:?}");
    let took = begun.elapsed();
    hold!(took < AT_ONCE, "the refusal took {took:?}");
    Ok(())
}

pub(super) async fn a_sandbox_that_is_not_there_cannot_be_dialled(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let id = trial.harness.spec().id;
    for port in [ports::EXECD, DEAD] {
        let outcome = trial.runtime.dial(id, port).await;
        let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == id);
        hold!(absent, "port {port} of no sandbox gives {outcome:?}");
    }
    Ok(())
}

pub(super) async fn a_removed_sandbox_cannot_be_dialled(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    trial.ping(&spec).await?;
    trial.runtime.remove(spec.id).await?;
    let outcome = trial.runtime.dial(spec.id, ports::EXECD).await;
    let absent = matches!(outcome, Err(RuntimeError::NotFound(id)) if id == spec.id);
    hold!(absent, "a removed sandbox gives {outcome:?}");
    Ok(())
}

pub(super) async fn removal_breaks_open_streams(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    let stream = trial.runtime.dial(spec.id, ports::EXECD).await?;
    trial.runtime.remove(spec.id).await?;
    trial.closes(stream).await
}
