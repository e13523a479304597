//! What ensure, remove and list promise.

use super::{Breach, Trial, breach::hold};
use crate::{ImageName, ObservedState, RuntimeError};

pub(super) async fn an_ensured_sandbox_is_listed_as_running(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let spec = trial.harness.spec();
    let observed = trial.runtime.ensure(&spec).await?;
    hold!(observed.id == spec.id, "ensure speaks of {} instead of {}", observed.id, spec.id);
    let alive = matches!(observed.state, ObservedState::Starting | ObservedState::Running);
    hold!(alive, "a new sandbox is {:?}", observed.state);
    hold!(trial.state(spec.id).await?.is_some(), "an accepted sandbox is not listed");
    trial.comes_to(spec.id, &ObservedState::Running).await
}

pub(super) async fn ensuring_twice_makes_one_sandbox(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    let again = trial.runtime.ensure(&spec).await?;
    hold!(again.state == ObservedState::Running, "the second time it is {:?}", again.state);
    let count = trial.runtime.list().await?.len();
    hold!(count == 1, "there are {count} sandboxes");
    trial.ping(&spec).await
}

pub(super) async fn another_spec_conflicts_and_the_first_stays(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let first = trial.running().await?;
    let mut second = first.clone();
    second.env.insert("OTHER".to_owned(), "1".to_owned());
    let outcome = trial.runtime.ensure(&second).await;
    let conflict = matches!(outcome, Err(RuntimeError::Conflict(id)) if id == first.id);
    hold!(conflict, "another spec gives {outcome:?}");
    trial.comes_to(first.id, &ObservedState::Running).await?;
    trial.runtime.ensure(&first).await?;
    trial.ping(&first).await
}

pub(super) async fn an_unknown_image_is_refused_and_leaves_nothing(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let mut spec = trial.harness.spec();
    spec.image = ImageName::new("no-such-image.invalid/x:1");
    let outcome = trial.runtime.ensure(&spec).await;
    hold!(
        matches!(&outcome, Err(RuntimeError::UnknownImage(image)) if *image == spec.image),
        "an unknown image gives {outcome:?}"
    );
    trial.stays_away(spec.id).await
}

pub(super) async fn removing_nothing_succeeds(trial: &Trial<'_>) -> Result<(), Breach> {
    trial.runtime.remove(trial.harness.spec().id).await?;
    let spec = trial.running().await?;
    trial.runtime.remove(spec.id).await?;
    Ok(trial.runtime.remove(spec.id).await?)
}

pub(super) async fn a_removed_sandbox_is_gone(trial: &Trial<'_>) -> Result<(), Breach> {
    let spec = trial.running().await?;
    trial.runtime.remove(spec.id).await?;
    trial.stays_away(spec.id).await
}

pub(super) async fn a_removed_id_is_free_again(trial: &Trial<'_>) -> Result<(), Breach> {
    let mut spec = trial.running().await?;
    trial.runtime.remove(spec.id).await?;
    spec.env.insert("AGAIN".to_owned(), "1".to_owned());
    trial.runtime.ensure(&spec).await?;
    trial.comes_to(spec.id, &ObservedState::Running).await?;
    trial.ping(&spec).await
}
