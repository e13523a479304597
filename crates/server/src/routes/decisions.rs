//! What sandboxes tried in the network, and what was decided.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Uri, header};
use osb_api::{
    egress as wire,
    lifecycle::{NetworkAction, Time},
};
use osb_egress::{
    Asked, By, CredentialOutcome, Decision, End, Ending, Follow, Guarded, Protocol, Ruling, Verdict,
};

use crate::{app::App, error::ApiError, extract::Id, query};

/// How often a reader hears that the server is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Tells what was decided of late, and with `follow=true` what is from now on.
pub(super) async fn log(
    State(app): State<App>,
    Id(id): Id,
    uri: Uri,
) -> Result<Response, ApiError> {
    app.record(id)?;
    let mut follow = false;
    for (key, value) in query::pairs(uri.query().unwrap_or_default()) {
        if key == "follow" {
            follow = query::switch("follow", value.as_deref().unwrap_or("true"))?;
        }
    }
    let egress = app.reconciler.egress();
    if !follow {
        let decisions = egress.recent(id).iter().map(show).collect();
        return Ok(Json(wire::DecisionLog { decisions }).into_response());
    }
    // Whoever follows before looking back misses nothing, and may see something twice.
    let follow = egress.follow(id);
    let recent = egress.recent(id);
    let past = stream::iter(recent).map(|decision| line(&decision));
    let lines = past.chain(stream::unfold(follow, next_line)).map(Ok::<_, Infallible>);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

async fn next_line(follow: Option<Follow>) -> Option<(Bytes, Option<Follow>)> {
    let mut follow = follow?;
    let next = tokio::time::timeout(SIGN_OF_LIFE, follow.next()).await;
    let line = next.map_or(Some(Bytes::from_static(b"\n")), |decision| Some(line(&*decision?)))?;
    Some((line, Some(follow)))
}

fn line(decision: &Decision) -> Bytes {
    let mut line = serde_json::to_vec(&show(decision)).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

pub(crate) fn show(decision: &Decision) -> wire::Decision {
    let what = &decision.what;
    let used = what.request.as_ref().and_then(|request| request.credentials.as_ref());
    let (status, withheld) = match used.map(|used| used.outcome) {
        Some(CredentialOutcome::Answered(status)) => (Some(status), None),
        Some(CredentialOutcome::Withheld(why)) => (None, Some(why.to_owned())),
        Some(CredentialOutcome::Unanswered) | None => (None, None),
    };
    let names = used.into_iter().flat_map(|used| &used.names);
    let others = |of: fn(&Asked) -> &[Box<str>]| {
        let others = what.request.as_ref().map(of).unwrap_or_default();
        others.iter().map(ToString::to_string).collect()
    };
    wire::Decision {
        number: decision.number,
        at: Time(decision.at),
        protocol: match what.protocol {
            Protocol::Dns => wire::DecisionProtocol::Dns,
            Protocol::Tcp => wire::DecisionProtocol::Tcp,
            Protocol::Udp => wire::DecisionProtocol::Udp,
            Protocol::Http => wire::DecisionProtocol::Http,
            Protocol::Credential => wire::DecisionProtocol::Credential,
        },
        name: what.name.as_ref().map(ToString::to_string),
        address: what.address.map(|address| address.to_string()),
        port: what.port,
        method: what.request.as_ref().map(|request| request.method.to_string()),
        path: what.request.as_ref().map(|request| request.path.to_string()),
        other_methods: others(|request| &request.other_methods),
        other_paths: others(|request| &request.other_paths),
        credentials: names.map(ToString::to_string).collect(),
        status,
        withheld,
        action: match decision.ruling.verdict {
            Verdict::Allow => NetworkAction::Allow,
            Verdict::Deny => NetworkAction::Deny,
        },
        reason: reason(&decision.ruling),
        times: decision.times,
        end: decision.end.as_ref().map(end),
    }
}

fn reason(ruling: &Ruling) -> wire::DecisionReason {
    let mut binding = None;
    let (reason, rule, guarded) = match &ruling.by {
        By::Rule(rule) => (wire::ReasonKind::Rule, Some(rule), None),
        By::Operator(rule) => (wire::ReasonKind::Operator, Some(rule), None),
        By::Default => (wire::ReasonKind::Default, None, None),
        By::Guard(guarded) => (wire::ReasonKind::Guard, None, Some(kind(*guarded))),
        By::Mismatch => (wire::ReasonKind::Mismatch, None, None),
        By::Limit => (wire::ReasonKind::Limit, None, None),
        By::Binding(name) => {
            binding = Some(name.to_string());
            (wire::ReasonKind::Binding, None, None)
        }
    };
    wire::DecisionReason {
        reason,
        rule: rule.map(ToString::to_string),
        guarded: guarded.map(ToOwned::to_owned),
        binding,
    }
}

pub(super) fn kind(guarded: Guarded) -> &'static str {
    match guarded {
        Guarded::Host => "host",
        Guarded::Metadata => "metadata",
        Guarded::Private => "private",
        Guarded::LinkLocal => "link-local",
        Guarded::Special => "special",
    }
}

fn end(end: &End) -> wire::DecisionEnd {
    let (outcome, cut_by) = match &end.how {
        Ending::Done => (wire::DecisionOutcome::Done, None),
        Ending::Unreachable => (wire::DecisionOutcome::Unreachable, None),
        Ending::Unverified => (wire::DecisionOutcome::Unverified, None),
        Ending::Cut(ruling) => (wire::DecisionOutcome::Cut, Some(reason(ruling))),
    };
    wire::DecisionEnd {
        outcome,
        cut_by,
        sent_bytes: end.sent,
        received_bytes: end.received,
        duration_ms: u64::try_from(end.lasted.as_millis()).unwrap_or(u64::MAX),
    }
}
