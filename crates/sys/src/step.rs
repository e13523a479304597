//! Errors of a road with many steps, as they travel between processes.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// A step that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    step: String,
    cause: String,
    /// Whether what was asked for is at fault, and not the machine.
    #[serde(default)]
    refusal: bool,
}

impl Failure {
    pub fn new(step: &str, cause: &dyn std::error::Error) -> Self {
        Self { step: step.to_owned(), cause: cause.to_string(), refusal: false }
    }

    /// Something that was asked for and cannot be done.
    pub fn refusal(step: &str, cause: impl Into<String>) -> Self {
        Self { step: step.to_owned(), cause: cause.into(), refusal: true }
    }

    pub fn is_refusal(&self) -> bool {
        self.refusal
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.cause)
    }
}

impl std::error::Error for Failure {}

/// Names the step that an operation was.
pub trait Step<T> {
    fn step(self, what: &str) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what, &error))
    }
}

impl<T> Step<T> for rustix::io::Result<T> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what, &error))
    }
}

impl<T> Step<T> for Result<T, crate::fs::PathError> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step: what.to_owned(),
            cause: format!("{error}: {}", error.io()),
            refusal: false,
        })
    }
}
