use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The answer of `GET /entrypoint`: the program that the sandbox is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EntrypointStatus {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub running: bool,
    /// Absent while it runs; 128 and the number of the signal if one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}
