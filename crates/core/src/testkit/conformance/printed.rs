//! What is shown of what entrypoints print, by the runtimes that show it.

use super::{Breach, Trial, breach::hold, trial::STEP};
use crate::{Exit, ObservedState, Printed, RuntimeError, SandboxSpec};

/// The spec of a sandbox whose entrypoint runs this.
fn script(trial: &Trial<'_>, text: &str) -> SandboxSpec {
    let entrypoint = ["sh", "-c", text].map(str::to_owned).into();
    SandboxSpec { entrypoint, ..trial.harness.spec() }
}

/// Waits until a sandbox has printed this and nothing else.
async fn comes_out(
    trial: &Trial<'_>,
    power: &dyn Printed,
    spec: &SandboxSpec,
    text: &str,
) -> Result<(), Breach> {
    let mut looks = trial.harness.patience().as_millis() / STEP.as_millis();
    loop {
        let printed = power.printed(spec.id).await?;
        if printed == text.as_bytes() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&printed);
        hold!(looks > 0, "what was printed is {printed:?} and not {text:?}");
        looks -= 1;
        trial.harness.wait(STEP).await;
    }
}

pub(super) async fn what_an_entrypoint_printed_outlives_it(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.printed() else { return Ok(()) };
    let spec = script(trial, "echo farewell; exit 3");
    trial.runtime.ensure(&spec).await?;
    trial.comes_to(spec.id, &ObservedState::Exited(Exit::Code(3))).await?;
    let printed = power.printed(spec.id).await?;
    hold!(printed == b"farewell\n", "what was printed is {:?}", String::from_utf8_lossy(&printed));
    let trial = trial.reopened().await;
    let Some(power) = trial.runtime.printed() else { return Ok(()) };
    comes_out(&trial, power, &spec, "farewell\n").await
}

pub(super) async fn what_a_paused_sandbox_printed_is_shown(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let (Some(power), Some(pause)) = (trial.runtime.printed(), trial.runtime.pause()) else {
        return Ok(());
    };
    let spec = script(trial, "echo hello; sleep 1000");
    trial.runtime.ensure(&spec).await?;
    trial.comes_to(spec.id, &ObservedState::Running).await?;
    comes_out(trial, power, &spec, "hello\n").await?;
    pause.pause(spec.id).await?;
    comes_out(trial, power, &spec, "hello\n").await
}

pub(super) async fn a_sandbox_that_is_not_there_printed_nothing(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.printed() else { return Ok(()) };
    let silent = trial.running().await?;
    comes_out(trial, power, &silent, "").await?;
    let id = trial.harness.spec().id;
    let outcome = power.printed(id).await;
    let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == id);
    hold!(absent, "what no sandbox printed is {outcome:?}");
    Ok(())
}
