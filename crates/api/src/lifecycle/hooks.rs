use serde::{Deserialize, Serialize};

/// Programs that run before and during a sandbox's life. Unknown keys are refused: a misspelt
/// hook would otherwise never run and nobody would know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hooks {
    /// Runs to its end before the entrypoint starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_start: Option<PreStartHook>,
    /// Run again and again while the sandbox lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Vec<PeriodicHook>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreStartHook {
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10800))]
    pub timeout_seconds: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeriodicHook {
    /// Unique among the hooks of the sandbox.
    pub name: String,
    /// When to run, in cron's notation.
    pub schedule: String,
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 300))]
    pub timeout_seconds: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::Hooks;

    #[test]
    fn a_misspelt_hook_is_refused() {
        assert!(serde_json::from_str::<Hooks>(r#"{"prestart": {"command": ["x"]}}"#).is_err());
        assert!(serde_json::from_str::<Hooks>(r#"{"preStart": {"command": ["x"]}}"#).is_ok());
    }
}
