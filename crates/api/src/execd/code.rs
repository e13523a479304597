use serde::{Deserialize, Serialize};

use crate::null;

/// The languages that clients know.
pub mod languages {
    pub const PYTHON: &str = "python";
    pub const JAVA: &str = "java";
    pub const JAVASCRIPT: &str = "javascript";
    pub const TYPESCRIPT: &str = "typescript";
    pub const GO: &str = "go";
    pub const BASH: &str = "bash";
    pub const SQL: &str = "sql";
}

/// A running interpreter that keeps its state between calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CodeContext {
    pub id: String,
    /// One of [`languages`].
    pub language: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The body of `POST /code/context`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreateContext {
    #[serde(default, deserialize_with = "null::or_default")]
    pub language: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The body of `POST /code`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunCode {
    pub code: String,
    /// Where to run it; without one, as a shell command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
}

/// Names a context: by its id, or the shared default context of a language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ContextRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub language: String,
}
