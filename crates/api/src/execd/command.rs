use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::null;

/// The body of `POST /command`: a program to run, either as shell text or as its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunCommand {
    /// Text for the shell. Either this or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program and its arguments, run as they are and without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The directory to run in; it must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Answer at once and let the command run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// Milliseconds after which the command is killed; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// The user to run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group to run as, in place of the user's own. Needs `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Variables for this command alone, taken literally.
    #[serde(
        default,
        deserialize_with = "null::or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub envs: BTreeMap<String, String>,
    /// What the command reads from its standard input, which is empty without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// How many bytes of output are kept or sent; the rest is dropped, and an event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
}

/// The answer of `GET /command/status/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CommandStatus {
    pub id: String,
    /// What was asked to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    pub running: bool,
    /// Absent while it runs; -1 if a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_unknown_fields_are_accepted() {
        let request: RunCommand = serde_json::from_str(
            r#"{"command":"true","argv":null,"cwd":null,"background":null,"timeout":null,
                "uid":null,"gid":null,"envs":null,"stdin":null,"output_limit":null,
                "color":"green"}"#,
        )
        .unwrap();
        assert_eq!(request, RunCommand { command: Some("true".into()), ..Default::default() });
    }

    #[test]
    fn absent_fields_are_not_sent() {
        let request = RunCommand { command: Some("true".into()), ..Default::default() };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"command":"true"}"#);
    }
}
