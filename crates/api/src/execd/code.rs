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
    /// Where it began, if its request said so: an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What runs the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ContextKind>,
    /// How many bytes of memory its process has, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ContextKind {
    /// An interpreter of the image, driven by execd.
    Builtin,
    /// A Jupyter kernel of the image.
    Jupyter,
}

/// The body of `POST /code/context`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(expecting = "an object with `language`")]
pub struct CreateContext {
    #[serde(default, deserialize_with = "null::or_default")]
    pub language: String,
    /// Where it begins; made if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What is to run the code; without it, a kernel of Python, TypeScript, Java or Go if the image has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ContextKind>,
}

/// The body of `POST /code`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(expecting = "an object with `code`")]
pub struct RunCode {
    pub code: String,
    /// Where to run it; without this and a language, as a shell command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
    /// The language, if the context does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// How long it may run, in milliseconds; without it, or with 0, as long as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// Names a context: by its id, or the shared default context of a language.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(expecting = "an object with `id` or `language`")]
pub struct ContextRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub language: String,
}
