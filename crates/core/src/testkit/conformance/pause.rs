//! What the power to pause promises, of the runtimes that have it.

use super::{Breach, Trial, breach::hold};
use crate::{ObservedState, RuntimeError};

pub(super) async fn a_paused_sandbox_is_listed_as_paused_and_resumes(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.pause() else { return Ok(()) };
    let spec = trial.running().await?;
    power.pause(spec.id).await?;
    trial.comes_to(spec.id, &ObservedState::Paused).await?;
    power.resume(spec.id).await?;
    trial.comes_to(spec.id, &ObservedState::Running).await?;
    trial.ping(&spec).await
}

pub(super) async fn pausing_and_resuming_twice_is_doing_it_once(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.pause() else { return Ok(()) };
    let spec = trial.running().await?;
    power.resume(spec.id).await?;
    power.pause(spec.id).await?;
    power.pause(spec.id).await?;
    trial.comes_to(spec.id, &ObservedState::Paused).await?;
    power.resume(spec.id).await?;
    power.resume(spec.id).await?;
    trial.comes_to(spec.id, &ObservedState::Running).await?;
    trial.ping(&spec).await
}

pub(super) async fn a_sandbox_that_is_not_there_cannot_be_paused(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.pause() else { return Ok(()) };
    let id = trial.harness.spec().id;
    for outcome in [power.pause(id).await, power.resume(id).await] {
        let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == id);
        hold!(absent, "pausing no sandbox gives {outcome:?}");
    }
    Ok(())
}

pub(super) async fn a_paused_sandbox_can_be_removed(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.pause() else { return Ok(()) };
    let spec = trial.running().await?;
    power.pause(spec.id).await?;
    trial.runtime.remove(spec.id).await?;
    trial.stays_away(spec.id).await
}
