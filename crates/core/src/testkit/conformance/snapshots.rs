//! What the power to keep files promises, of the runtimes that have it.

use osb_api::SnapshotId;

use super::{Breach, Trial, breach::hold};
use crate::{ObservedState, RuntimeError, SandboxSpec};

const PATH: &str = "/root/kept";
const OTHER: &str = "/root/other";

pub(super) async fn files_come_back_as_they_were_when_they_were_kept(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    trial.harness.write(&source, PATH, "now").await;
    trial.harness.write(&source, OTHER, "now").await;
    let restored = trial.restored(&source, id).await?;
    trial.has(&restored, PATH, Some("then")).await?;
    trial.has(&restored, OTHER, None).await
}

pub(super) async fn what_is_kept_is_listed_with_its_size(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, &"x".repeat(5000)).await;
    let id = SnapshotId::random();
    let kept = power.take(source.id, id).await?;
    hold!(kept.id == id, "a snapshot {id} was asked for and {} taken", kept.id);
    hold!((5000..1 << 20).contains(&kept.bytes), "5000 bytes are kept as {}", kept.bytes);
    let listed = power.kept().await?;
    hold!(listed == [kept], "{kept:?} is listed as {listed:?}");
    Ok(())
}

pub(super) async fn the_source_of_a_snapshot_goes_on(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    power.take(source.id, SnapshotId::random()).await?;
    let state = trial.state(source.id).await?;
    hold!(state == Some(ObservedState::Running), "it became {state:?}");
    trial.ping(&source).await
}

pub(super) async fn a_paused_sandbox_is_kept_and_stays_paused(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let Some(pause) = trial.runtime.pause() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    pause.pause(source.id).await?;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    let state = trial.state(source.id).await?;
    hold!(state == Some(ObservedState::Paused), "it became {state:?}");
    let restored = trial.restored(&source, id).await?;
    trial.has(&restored, PATH, Some("then")).await?;
    pause.resume(source.id).await?;
    trial.ping(&source).await
}

pub(super) async fn two_that_start_from_one_snapshot_do_not_see_each_other(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    let (first, second) = (trial.restored(&source, id).await?, trial.restored(&source, id).await?);
    trial.harness.write(&first, PATH, "changed").await;
    trial.harness.write(&first, OTHER, "added").await;
    trial.has(&first, PATH, Some("changed")).await?;
    for other in [&second, &source, &trial.restored(&source, id).await?] {
        trial.has(other, PATH, Some("then")).await?;
        trial.has(other, OTHER, None).await?;
    }
    Ok(())
}

pub(super) async fn a_snapshot_outlives_its_sandbox(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    trial.runtime.remove(source.id).await?;
    let restored = trial.restored(&source, id).await?;
    trial.has(&restored, PATH, Some("then")).await
}

pub(super) async fn a_snapshot_of_a_restored_sandbox_has_what_it_stands_on(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "first").await;
    let (below, above) = (SnapshotId::random(), SnapshotId::random());
    power.take(source.id, below).await?;
    let middle = trial.restored(&source, below).await?;
    trial.harness.write(&middle, OTHER, "second").await;
    power.take(middle.id, above).await?;
    for id in [source.id, middle.id] {
        trial.runtime.remove(id).await?;
    }
    power.delete(below).await?;
    let restored = trial.restored(&source, above).await?;
    trial.has(&restored, PATH, Some("first")).await?;
    trial.has(&restored, OTHER, Some("second")).await
}

pub(super) async fn a_deleted_snapshot_is_gone_and_what_stands_on_it_goes_on(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    let restored = trial.restored(&source, id).await?;
    power.delete(id).await?;
    let listed = power.kept().await?;
    hold!(listed.is_empty(), "a deleted snapshot is listed: {listed:?}");
    trial.has(&restored, PATH, Some("then")).await?;
    refuses(trial, &source, id).await
}

pub(super) async fn deleting_no_snapshot_succeeds(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    power.delete(SnapshotId::random()).await?;
    let source = trial.running().await?;
    let id = SnapshotId::random();
    power.take(source.id, id).await?;
    power.delete(id).await?;
    Ok(power.delete(id).await?)
}

pub(super) async fn taking_one_snapshot_twice_keeps_the_first(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let id = SnapshotId::random();
    let first = power.take(source.id, id).await?;
    trial.harness.write(&source, PATH, "some time later").await;
    let second = power.take(source.id, id).await?;
    hold!(first == second, "the second time it is {second:?} and not {first:?}");
    let restored = trial.restored(&source, id).await?;
    trial.has(&restored, PATH, Some("then")).await
}

pub(super) async fn what_is_not_there_is_neither_kept_nor_restored(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let spec = trial.harness.spec();
    let outcome = power.take(spec.id, SnapshotId::random()).await;
    let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == spec.id);
    hold!(absent, "keeping the files of no sandbox gives {outcome:?}");
    let listed = power.kept().await?;
    hold!(listed.is_empty(), "it is listed: {listed:?}");
    refuses(trial, &spec, SnapshotId::random()).await
}

pub(super) async fn another_runtime_over_the_world_has_the_same_snapshots(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.snapshots() else { return Ok(()) };
    let source = trial.running().await?;
    trial.harness.write(&source, PATH, "then").await;
    let (id, deleted) = (SnapshotId::random(), SnapshotId::random());
    let kept = power.take(source.id, id).await?;
    power.take(source.id, deleted).await?;
    let before = trial.restored(&source, deleted).await?;
    power.delete(deleted).await?;
    let trial = trial.reopened().await;
    let Some(power) = trial.runtime.snapshots() else {
        return Err(Breach::new("another runtime takes no snapshots"));
    };
    let listed = power.kept().await?;
    hold!(listed == [kept], "{kept:?} is listed as {listed:?} elsewhere");
    trial.has(&before, PATH, Some("then")).await?;
    let restored = trial.restored(&source, id).await?;
    trial.has(&restored, PATH, Some("then")).await?;
    power.take(restored.id, SnapshotId::random()).await?;
    refuses(&trial, &source, deleted).await
}

/// Checks that no sandbox can be made from this snapshot, and that the attempt leaves nothing.
async fn refuses(
    trial: &Trial<'_>,
    like: &SandboxSpec,
    snapshot: SnapshotId,
) -> Result<(), Breach> {
    let mut spec = trial.harness.spec();
    spec.image = like.image.clone();
    spec.snapshot = Some(snapshot);
    let outcome = trial.runtime.ensure(&spec).await;
    let unknown = matches!(outcome, Err(RuntimeError::UnknownSnapshot(id)) if id == snapshot);
    hold!(unknown, "a snapshot that is not there gives {outcome:?}");
    trial.stays_away(spec.id).await
}
