//! What sandboxes tried in the network. An extension: not every server has these calls.

use http::Method;
use osb_api::egress::{Decision, DecisionLog};

use crate::{ClientError, Lifecycle, frames::Frames, lifecycle::path, transport::Chunks};

/// The largest decision that is read.
const LARGEST: usize = 64 * 1024;

const DOING: &str = "look up what a sandbox tried";

impl Lifecycle {
    /// What was decided of late about what a sandbox tried.
    pub async fn egress_log(&self, id: &str) -> Result<DecisionLog, ClientError> {
        self.transport.fetch(self.call(DOING, Method::GET, &path(id, "/egress/log"))).await
    }

    /// The same, and what is decided from now on.
    pub async fn follow_egress_log(&self, id: &str) -> Result<Decisions, ClientError> {
        let call = self.call(DOING, Method::GET, &path(id, "/egress/log?follow=true"));
        let within = call.within;
        let body = self.transport.send(call).await?.into_body();
        Ok(Decisions { chunks: Chunks::new(DOING, body, within), frames: Frames::new(LARGEST) })
    }
}

/// Decisions as they are made.
#[derive(Debug)]
pub struct Decisions {
    chunks: Chunks,
    frames: Frames,
}

impl Decisions {
    /// The next decision, or nothing once the sandbox is gone.
    pub async fn next(&mut self) -> Result<Option<Decision>, ClientError> {
        loop {
            if let Some(frame) = self.frames.pop() {
                let decision = serde_json::from_slice(&frame);
                return decision.map(Some).map_err(|error| ClientError::protocol(DOING, &error));
            }
            let Some(chunk) = self.chunks.next().await? else { return Ok(None) };
            self.frames.push(&chunk).map_err(|error| ClientError::protocol(DOING, &error))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    const DECISION: &str = r#"{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"tcp","name":"a.test","port":443,"action":"deny","reason":"default","times":3}"#;

    #[tokio::test]
    async fn each_call_has_its_path() {
        let server = ScriptedServer::start(|request| match request.uri().query() {
            Some("follow=true") => reply(200, format!("{DECISION}\n\n{DECISION}\n")),
            _ => reply(200, format!(r#"{{"decisions":[{DECISION}]}}"#)),
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let log = lifecycle.egress_log("x").await.unwrap();
        assert_eq!((log.decisions.len(), log.decisions[0].times), (1, 3));
        let mut decisions = lifecycle.follow_egress_log("x").await.unwrap();
        assert_eq!(decisions.next().await.unwrap(), Some(log.decisions[0].clone()));
        assert!(decisions.next().await.unwrap().is_some());
        assert_eq!(decisions.next().await.unwrap(), None);
    }
}
