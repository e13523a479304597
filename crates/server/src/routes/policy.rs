//! What a sandbox may reach: read and changed through its own port for that, or by its id.

use axum::{
    Json as JsonBody,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::Method;
use osb_api::{
    SandboxId, codes,
    egress::{EnforcementMode, PolicyStatus},
    lifecycle::{NetworkPolicy, NetworkRule},
};
use osb_core::Phase;
use osb_egress::{add, merge, remove};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    admission::has_rules_about_requests,
    app::{App, Parts},
    error::ApiError,
    extract::{self, Id},
    reconcile::Reconciler,
    record::Record,
};

/// The methods that a policy takes.
pub(super) const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
/// What a policy without a body means.
const RESET: &str = "no policy was sent: everything is denied";

/// A policy as those with the API key see it. The sandbox's own port does not tell of the
/// operator's rules.
#[derive(Debug, Serialize)]
pub(super) struct ById {
    #[serde(flatten)]
    status: PolicyStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operator: Vec<NetworkRule>,
}

/// The policy by the id of the sandbox, and with the API key.
pub(super) async fn by_id(
    State(app): State<App>,
    Id(id): Id,
    request: Request,
) -> Result<JsonBody<ById>, ApiError> {
    let method = request.method().clone();
    let body = match method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => extract::json_bytes(request, &app).await?,
    };
    let status = answer(&app, id, &method, &body).await?;
    Ok(JsonBody(ById { status, operator: app.reconciler.operator_rules() }))
}

/// What a sandbox reaches that is made without a policy.
pub(super) async fn without(State(app): State<App>) -> Result<JsonBody<ById>, ApiError> {
    check_power(&app.reconciler)?;
    let status = of(app.reconciler.no_policy());
    Ok(JsonBody(ById { status, operator: app.reconciler.operator_rules() }))
}

/// The policy at the sandbox's own port, whose token was shown.
pub(super) async fn at_port(
    app: &App,
    id: SandboxId,
    request: Request,
) -> Result<Response, ApiError> {
    let method = request.method().clone();
    let body = match method {
        Method::GET => Bytes::new(),
        _ => extract::bytes(request, app).await?,
    };
    let mut status = answer(app, id, &method, &body).await?;
    if method != Method::GET {
        status.policy = None;
    }
    Ok(JsonBody(status).into_response())
}

/// Why policies mean nothing here, if they do not.
pub(super) fn check_power(reconciler: &Reconciler) -> Result<(), ApiError> {
    if reconciler.has_network() {
        return Ok(());
    }
    Err(ApiError::not_implemented(
        codes::NOT_SUPPORTED,
        "the runtime of this server does not control what sandboxes reach",
    ))
}

async fn answer(
    app: &App,
    id: SandboxId,
    method: &Method,
    body: &[u8],
) -> Result<PolicyStatus, ApiError> {
    check_power(&app.reconciler)?;
    match *method {
        Method::PATCH if body.trim_ascii_start().starts_with(b"{") => {
            let policy: NetworkPolicy = parse(body)?;
            if policy == NetworkPolicy::default() {
                return Err(ApiError::invalid("the body must have a defaultAction or rules"));
            }
            change(app, id, move |before| Some(add(before, policy))).await
        }
        Method::PATCH => {
            let rules: Vec<NetworkRule> = list(body, "rules")?;
            change(app, id, move |policy| Some(merge(policy, &rules))).await
        }
        Method::DELETE => {
            let targets: Vec<String> = list(body, "targets")?;
            change(app, id, move |policy| remove(policy, &targets)).await
        }
        Method::POST | Method::PUT => {
            // A list of rules would be read as the fields of a policy, one after the other.
            if body.trim_ascii_start().starts_with(b"[") {
                return Err(ApiError::invalid("the body must be a policy, and is a list"));
            }
            let policy: Option<Option<NetworkPolicy>> =
                if body.is_empty() { None } else { Some(parse(body)?) };
            let is_reset = policy.is_none();
            let policy = policy.flatten().unwrap_or_default();
            let mut status = change(app, id, move |_| Some(policy)).await?;
            status.reason = is_reset.then(|| RESET.to_owned());
            Ok(status)
        }
        _ => Ok(status(app, &*app.record(id)?)),
    }
}

/// Makes a change, unless it would change nothing.
async fn change(
    app: &App,
    id: SandboxId,
    change: impl FnOnce(&NetworkPolicy) -> Option<NetworkPolicy> + Send + 'static,
) -> Result<PolicyStatus, ApiError> {
    let reconciler = app.reconciler.clone();
    let changed = app
        .reconciler
        .change_policy(id, move |record| {
            check_alive(record)?;
            let next = change(&reconciler.wire_policy(record));
            let Some(next) = next else { return Ok(None) };
            // What cannot be meant is wrong for every sandbox.
            let checked = reconciler.check_policy(next)?;
            check_trust(record, &checked.wire)?;
            match reconciler.uncovered(id, &checked.compiled) {
                Some(host) => Err(ApiError::invalid(format!(
                    "the vault has credentials for {host}, so the policy must allow it: take the \
                     binding out of the vault first (`osb vault patch {id} FILE`), or delete the \
                     vault (`osb vault rm {id}`)"
                ))),
                None => Ok(Some(checked)),
            }
        })
        .await
        .map_err(|unchanged| unchanged.answer(id))?;
    match changed {
        Some(record) => Ok(status(app, &record)),
        None => Ok(PolicyStatus {
            reason: Some(PolicyStatus::NOTHING_DELETED.to_owned()),
            ..status(app, &*app.record(id)?)
        }),
    }
}

/// What is over reaches nothing, whatever its policy says.
fn check_alive(record: &Record) -> Result<(), ApiError> {
    match record.phase() {
        Phase::Pending | Phase::Running | Phase::Pausing | Phase::Paused | Phase::Resuming => {
            Ok(())
        }
        Phase::Stopping | Phase::Terminated | Phase::Failed => Err(ApiError::conflict(
            codes::SANDBOX_NOT_RUNNING,
            format!("the sandbox is over: {}", record.desired.status.message),
        )),
    }
}

/// Whoever does not trust what the server shows in place of a host could only break off.
fn check_trust(record: &Record, policy: &NetworkPolicy) -> Result<(), ApiError> {
    if record.desired.spec.trust.is_some() || !has_rules_about_requests(policy) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "programs of this sandbox do not trust the server, which has to look into connections for \
         rules with methods or paths. That is settled when a sandbox is made: make one with such a \
         rule in its policy (`osb sandbox create --policy FILE`, or networkPolicy in the request), \
         or with credentialProxy",
    ))
}

fn status(app: &Parts, record: &Record) -> PolicyStatus {
    of(app.reconciler.wire_policy(record))
}

fn of(policy: NetworkPolicy) -> PolicyStatus {
    let status = PolicyStatus::of(&policy);
    let enforcement_mode = Some(EnforcementMode::DnsAndPackets);
    PolicyStatus { enforcement_mode, policy: Some(policy), ..status }
}

/// A list that says something.
fn list<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<Vec<T>, ApiError> {
    let list: Vec<T> = if body.is_empty() { Vec::new() } else { parse(body)? };
    if list.is_empty() {
        return Err(ApiError::invalid(format!("the body must be a list of {what}, one at least")));
    }
    Ok(list)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::invalid(format!("the body cannot be accepted: {error}")))
}
