//! What runtimes tell of what sandboxes use, and of those that would use too much.

use futures_util::StreamExt as _;

use super::{Breach, Trial, breach::hold};
use crate::{Exit, Memory, ObservedState, RuntimeError};

/// So little that it is soon used up.
const MEMORY: Memory = Memory::from_bytes(64 << 20);

pub(super) async fn what_is_up_tells_what_it_uses(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.usage() else { return Ok(()) };
    let spec = trial.running().await?;
    trial.ping(&spec).await?;
    let first = power.usage(spec.id).await?;
    hold!(first.memory > 0 && first.processes > 0, "a running sandbox uses {first:?}");
    hold!(first.disk.is_none(), "what nobody limits is told as {:?}", first.disk);
    if let Some(pause) = trial.runtime.pause() {
        pause.pause(spec.id).await?;
    }
    let then = power.usage(spec.id).await?;
    hold!(then.cpu >= first.cpu, "processor time shrank from {:?} to {:?}", first.cpu, then.cpu);
    hold!(then.processes > 0, "a paused sandbox uses {then:?}");
    Ok(())
}

pub(super) async fn a_sandbox_that_is_not_there_uses_nothing(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.usage() else { return Ok(()) };
    let id = trial.harness.spec().id;
    let outcome = power.usage(id).await;
    let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == id);
    hold!(absent, "what no sandbox uses is {outcome:?}");
    Ok(())
}

/// Whoever cannot count what a sandbox uses cannot limit it either.
fn limits_memory(trial: &Trial<'_>) -> bool {
    trial.runtime.usage().is_some()
}

pub(super) async fn an_entrypoint_that_takes_all_memory_ends_for_lack_of_it(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    if !limits_memory(trial) {
        return Ok(());
    }
    let mut spec = trial.harness.spec();
    [spec.entrypoint, _] = trial.harness.greedy();
    spec.resources.memory = Some(MEMORY);
    trial.runtime.ensure(&spec).await?;
    trial.comes_to(spec.id, &ObservedState::Exited(Exit::OutOfMemory)).await
}

pub(super) async fn what_ends_for_lack_of_memory_is_counted_and_the_sandbox_goes_on(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    if !limits_memory(trial) {
        return Ok(());
    }
    let mut changes = trial.runtime.watch();
    let mut spec = trial.harness.spec();
    [_, spec.entrypoint] = trial.harness.greedy();
    spec.resources.memory = Some(MEMORY);
    trial.runtime.ensure(&spec).await?;
    let told = async {
        loop {
            let observed = changes.next().await?;
            if observed.id == spec.id && observed.oom_kills > 0 {
                return Some(observed.state);
            }
        }
    };
    let told = trial.within(trial.harness.patience(), told).await.flatten();
    hold!(told == Some(ObservedState::Running), "lack of memory was told as {told:?}");
    let listed = trial.runtime.list().await?;
    let listed = listed.iter().find(|observed| observed.id == spec.id);
    hold!(listed.is_some_and(|seen| seen.oom_kills > 0), "it is listed as {listed:?}");
    trial.ping(&spec).await
}
