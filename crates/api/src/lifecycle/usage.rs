use serde::{Deserialize, Serialize};

/// What a sandbox uses. What is absent cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxUsage {
    /// Processor time since the sandbox was made, in milliseconds.
    pub cpu_time_ms: u64,
    /// Memory in use now, without what is kept of files and can be dropped at any time.
    pub memory_bytes: u64,
    /// The most memory that was in use at once, with what was kept of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads now.
    pub processes: u64,
    /// What the sandbox's own files take, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}
