//! What the power to keep volumes promises, of the runtimes that have it.

use super::{Breach, Trial, breach::hold};
use crate::{RuntimeError, SandboxSpec, Volume, VolumeProblem, VolumeSource, Volumes};

const NAME: &str = "kept";

/// A spec that asks for the volume.
fn with_volume(trial: &Trial<'_>, create: bool, ephemeral: bool) -> SandboxSpec {
    let mut spec = trial.harness.spec();
    spec.volumes.push(Volume {
        source: VolumeSource::Named { name: NAME.to_owned(), create, ephemeral },
        sub_path: "part/of/it".into(),
        at: "/data".into(),
        read_only: false,
    });
    spec
}

async fn is_kept(power: &dyn Volumes) -> Result<bool, Breach> {
    Ok(power.list().await?.iter().any(|volume| volume.name == NAME))
}

pub(super) async fn a_volume_is_made_for_a_sandbox_and_outlives_it(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.volumes() else { return Ok(()) };
    hold!(power.list().await?.is_empty(), "there are volumes before any was made");
    let spec = with_volume(trial, true, false);
    trial.runtime.ensure(&spec).await?;
    let listed = power.list().await?;
    let [volume] = listed.as_slice() else {
        return Err(Breach::new(format!("one volume was made, and {listed:?} are listed")));
    };
    hold!(volume.name == NAME && !volume.ephemeral, "it is listed as {volume:?}");
    hold!(volume.used_by == [spec.id], "it is listed as {volume:?}");
    let sizes = power.sizes(&[NAME.to_owned(), "never-made".to_owned()]).await?;
    let told = matches!(sizes.as_slice(), [Some(bytes), None] if *bytes > 0);
    hold!(told, "a volume that is there and one that is not take {sizes:?}");
    trial.runtime.remove(spec.id).await?;
    hold!(is_kept(power).await?, "the volume went with the sandbox");
    let again = trial.reopened().await;
    let Some(power) = again.runtime.volumes() else {
        return Err(Breach::new("another runtime over the world keeps no volumes"));
    };
    hold!(is_kept(power).await?, "another runtime over the world does not list it");
    let next = with_volume(&again, false, true);
    again.runtime.ensure(&next).await?;
    again.runtime.remove(next.id).await?;
    hold!(is_kept(power).await?, "it went with a sandbox that it was not made for");
    power.remove(NAME).await?;
    hold!(!is_kept(power).await?, "it is still listed though it was removed");
    let outcome = power.remove(NAME).await;
    let missing =
        matches!(outcome, Err(RuntimeError::Volume { problem: VolumeProblem::NotFound, .. }));
    hold!(missing, "removing a volume that is not there gives {outcome:?}");
    Ok(())
}

pub(super) async fn a_missing_volume_is_refused_and_leaves_nothing(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.volumes() else { return Ok(()) };
    let spec = with_volume(trial, false, false);
    let outcome = trial.runtime.ensure(&spec).await;
    let missing =
        matches!(outcome, Err(RuntimeError::Volume { problem: VolumeProblem::NotFound, .. }));
    hold!(missing, "a volume that is not there gives {outcome:?}");
    hold!(!is_kept(power).await?, "it was made all the same");
    trial.stays_away(spec.id).await
}

pub(super) async fn an_ephemeral_volume_goes_with_the_last_that_uses_it(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.volumes() else { return Ok(()) };
    let (first, second) = (with_volume(trial, true, true), with_volume(trial, false, false));
    trial.runtime.ensure(&first).await?;
    trial.runtime.ensure(&second).await?;
    trial.runtime.remove(first.id).await?;
    hold!(is_kept(power).await?, "it went while a sandbox uses it");
    trial.runtime.remove(second.id).await?;
    hold!(!is_kept(power).await?, "it outlived the last sandbox that uses it");
    Ok(())
}

pub(super) async fn a_volume_in_use_cannot_be_removed(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.volumes() else { return Ok(()) };
    let spec = with_volume(trial, true, false);
    trial.runtime.ensure(&spec).await?;
    let outcome = power.remove(NAME).await;
    let used = matches!(outcome, Err(RuntimeError::Volume { problem: VolumeProblem::InUse, .. }));
    hold!(used, "removing a volume in use gives {outcome:?}");
    hold!(is_kept(power).await?, "it was removed all the same");
    trial.ping(&spec).await
}
