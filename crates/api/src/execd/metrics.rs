use serde::{Deserialize, Serialize};

/// How much is at work in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Work {
    /// Commands, terminals that run a program, and sessions and contexts that run something. The
    /// entrypoint is not counted.
    pub running: u64,
}

/// What the sandbox uses now. Every field is always present.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Metrics {
    /// Processors that the sandbox may use.
    pub cpu_count: f64,
    /// Share of them in use, 0 to 100.
    pub cpu_used_pct: f64,
    pub mem_total_mib: f64,
    pub mem_used_mib: f64,
    /// When it was measured, in milliseconds since 1970.
    pub timestamp: i64,
}
