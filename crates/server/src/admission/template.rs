//! What may be a template, and what a sandbox from one has of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use osb_api::{
    codes,
    lifecycle::{CreateSandboxRequest, CreateTemplateRequest, ImageSpec, Readiness, TemplatePhase},
};

use crate::{
    error::ApiError,
    library::IDLE,
    reconcile::Reconciler,
    store::Index,
    template_record::{TemplateRecord, phase_name},
};

const MAX_PUBLISH: usize = 1024;
const MAX_PROBE: usize = 16 * 1024;
const MAX_WARMUP: Duration = Duration::from_hours(1);

/// How it is found out that a sandbox is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Probe {
    /// This succeeds, as text for the shell.
    Command(String),
    /// This port takes connections.
    Port(u16),
}

/// Checks a request for a template. What it comes to is that of the sandbox whose files it will be.
pub(crate) fn admit(request: &CreateTemplateRequest) -> Result<CreateSandboxRequest, ApiError> {
    let CreateTemplateRequest { publish, env, resource_limits, .. } = request;
    if publish.trim().is_empty() || publish.len() > MAX_PUBLISH {
        return Err(ApiError::invalid(format!("publish must have 1 to {MAX_PUBLISH} bytes")));
    }
    if let Some(name) = env.iter().flat_map(BTreeMap::keys).find(|name| !is_shell_name(name)) {
        let shown: String = name.chars().take(64).collect();
        return Err(ApiError::invalid(format!(
            "env key {shown:?} is no shell variable: they have letters, digits and _, and begin \
             with no digit"
        )));
    }
    let known = ["cpu", "memory", "disk"];
    let mut limits = resource_limits.iter().flat_map(BTreeMap::keys);
    if let Some(other) = limits.find(|key| !known.contains(&key.as_str())) {
        let shown: String = other.chars().take(64).collect();
        return Err(ApiError::invalid(format!(
            "resourceLimits has the key {shown:?}: those of a template are cpu, memory and disk"
        )));
    }
    let readiness = request.readiness.as_ref();
    Probe::of(readiness)?;
    if warmup(readiness) > MAX_WARMUP {
        return Err(ApiError::invalid(format!(
            "readiness.warmupSeconds is at most {}",
            MAX_WARMUP.as_secs()
        )));
    }
    let image = Some(ImageSpec { uri: request.image.clone(), auth: None });
    // Its labels are the template's own, but must be labels.
    let metadata = request.metadata.clone();
    Ok(CreateSandboxRequest { image, metadata, ..described(request) })
}

/// How long a sandbox goes on once it is ready.
pub(crate) fn warmup(readiness: Option<&Readiness>) -> Duration {
    let seconds = readiness.and_then(|readiness| readiness.warmup_seconds);
    Duration::from_secs(seconds.unwrap_or_default())
}

impl Probe {
    /// The probe of a template, if it has one.
    pub(crate) fn of(readiness: Option<&Readiness>) -> Result<Option<Self>, ApiError> {
        let Some(text) = readiness.and_then(|readiness| readiness.probe.as_deref()) else {
            return Ok(None);
        };
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_PROBE || text.contains('\0') {
            return Err(ApiError::invalid(format!(
                "readiness.probe must have 1 to {MAX_PROBE} bytes, and no NUL"
            )));
        }
        let invalid = || {
            ApiError::invalid(
                "readiness.probe is a command, as it stands or as cmd://COMMAND, or \
                 tcp://127.0.0.1:PORT",
            )
        };
        let scheme = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match text.split_once("://").filter(|(name, _)| scheme(name)) {
            None => Ok(Some(Self::Command(text.to_owned()))),
            Some(("cmd", command)) if !command.trim().is_empty() => {
                Ok(Some(Self::Command(command.to_owned())))
            }
            Some(("tcp", address)) => {
                let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
                let is_its_own = matches!(host, "127.0.0.1" | "localhost" | "[::1]");
                let port = port.parse().ok().filter(|port| *port != 0 && is_its_own);
                port.map(|port| Some(Self::Port(port))).ok_or_else(invalid)
            }
            Some(_) => Err(invalid()),
        }
    }
}

/// If the request names a template, fills in what that says of all its sandboxes.
pub(super) fn fill_in(
    request: &mut CreateSandboxRequest,
    templates: &Index<TemplateRecord>,
    reconciler: &Reconciler,
) -> Result<Option<Arc<TemplateRecord>>, ApiError> {
    let id = request.template_id.take().filter(|id| !id.trim().is_empty());
    let Some(id) = id.as_deref().map(str::trim) else { return Ok(None) };
    if !reconciler.can_keep() {
        return Err(ApiError::invalid_as(
            codes::TEMPLATE_NOT_SUPPORTED,
            "the runtime of this server has no templates: give an image instead of templateId",
        ));
    }
    refuse_beside(request)?;
    let found = id.parse().ok().and_then(|id| templates.get(id));
    let found = found.ok_or_else(|| ApiError::no_template(id))?;
    if found.phase != TemplatePhase::Succeeded {
        return Err(ApiError::conflict(
            codes::TEMPLATE_CONFLICT,
            format!("the template is {}, and must be Succeeded", phase_name(found.phase)),
        ));
    }
    let CreateSandboxRequest { entrypoint, env, resource_limits, .. } = described(&found.request);
    request.entrypoint = entrypoint;
    request.env = env;
    request.resource_limits = resource_limits;
    Ok(Some(found))
}

/// What a template says of all its sandboxes, nobody says again.
fn refuse_beside(request: &CreateSandboxRequest) -> Result<(), ApiError> {
    let text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
    let image = request.image.as_ref().is_some_and(|image| !image.uri.trim().is_empty());
    let proxy = request.credential_proxy.as_ref().is_some_and(|proxy| proxy.enabled);
    let given = [
        ("image", image),
        ("snapshotId", text(&request.snapshot_id)),
        ("entrypoint", request.entrypoint.is_some()),
        ("env", request.env.is_some()),
        ("resourceLimits", request.resource_limits.is_some()),
        ("resourceRequests", request.resource_requests.is_some()),
        ("volumes", request.volumes.is_some()),
        ("platform", request.platform.is_some()),
        ("credentialProxy", proxy),
        ("secureAccess", request.secure_access),
        ("lifecycle", request.lifecycle.is_some()),
    ];
    if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(ApiError::contradictory(format!(
            "{field} cannot be given beside templateId: the template describes the sandbox"
        )));
    }
    if request.timeout.is_none() {
        return Err(ApiError::contradictory("a sandbox from a template needs a timeout"));
    }
    Ok(())
}

fn described(template: &CreateTemplateRequest) -> CreateSandboxRequest {
    let own = template.entrypoint.clone().filter(|words| !words.is_empty());
    let env = template.env.clone().unwrap_or_default();
    CreateSandboxRequest {
        entrypoint: Some(own.unwrap_or_else(|| IDLE.map(str::to_owned).to_vec())),
        env: Some(env.into_iter().map(|(name, value)| (name, Some(value))).collect()),
        resource_limits: Some(template.resource_limits.clone().unwrap_or_default()),
        ..CreateSandboxRequest::default()
    }
}

fn is_shell_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> Result<Option<Probe>, ApiError> {
        let readiness = Readiness { probe: Some(text.to_owned()), ..Readiness::default() };
        Probe::of(Some(&readiness))
    }

    #[test]
    fn a_probe_is_a_command_or_a_port_of_the_sandbox() {
        let command = |text: &str| Some(Probe::Command(text.to_owned()));
        for (text, expected) in [
            (" test -e /ready ", command("test -e /ready")),
            ("cmd://curl -f http://127.0.0.1/", command("curl -f http://127.0.0.1/")),
            ("curl -f http://127.0.0.1/", command("curl -f http://127.0.0.1/")),
            ("tcp://127.0.0.1:44772", Some(Probe::Port(44772))),
            ("tcp://localhost:80", Some(Probe::Port(80))),
        ] {
            assert_eq!(probe(text).expect(text), expected, "{text}");
        }
        assert_eq!(Probe::of(None).expect("none"), None);
        for text in [
            "",
            "  ",
            "a\0b",
            "cmd:// ",
            "http://127.0.0.1/",
            "tcp://127.0.0.1",
            "tcp://127.0.0.1:0",
            "tcp://example.com:80",
            "tcp://127.0.0.1:http",
        ] {
            assert!(probe(text).is_err(), "{text:?} was accepted");
        }
    }
}
