use std::fmt;

use crate::{Chain, RuntimeError};

/// How a law was broken.
#[derive(Debug)]
pub struct Breach(String);

impl Breach {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RuntimeError> for Breach {
    /// A call failed that should not have.
    fn from(error: RuntimeError) -> Self {
        Self(Chain(&error).to_string())
    }
}

/// Breaks off a law unless this holds.
macro_rules! hold {
    ($condition:expr, $($what:tt)*) => {
        if !$condition {
            return Err($crate::testkit::conformance::Breach::new(format!($($what)*)));
        }
    };
}

pub(super) use hold;
