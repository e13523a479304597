use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::null;

/// The body of `POST /v1/isolated/session`. At least one of `workspace` and `overlays`.
///
/// Answers echo the same fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreateIsolated {
    /// The directory to work in; comes before all overlays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<IsolatedWorkspace>,
    /// At most 16, with distinct absolute paths.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<IsolatedOverlay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<IsolatedProfile>,
    /// Further paths that may be written to.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub extra_writable: Vec<String>,
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<IsolatedBind>,
    /// Use the sandbox's network instead of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_net: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_passthrough: Option<EnvPassthrough>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid_mode: Option<UidMode>,
    /// Seconds without a run after which the session ends; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedWorkspace {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkspaceMode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedOverlay {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkspaceMode>,
    /// Keep what is written; with the mode `overlay` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
}

/// What happens to writes below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// They reach the sandbox's own file.
    Rw,
    /// They go to a layer of the session.
    Overlay,
    /// They fail.
    Ro,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum IsolatedProfile {
    Strict,
    Balanced,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedBind {
    pub source: String,
    /// The same as `source` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

/// Which of execd's variables a session sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EnvPassthrough {
    pub mode: EnvMode,
    #[serde(default, deserialize_with = "null::or_default")]
    pub keys: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EnvMode {
    /// Only the keys.
    Allow,
    /// All but the keys.
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UidMode {
    SetPriv,
    UserNs,
}

/// The answer of `POST /v1/isolated/session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedCreated {
    pub session_id: Uuid,
    pub created_at: Timestamp,
    #[serde(flatten)]
    pub request: CreateIsolated,
}

/// The answer of `GET /v1/isolated/session/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedSession {
    pub status: IsolatedStatus,
    pub created_at: Timestamp,
    pub last_run_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_remaining_seconds: Option<u64>,
    #[serde(flatten)]
    pub request: CreateIsolated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum IsolatedStatus {
    Active,
    Dead,
    Destroyed,
}

/// The answer of `GET /v1/isolated/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedList {
    pub sessions: Vec<IsolatedListed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedListed {
    pub session_id: Uuid,
    pub status: IsolatedStatus,
    pub created_at: Timestamp,
    pub last_run_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_remaining_seconds: Option<u64>,
}

/// The body of `POST /v1/isolated/session/{id}/run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunIsolated {
    /// Text for the session's shell.
    pub code: String,
    #[serde(
        default,
        deserialize_with = "null::or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Answer at once with the run's id and let it run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
}

/// The answer to a background run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedRunStarted {
    pub session_id: Uuid,
    pub run_id: Uuid,
    pub started_at: Timestamp,
}

/// The answer of `GET /v1/isolated/session/{id}/runs/{run_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IsolatedRun {
    pub session_id: Uuid,
    pub run_id: Uuid,
    pub running: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// The answer of `GET /v1/isolated/capabilities`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the protocol")]
pub struct IsolatedCapabilities {
    pub available: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub setpriv_available: bool,
    pub userns_available: bool,
    pub commit_supported: bool,
    pub diff_supported: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardening: Option<Hardening>,
}

/// What holds a session in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hardening {
    /// What execd is to the session: `pid1`, `subreaper` or `none`.
    pub init_mode: String,
    /// Whether what runs in the session cannot kill its execd.
    pub signal_shield: bool,
    pub cap_drop: HardeningState,
    pub seccomp: HardeningState,
    pub landlock: HardeningState,
    pub ebpf: HardeningState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HardeningState {
    pub state: String,
    #[serde(default, deserialize_with = "null::or_default")]
    pub message: String,
}
