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
mod template;
mod volumes;

pub(crate) use self::{
    entrypoint::check as check_entrypoint,
    origin::admit_name,
    template::{Probe, admit as admit_template, warmup},
};

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use osb_api::{
    SandboxId, codes,
    lifecycle::{CreateSandboxRequest, ImageAuth, ImageSpec, NetworkPolicy, NetworkRule},
};
use osb_core::{Desired, Goal, SandboxSpec, Status, check_labels};
use osb_registry::Login;

use crate::{
    config::MIN_TIMEOUT,
    error::ApiError,
    history::History,
    reconcile::Reconciler,
    record::{Purpose, Record},
    store::Store,
    token,
    uses::Uses,
};

pub(crate) const MAX_LABELS: usize = 256;
const MAX_USERNAME: usize = 1024;
/// Some registries take tokens that are long.
const MAX_PASSWORD: usize = 32 * 1024;

/// What the server allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_timeout_seconds: u64,
}

/// Checks the request and writes the record that it comes to.
pub(crate) fn admit(
    mut request: CreateSandboxRequest,
    limits: Limits,
    store: &Store,
    reconciler: &Reconciler,
    now: Timestamp,
) -> Result<Record, ApiError> {
    let template = template::fill_in(&mut request, store.templates(), reconciler)?;
    refuse_unsupported(&request)?;
    let origin = match &template {
        Some(template) => origin::of_template(template, store.snapshots())?,
        None => origin::admit(&request, store.snapshots())?,
    };
    let entrypoint = match request.entrypoint.or_else(|| origin.default_entrypoint()) {
        // What the image runs is known when the image is here.
        None if reconciler.library().is_some() => Vec::new(),
        entrypoint => entrypoint::admit(entrypoint)?,
    };
    let metadata = metadata(request.metadata.unwrap_or_default())?;
    let platform = request.platform.as_ref().map(platform::admit).transpose()?;
    let now = micros(now);
    let expires_at = expiry(request.timeout, limits, now)?;
    let resources = resources::admit(request.resource_limits, request.resource_requests)?;
    let id = SandboxId::random();
    let (env, vault_terms) = env::admit(request.env.unwrap_or_default(), id)?;
    let volumes = volumes::admit(request.volumes.unwrap_or_default())?;
    let extensions = extensions::admit(request.extensions.unwrap_or_default())?;
    extensions.check(expires_at, reconciler.can_pause())?;
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
    let status = Status::starting(now);
    Ok(Record {
        history: History::beginning(&status),
        desired: Desired {
            spec: SandboxSpec {
                env,
                resources,
                image_digest: origin.image_digest,
                snapshot: origin.snapshot,
                volumes,
                trust,
                extra_trust: reconciler.egress().extra_ca().map(str::to_owned),
                ..SandboxSpec::new(id, origin.image, entrypoint, token::mint()?)
            },
            goal: Goal::Running,
            expires_at,
            idle: extensions.idle,
            status,
        },
        created_at: now,
        metadata,
        extensions: extensions.echoed,
        platform,
        policy,
        credential_proxy,
        vault_terms,
        egress_token: token::mint()?,
        secure_access,
        template: template.map(|template| template.id),
        renew_seconds: extensions.renew_seconds,
        announced: false,
        purpose: Purpose::default(),
        requests: 0,
        failed_removals: 0,
        uses: Uses::default(),
    })
}

/// Who asks the registry of the image, if the request says so.
pub(crate) fn login(
    image: Option<&ImageSpec>,
    reconciler: &Reconciler,
) -> Result<Option<Login>, ApiError> {
    let Some(auth) = image.and_then(|image| image.auth.as_ref()) else { return Ok(None) };
    if reconciler.library().is_none() {
        return Err(ApiError::unsupported(
            "the runtime of this server does not leave images to it: leave image.auth out",
        ));
    }
    admit_login(auth).map(Some)
}

/// Who asks a registry.
pub(crate) fn admit_login(auth: &ImageAuth) -> Result<Login, ApiError> {
    let ImageAuth { username, password } = auth;
    let password = password.reveal();
    if username.len() > MAX_USERNAME || password.len() > MAX_PASSWORD {
        return Err(ApiError::invalid(format!(
            "a login for a registry has at most {MAX_USERNAME} bytes as its name and \
             {MAX_PASSWORD} as its password"
        )));
    }
    if username.is_empty() || password.is_empty() {
        return Err(ApiError::invalid(
            "a login for a registry has a name and a password: leave it out if there is none",
        ));
    }
    Ok(Login { username: username.clone(), password: password.to_owned().into() })
}

/// The precision that the wire and the store have.
pub(crate) fn micros(moment: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(moment.as_microsecond()).unwrap_or(moment)
}

fn refuse_unsupported(request: &CreateSandboxRequest) -> Result<(), ApiError> {
    if request.lifecycle.is_some() {
        return Err(ApiError::unsupported(
            "lifecycle hooks are not supported yet: run the commands once the sandbox is there",
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
