//! How the end of an entrypoint is told.

use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use osb_api::SandboxId;

use super::{Breach, Trial, breach::hold};
use crate::{Exit, Observed, ObservedState};

pub(super) async fn a_finished_entrypoint_is_watched(trial: &Trial<'_>) -> Result<(), Breach> {
    ends_with(trial, 0).await
}

pub(super) async fn a_failed_entrypoint_tells_its_code(trial: &Trial<'_>) -> Result<(), Breach> {
    ends_with(trial, 1).await?;
    ends_with(trial, 37).await
}

pub(super) async fn an_ended_sandbox_is_listed_until_it_is_removed(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let mut spec = trial.harness.spec();
    spec.entrypoint = trial.harness.exiting(5);
    trial.runtime.ensure(&spec).await?;
    let ended = ObservedState::Exited(Exit::Code(5));
    trial.comes_to(spec.id, &ended).await?;
    let again = trial.runtime.ensure(&spec).await?;
    hold!(again.state == ended, "ensuring it again makes it {:?}", again.state);
    trial.comes_to(spec.id, &ended).await?;
    trial.runtime.remove(spec.id).await?;
    trial.stays_away(spec.id).await
}

async fn ends_with(trial: &Trial<'_>, code: i32) -> Result<(), Breach> {
    let mut changes = trial.runtime.watch();
    let mut spec = trial.harness.spec();
    spec.entrypoint = trial.harness.exiting(code);
    trial.runtime.ensure(&spec).await?;
    let exit = trial.within(trial.harness.patience(), exit_of(spec.id, &mut changes)).await;
    let told = exit.ok_or_else(|| Breach::new("nobody was told that the entrypoint ended"))?;
    hold!(told == Some(Exit::Code(code)), "exit code {code} was told as {told:?}");
    trial.comes_to(spec.id, &ObservedState::Exited(Exit::Code(code))).await
}

/// How the sandbox ends according to the changes; `None` if they stop before.
async fn exit_of(id: SandboxId, changes: &mut BoxStream<'static, Observed>) -> Option<Exit> {
    while let Some(observed) = changes.next().await {
        if let Observed { id: about, state: ObservedState::Exited(exit), .. } = observed
            && about == id
        {
            return Some(exit);
        }
    }
    None
}
