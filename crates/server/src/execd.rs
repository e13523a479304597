//! Commands in sandboxes of the server's own, as execd runs them.

use std::{collections::BTreeMap, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use osb_api::{
    ErrorBody, SandboxId,
    execd::{Event, EventKind, Failure, Mode, Ownership, RunCommand, Work},
    headers, ports,
};
use osb_build::{CacheMount, Output, Stream, WorkError};
use osb_core::Token;
use osb_gateway::{Body, Gateway, Route};
use serde::Serialize;
use tokio::time::Instant;

/// The longest event, which is a line that was escaped.
const LONGEST_EVENT: usize = 2 << 20;
/// The most that is read of an answer that says what is wrong.
const LONGEST_ERROR: usize = 64 << 10;

/// execd in a sandbox.
pub(crate) struct Execd<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) sandbox: SandboxId,
    pub(crate) token: &'a Token,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Code(i32),
    /// By a signal; the text says which.
    Signal(String),
    /// It was not there in the first place; the text says why.
    NotStarted(String),
    /// execd itself is gone.
    Lost,
    TooLate,
}

impl Execd<'_> {
    /// Makes directories that are new what a step wants them to be.
    pub(crate) async fn dress(&self, new: &[CacheMount]) -> Result<(), WorkError> {
        if new.is_empty() {
            return Ok(());
        }
        let own = |cache: &CacheMount| {
            let ownership = Ownership {
                mode: Some(Mode::from_bits(cache.mode)),
                owner: Some(cache.user.to_string()),
                group: Some(cache.group.to_string()),
            };
            (cache.target.clone(), ownership)
        };
        let wanted: BTreeMap<String, Ownership> = new.iter().map(own).collect();
        self.ask("/files/permissions", &wanted).await.map(drop)
    }

    /// Runs a command to its end, and passes on what it says.
    pub(crate) async fn run(
        &self,
        command: &RunCommand,
        within: Duration,
        output: &dyn Output,
    ) -> Result<Outcome, WorkError> {
        let deadline = Instant::now() + within;
        let body = self.ask("/command", command).await?;
        match tokio::time::timeout_at(deadline, follow(body, output)).await {
            Ok(outcome) => outcome,
            Err(_) => Ok(Outcome::TooLate),
        }
    }

    /// How much is at work in the sandbox.
    pub(crate) async fn work(&self) -> Result<u64, WorkError> {
        let failed = |error| WorkError::failed("cannot ask execd what is at work", error);
        let said = self.send(Method::GET, "/work", Bytes::new()).await?;
        let said = Limited::new(said, LONGEST_ERROR).collect().await.map_err(failed)?;
        let work: Work =
            serde_json::from_slice(&said.to_bytes()).map_err(|error| failed(error.into()))?;
        Ok(work.running)
    }

    async fn ask(&self, path: &str, body: &impl Serialize) -> Result<Body, WorkError> {
        let text = serde_json::to_vec(body).map_err(|error| {
            WorkError::failed("cannot say to execd in the sandbox what to do", error)
        })?;
        self.send(Method::POST, path, Bytes::from(text)).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Body, WorkError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            WorkError::failed("cannot reach execd in the sandbox", error)
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(headers::EXECD_TOKEN, self.token.reveal())
            .body(Full::new(body))
            .map_err(|error| failed(error.into()))?;
        let route = Route { sandbox: self.sandbox, port: ports::EXECD, rest: path, prefix: "" };
        let answer = self.gateway.forward(&route, request).await;
        let answer = answer.map_err(|error| failed(error.into()))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let status = answer.status();
        let said = Limited::new(answer.into_body(), LONGEST_ERROR).collect().await;
        let said = said.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(match serde_json::from_slice::<ErrorBody>(&said) {
            Ok(error) => WorkError::Refused(error.message),
            Err(_) => failed(format!("it answered {status}").into()),
        })
    }
}

async fn follow(body: Body, output: &dyn Output) -> Result<Outcome, WorkError> {
    let mut stream = body.into_data_stream();
    let mut waiting = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        // A connection that breaks off ends with execd.
        let Ok(chunk) = chunk else { return Ok(Outcome::Lost) };
        waiting.extend_from_slice(&chunk);
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let line = waiting.split_to(end + 1);
            if let Some(outcome) = hear(&line, output)? {
                return Ok(outcome);
            }
        }
        if waiting.len() > LONGEST_EVENT {
            return Err(WorkError::Refused("execd in the sandbox sends nonsense".to_owned()));
        }
        // What was said is read before more is taken.
        tokio::task::yield_now().await;
    }
    Ok(Outcome::Lost)
}

/// Takes one line of events. The last one is the outcome.
fn hear(line: &[u8], output: &dyn Output) -> Result<Option<Outcome>, WorkError> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: Event = serde_json::from_slice(line)
        .map_err(|_| WorkError::Refused("execd in the sandbox sends nonsense".to_owned()))?;
    let text = event.text.as_deref().unwrap_or_default().trim_end_matches(['\r', '\n']);
    match event.kind {
        EventKind::Stdout => output.line(Stream::Out, text),
        EventKind::Stderr => output.line(Stream::Err, text),
        EventKind::ExecutionComplete => return Ok(Some(Outcome::Code(0))),
        EventKind::Error => return Ok(Some(ended(event.error))),
        EventKind::Init
        | EventKind::Ping
        | EventKind::Status
        | EventKind::Result
        | EventKind::ExecutionCount
        | EventKind::Unknown => {}
    }
    Ok(None)
}

fn ended(failure: Option<Failure>) -> Outcome {
    let Some(Failure { evalue, traceback, .. }) = failure else { return Outcome::Lost };
    match evalue.parse() {
        Ok(-1) => Outcome::Signal(traceback.into_iter().next().unwrap_or_default()),
        Ok(code) => Outcome::Code(code),
        Err(_) => Outcome::NotStarted(evalue),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Output for Heard {
        fn line(&self, stream: Stream, line: &str) {
            self.0.lock().unwrap().push(format!("{stream:?} {line}"));
        }
    }

    #[test]
    fn events_become_lines_and_an_outcome() {
        let heard = Heard::default();
        let hear = |text: &str| hear(text.as_bytes(), &heard);
        for quiet in ["\n", "  ", r#"{"type":"ping","timestamp":1}"#] {
            assert_eq!(hear(quiet).unwrap(), None);
        }
        hear(r#"{"type":"stdout","text":"a","timestamp":1}"#).unwrap();
        hear(r#"{"type":"stderr","text":"\n","timestamp":1}"#).unwrap();
        let done = hear(r#"{"type":"execution_complete","timestamp":1}"#).unwrap();
        assert_eq!(done, Some(Outcome::Code(0)));
        let failed = |value: &str, trace: &str| {
            let text = format!(
                r#"{{"type":"error","error":{{"ename":"x","evalue":"{value}","traceback":["{trace}"]}},"timestamp":1}}"#
            );
            hear(&text).unwrap().unwrap()
        };
        assert_eq!(failed("7", "exit status 7"), Outcome::Code(7));
        assert_eq!(failed("-1", "signal: killed"), Outcome::Signal("signal: killed".to_owned()));
        assert_eq!(failed("no such file", ""), Outcome::NotStarted("no such file".to_owned()));
        assert!(hear("nonsense").is_err());
        assert_eq!(*heard.0.lock().unwrap(), ["Out a", "Err "]);
    }
}
