//! Errors of a road with many steps, as they travel between processes.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// A step that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    step: String,
    cause: String,
    /// What of that which was asked for is at fault, if the machine is not.
    #[serde(default)]
    refusal: Option<Refusal>,
}

/// What cannot be had as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Something at that place.
    Place,
    /// Something of that file system.
    FileSystem,
    /// Something in the image.
    Image,
}

impl Failure {
    pub fn new(step: &str, cause: &dyn std::error::Error) -> Self {
        Self { step: step.to_owned(), cause: cause.to_string(), refusal: None }
    }

    /// Something that was asked for and cannot be done.
    pub fn refused(refusal: Refusal, step: &str, cause: impl Into<String>) -> Self {
        Self { step: step.to_owned(), cause: cause.into(), refusal: Some(refusal) }
    }

    pub fn refusal(&self) -> Option<Refusal> {
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
            refusal: None,
        })
    }
}
