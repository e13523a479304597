//! From a request for a sandbox to the record of one, or to the reason why not.
//!
//! What this server cannot honour is refused in a sentence, never ignored.

mod egress_env;
mod entrypoint;
mod env;
mod extensions;
mod origin;
mod platform;
mod resources;
mod volumes;

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use osb_api::{
    SandboxId, codes,
    lifecycle::{CreateSandboxRequest, NetworkPolicy, NetworkRule},
};
use osb_core::{Desired, Goal, Phase, Reason, SandboxSpec, Status, check_labels};

use crate::{
    config::MIN_TIMEOUT, error::ApiError, reconcile::Reconciler, record::Record,
    snapshot_record::SnapshotRecord, store::Index, token,
};

pub(crate) const MAX_LABELS: usize = 256;

/// What the server allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_timeout_seconds: u64,
}

/// Checks the request and writes the record that it comes to.
pub(crate) fn admit(
    request: CreateSandboxRequest,
    limits: Limits,
    snapshots: &Index<SnapshotRecord>,
    reconciler: &Reconciler,
    now: Timestamp,
) -> Result<Record, ApiError> {
    refuse_unsupported(&request)?;
    let origin = origin::admit(&request, snapshots)?;
    let entrypoint = entrypoint::admit(request.entrypoint.or_else(|| origin.default_entrypoint()))?;
    let metadata = metadata(request.metadata.unwrap_or_default())?;
    let platform = request.platform.as_ref().map(platform::admit).transpose()?;
    let now = micros(now);
    let expires_at = expiry(request.timeout, limits, now)?;
    let resources = resources::admit(request.resource_limits, request.resource_requests)?;
    let id = SandboxId::random();
    let (env, vault_terms) = env::admit(request.env.unwrap_or_default(), id)?;
    let volumes = volumes::admit(request.volumes.unwrap_or_default())?;
    let extensions = extensions::admit(request.extensions.unwrap_or_default())?;
    let credential_proxy = request.credential_proxy.is_some_and(|proxy| proxy.enabled);
    if credential_proxy && request.network_policy.is_none() {
        return Err(ApiError::contradictory(
            "credentialProxy needs a networkPolicy: it says where credentials may go",
        ));
    }
    let policy =
        request.network_policy.map(|policy| network_policy(policy, reconciler)).transpose()?;
    // Where connections are looked into, programs must trust what the server shows them.
    let looks_into = credential_proxy || policy.as_deref().is_some_and(has_rules_about_requests);
    let trust = looks_into.then(|| reconciler.authority(id)).transpose();
    let trust = trust.map_err(ApiError::internal)?;
    let secure_access = if request.secure_access { Some(token::mint()?) } else { None };
    Ok(Record {
        desired: Desired {
            spec: SandboxSpec {
                env,
                resources,
                snapshot: origin.snapshot,
                volumes,
                trust,
                extra_trust: reconciler.egress().extra_ca().map(str::to_owned),
                ..SandboxSpec::new(id, origin.image, entrypoint, token::mint()?)
            },
            goal: Goal::Running,
            expires_at,
            status: Status {
                phase: Phase::Pending,
                reason: Reason::ContainerStarting,
                message: "the sandbox is being started".to_owned(),
                since: now,
            },
        },
        created_at: now,
        metadata,
        extensions,
        platform,
        policy,
        credential_proxy,
        vault_terms,
        egress_token: token::mint()?,
        secure_access,
        announced: false,
        requests: 0,
        failed_removals: 0,
    })
}

/// The precision that the wire and the store have.
pub(crate) fn micros(moment: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(moment.as_microsecond()).unwrap_or(moment)
}

fn refuse_unsupported(request: &CreateSandboxRequest) -> Result<(), ApiError> {
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
    if request.lifecycle.is_some() {
        return Err(ApiError::unsupported(
            "lifecycle hooks are not supported yet: run the commands once the sandbox is there",
        ));
    }
    if given(&request.template_id) {
        return Err(ApiError::invalid_as(
            codes::TEMPLATE_NOT_SUPPORTED,
            "templates are not supported yet: give an image instead of templateId",
        ));
    }
    Ok(())
}

/// A policy that nobody would enforce is refused, not ignored.
fn network_policy(
    policy: NetworkPolicy,
    reconciler: &Reconciler,
) -> Result<Arc<NetworkPolicy>, ApiError> {
    if !reconciler.has_network() {
        return Err(ApiError::unsupported(
            "the runtime of this server does not control what sandboxes reach: leave networkPolicy \
             out",
        ));
    }
    Ok(reconciler.check_policy(policy)?.wire)
}

/// Whether the policy has rules by which connections are looked into.
pub(crate) fn has_rules_about_requests(policy: &NetworkPolicy) -> bool {
    policy.egress.iter().any(NetworkRule::is_about_requests)
}

fn metadata(metadata: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ApiError> {
    check_labels(&metadata)?;
    if metadata.len() > MAX_LABELS {
        return Err(too_many_labels());
    }
    Ok(metadata)
}

pub(crate) fn too_many_labels() -> ApiError {
    ApiError::invalid_as(
        codes::INVALID_METADATA_LABEL,
        format!("a sandbox has at most {MAX_LABELS} metadata keys"),
    )
}

fn expiry(
    timeout: Option<i64>,
    limits: Limits,
    now: Timestamp,
) -> Result<Option<Timestamp>, ApiError> {
    let Some(seconds) = timeout else { return Ok(None) };
    let max = limits.max_timeout_seconds;
    if !u64::try_from(seconds).is_ok_and(|seconds| (MIN_TIMEOUT..=max).contains(&seconds)) {
        return Err(ApiError::invalid(format!(
            "timeout must be {MIN_TIMEOUT} to {max} seconds; a sandbox without one lives until it is \
             deleted"
        )));
    }
    now.checked_add(SignedDuration::from_secs(seconds))
        .map(Some)
        .map_err(|_| ApiError::invalid("timeout lies too far in the future"))
}
