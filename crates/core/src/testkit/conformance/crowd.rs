//! What holds when there are several sandboxes, calls or runtimes.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::{join, join_all};
use osb_api::SandboxId;

use super::{Breach, Trial, breach::hold};
use crate::{ObservedState, Runtime, SandboxSpec};

const MANY: usize = 12;

pub(super) async fn removing_one_sandbox_leaves_the_other_alone(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let (first, second) = (trial.running().await?, trial.running().await?);
    trial.runtime.remove(first.id).await?;
    trial.stays_away(first.id).await?;
    trial.comes_to(second.id, &ObservedState::Running).await?;
    trial.ping(&second).await
}

pub(super) async fn pausing_one_sandbox_leaves_the_other_alone(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.pause() else { return Ok(()) };
    let (first, second) = (trial.running().await?, trial.running().await?);
    power.pause(first.id).await?;
    trial.comes_to(first.id, &ObservedState::Paused).await?;
    let other = trial.state(second.id).await?;
    hold!(other == Some(ObservedState::Running), "the other sandbox became {other:?}");
    trial.ping(&second).await
}

pub(super) async fn many_sandboxes_start_at_once(trial: &Trial<'_>) -> Result<(), Breach> {
    let specs: Vec<SandboxSpec> = (0..MANY).map(|_| trial.harness.spec()).collect();
    for outcome in join_all(specs.iter().map(|spec| trial.runtime.ensure(spec))).await {
        outcome?;
    }
    for spec in &specs {
        trial.comes_to(spec.id, &ObservedState::Running).await?;
        trial.ping(spec).await?;
    }
    let count = trial.runtime.list().await?.len();
    hold!(count == MANY, "{count} of {MANY} are listed");
    for outcome in join_all(specs.iter().map(|spec| trial.runtime.remove(spec.id))).await {
        outcome?;
    }
    let left = trial.runtime.list().await?;
    hold!(left.is_empty(), "removing all left {left:?}");
    Ok(())
}

pub(super) async fn removing_one_sandbox_twice_at_once_succeeds(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let spec = trial.running().await?;
    let (one, other) = join(trial.runtime.remove(spec.id), trial.runtime.remove(spec.id)).await;
    one?;
    other?;
    trial.stays_away(spec.id).await
}

pub(super) async fn a_dropped_ensure_can_be_cleaned_up(trial: &Trial<'_>) -> Result<(), Breach> {
    for micros in [0, 200, 1000, 3000, 10_000] {
        let spec = trial.harness.spec();
        let time = Duration::from_micros(micros);
        // Whether it was done in time does not matter: both must be removable.
        drop(trial.within(time, trial.runtime.ensure(&spec)).await);
        trial.runtime.remove(spec.id).await?;
        trial.stays_away(spec.id).await?;
    }
    Ok(())
}

pub(super) async fn another_runtime_over_the_world_lists_the_same(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let running = trial.running().await?;
    let mut ended = trial.harness.spec();
    ended.entrypoint = trial.harness.exiting(0);
    trial.runtime.ensure(&ended).await?;
    let exited = ObservedState::Exited(crate::Exit::Code(0));
    trial.comes_to(ended.id, &exited).await?;
    if let Some(power) = trial.runtime.pause() {
        let paused = trial.running().await?;
        power.pause(paused.id).await?;
        trial.comes_to(paused.id, &ObservedState::Paused).await?;
    }
    let before = all(&*trial.runtime).await?;
    let trial = trial.reopened().await;
    let after = all(&*trial.runtime).await?;
    hold!(before == after, "one lists {before:?}, the other {after:?}");
    trial.ping(&running).await
}

pub(super) async fn another_runtime_over_the_world_has_the_same_powers(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let spec = trial.running().await?;
    let trial = trial.reopened().await;
    let again = trial.runtime.ensure(&spec).await?;
    hold!(again.state == ObservedState::Running, "ensured elsewhere it is {:?}", again.state);
    let mut different = spec.clone();
    different.env.insert("OTHER".to_owned(), "1".to_owned());
    let outcome = trial.runtime.ensure(&different).await;
    hold!(outcome.is_err(), "another spec is taken for the same elsewhere");
    if let Some(power) = trial.runtime.pause() {
        power.pause(spec.id).await?;
        trial.comes_to(spec.id, &ObservedState::Paused).await?;
        power.resume(spec.id).await?;
    }
    trial.ping(&spec).await?;
    trial.runtime.remove(spec.id).await?;
    trial.stays_away(spec.id).await
}

async fn all(runtime: &dyn Runtime) -> Result<BTreeMap<SandboxId, ObservedState>, Breach> {
    let observed = runtime.list().await?.into_iter();
    Ok(observed.map(|observed| (observed.id, observed.state)).collect())
}
