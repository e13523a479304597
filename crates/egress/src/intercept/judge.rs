//! Asking the policy about every request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use osb_api::lifecycle::{NetworkAction, NetworkRule};
use serde_json::json;

use super::{Body, BoxError, Credentials, Finish, Host, Refusal, Rules};
use crate::{
    Asked, By, Protocol, Readings, Ruling, Verdict,
    passage::{Asking, Passage},
    policy::readings::remove_overrides,
};

/// Lets pass what the policy allows of what is asked on a connection, with the credentials that a
/// vault has for it.
pub(crate) struct Judge {
    passage: Arc<Passage>,
    host: Host,
    credentials: Option<Credentials>,
}

impl Judge {
    pub(crate) fn new(passage: Arc<Passage>, host: Host, credentials: Option<Credentials>) -> Self {
        Self { passage, host, credentials }
    }

    fn refuse(&self, asked: &Asked, ruling: &Ruling, request: &Readings) -> Refusal {
        let Asked { method, path, .. } = asked;
        let (why, rule) = why(&ruling.by);
        let headers = request.headers().join(", ");
        let doubt = match (headers.is_empty(), request.is_ambiguous()) {
            (true, false) => String::new(),
            (true, true) => "; its path can be read in more ways".to_owned(),
            (false, false) => {
                let others = [request.other_methods(), request.other_paths()].concat().join(", ");
                format!("; some servers read {others} instead, which its header {headers} says")
            }
            (false, true) => format!("; its path or its header {headers} can be read in more ways"),
        };
        let mut refusal = Refusal::new(
            StatusCode::FORBIDDEN,
            format!("{method} {}{path} is refused: {why}{doubt}", self.host.name),
        );
        refusal.facts.insert("rule".to_owned(), json!(rule));
        // What the operator denies, and what is ambiguous, no rule would allow.
        if !request.is_ambiguous() && !matches!(ruling.by, By::Operator(_)) {
            refusal.facts.insert("allowedBy".to_owned(), json!(self.allowing(asked)));
        }
        refusal
    }

    /// The rule that would allow it, in front of the others.
    fn allowing(&self, asked: &Asked) -> NetworkRule {
        let Host { name, port, .. } = &self.host;
        let usual = matches!(*port, 80 | 443);
        let all = |one: &str, others: &[Box<str>]| {
            let mut all = vec![one.to_owned()];
            all.extend(others.iter().map(ToString::to_string));
            all.sort_unstable();
            all.dedup();
            all
        };
        NetworkRule {
            ports: (!usual).then(|| vec![*port]),
            methods: Some(all(&asked.method, &asked.other_methods)),
            paths: Some(all(&asked.path, &asked.other_paths)),
            ..NetworkRule::new(NetworkAction::Allow, name.to_string())
        }
    }
}

#[async_trait]
impl Rules for Judge {
    async fn treat(&self, request: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        let (parts, body) = request.into_parts();
        let readings = Arc::new(Readings::of(&parts));
        let asked = Asked::new(parts.method.as_str(), parts.uri.path())
            .with_others(readings.other_methods(), readings.other_paths());
        // A policy that is set from here on finds the request, and ends it if it must.
        let asking = Passage::ask(&self.passage, readings.clone());
        let policy = self.passage.door().policy();
        let ruling = policy.request(&self.host.name, self.host.port, &readings);
        self.passage.note(Protocol::Http, asked.clone(), ruling.clone());
        if ruling.verdict == Verdict::Deny {
            return Err(self.refuse(&asked, &ruling, &readings));
        }
        let body = if body.is_end_stream() { body } else { Trailed(body).boxed_unsync() };
        let request = Request::from_parts(parts, body);
        let (request, finish): (_, Finish) = match &self.credentials {
            Some(credentials) => credentials.treat(request).await?,
            None => (request, Box::new(|response| response)),
        };
        Ok((request, Box::new(move |response| answered(finish(response), asking))))
    }

    fn turned_away(&self, method: &Method, path: &str) {
        let ruling = Ruling { verdict: Verdict::Deny, by: By::Mismatch };
        self.passage.note(Protocol::Http, Asked::new(method.as_str(), path), ruling);
    }

    fn is_over(&self) -> bool {
        self.passage.is_cut()
    }
}

/// Why a request is refused, and the rule that may be told.
fn why(by: &By) -> (String, Option<&str>) {
    match by {
        By::Rule(rule) => (format!("the rule `{rule}` of the policy denies it"), Some(rule)),
        // What the operator wrote concerns all sandboxes, and is not told in any.
        By::Operator(_) => ("the operator denies it".to_owned(), None),
        By::Default | By::Guard(_) | By::Mismatch | By::Limit | By::Binding(_) => {
            ("no rule of the policy allows it".to_owned(), None)
        }
    }
}

/// An answer during which its request is under way.
fn answered(response: Response<Body>, asking: Asking) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // The rest of the connection is the answer.
        asking.stay();
        return response;
    }
    response.map(|body| Answering { body, _asking: asking }.boxed_unsync())
}

struct Answering {
    body: Body,
    _asking: Asking,
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What a request sends, without trailers that would make another one of it.
struct Trailed(Body);

impl http_body::Body for Trailed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx).map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                remove_overrides(trailers);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests;
