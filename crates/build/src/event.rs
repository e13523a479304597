//! What is told while an image is built.

use std::{fmt, time::Duration};

use crate::{Stream, Warning};

/// A step of the build: the number of its stage in the Dockerfile, and its own in the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    pub stage: usize,
    pub step: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something that is hardly meant.
    Warned(Warning),
    /// A step begins. Its title is `[build 2/7] RUN make`.
    Began {
        step: StepId,
        title: String,
    },
    /// What it would do was done before.
    Cached {
        step: StepId,
    },
    /// A line that it said.
    Said {
        step: StepId,
        stream: Stream,
        line: String,
    },
    Done {
        step: StepId,
        took: Duration,
    },
    Failed {
        step: StepId,
        took: Duration,
    },
}

/// Who is told. It may be called often, and must not wait.
pub trait Progress: Send + Sync {
    fn tell(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Progress for F {
    fn tell(&self, event: Event) {
        self(event);
    }
}

/// What comes before a step: `[2/7]`, or `[build 2/7]` if there are several stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Number<'a> {
    pub(crate) stage: Option<&'a str>,
    pub(crate) step: usize,
    pub(crate) of: usize,
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Some(stage) => write!(f, "[{stage} {}/{}]", self.step, self.of),
            None => write!(f, "[{}/{}]", self.step, self.of),
        }
    }
}
