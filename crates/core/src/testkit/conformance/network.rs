//! What leaves a sandbox, and where it arrives.

use std::{net::SocketAddr, time::Instant};

use futures_util::future::join;
use osb_api::SandboxId;

use super::{Breach, Reply, Transport, Trial, breach::hold, trial::STEP};
use crate::{Network, Outlets, RuntimeError, SandboxSpec};

/// Addresses of others, which nobody has.
const THEIRS: [&str; 2] = ["192.0.2.7:443", "[2001:db8::7]:53"];
/// Addresses of the sandbox itself; nobody listens there.
const OWN: [&str; 3] = ["127.0.0.1:9", "[::1]:9", "0.0.0.0:9"];

const QUESTION: &str = "hello";
const ANSWER: &str = "welcome";

pub(super) async fn a_stream_to_anywhere_arrives_with_its_destination(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    converse(trial, &spec, &power.outlets(spec.id).await?, Transport::Stream).await
}

pub(super) async fn a_datagram_to_anywhere_arrives_and_is_answered_from_there(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    converse(trial, &spec, &power.outlets(spec.id).await?, Transport::Datagram).await
}

pub(super) async fn what_is_sent_before_anybody_asks_is_not_lost(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    let to = address(THEIRS[0])?;
    let asking = async {
        trial.harness.wait(STEP * 4).await;
        hears(trial, &power.outlets(spec.id).await?, Transport::Stream).await
    };
    let talking = trial.harness.talk(&spec, Transport::Stream, to, QUESTION);
    let (reply, heard) = join(talking, asking).await;
    understood(&reply, heard?, to)
}

pub(super) async fn what_a_sandbox_sends_itself_stays_there(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    let outlets = power.outlets(spec.id).await?;
    for to in OWN {
        let to = address(to)?;
        let reply = trial.harness.talk(&spec, Transport::Stream, to, QUESTION).await;
        hold!(reply == Reply::Refused, "a stream to {to} inside gives {reply:?}");
        let heard = trial.harness.hear(&outlets, Transport::Stream, ANSWER);
        hold!(heard.is_none(), "what was for {to} left the sandbox: {heard:?}");
    }
    Ok(())
}

pub(super) async fn with_its_outlets_closed_a_sandbox_is_refused(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    drop(power.outlets(spec.id).await?);
    let to = address(THEIRS[0])?;
    let reply = trial.harness.talk(&spec, Transport::Stream, to, QUESTION).await;
    hold!(reply == Reply::Refused, "a stream to nobody gives {reply:?}");
    let reply = trial.harness.talk(&spec, Transport::Datagram, to, QUESTION).await;
    hold!(!matches!(reply, Reply::Line(_)), "a datagram to nobody gives {reply:?}");
    Ok(())
}

pub(super) async fn whoever_asks_again_gets_new_outlets(trial: &Trial<'_>) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    let spec = trial.running().await?;
    drop(power.outlets(spec.id).await?);
    converse(trial, &spec, &power.outlets(spec.id).await?, Transport::Stream).await?;
    let trial = trial.reopened().await;
    let power = trial.runtime.network();
    let power = power.ok_or_else(|| Breach::new("another runtime has no network"))?;
    converse(&trial, &spec, &power.outlets(spec.id).await?, Transport::Stream).await
}

pub(super) async fn a_sandbox_that_is_not_there_has_no_outlets(
    trial: &Trial<'_>,
) -> Result<(), Breach> {
    let Some(power) = trial.runtime.network() else { return Ok(()) };
    absent(power, trial.harness.spec().id).await?;
    let spec = trial.running().await?;
    trial.runtime.remove(spec.id).await?;
    absent(power, spec.id).await
}

async fn absent(power: &dyn Network, id: SandboxId) -> Result<(), Breach> {
    let outcome = power.outlets(id).await;
    let absent = matches!(outcome, Err(RuntimeError::NotFound(other)) if other == id);
    hold!(absent, "the outlets of no sandbox are {outcome:?}");
    Ok(())
}

/// Has the sandbox send something to everybody, and answers for all of them.
async fn converse(
    trial: &Trial<'_>,
    spec: &SandboxSpec,
    outlets: &Outlets,
    how: Transport,
) -> Result<(), Breach> {
    for to in THEIRS {
        let to = address(to)?;
        let talking = trial.harness.talk(spec, how, to, QUESTION);
        let (reply, heard) = join(talking, hears(trial, outlets, how)).await;
        understood(&reply, heard?, to)?;
    }
    Ok(())
}

fn understood(
    reply: &Reply,
    (wanted, said): (SocketAddr, String),
    to: SocketAddr,
) -> Result<(), Breach> {
    hold!(wanted == to, "what was for {to} arrived as if for {wanted}");
    hold!(said == QUESTION, "what was sent to {to} arrived as {said:?}");
    hold!(*reply == Reply::Line(ANSWER.to_owned()), "the answer from {to} came as {reply:?}");
    Ok(())
}

/// Waits for something to arrive, and answers it.
async fn hears(
    trial: &Trial<'_>,
    outlets: &Outlets,
    how: Transport,
) -> Result<(SocketAddr, String), Breach> {
    let deadline = Instant::now() + trial.harness.patience();
    loop {
        if let Some(heard) = trial.harness.hear(outlets, how, ANSWER) {
            return Ok(heard);
        }
        hold!(Instant::now() < deadline, "what a sandbox sent as a {how:?} did not arrive");
        trial.harness.wait(STEP).await;
    }
}

fn address(text: &str) -> Result<SocketAddr, Breach> {
    text.parse().map_err(|error| Breach::new(format!("{text}: {error}")))
}
