//! What has to be built, in which order, and what of it can be built side by side.

mod globals;
mod graph;

use std::collections::BTreeMap;

use osb_registry::Platform;

pub use self::graph::Source;
pub(crate) use self::{
    globals::{EPOCH, PROXIES},
    graph::{Graph, source},
};
use crate::{
    dockerfile::Dockerfile,
    problem::{Problem, Warning},
};

/// What somebody wants of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name or the number of a stage; the last one if nothing is said.
    pub target: Option<String>,
    /// Values of `ARG`s.
    pub args: BTreeMap<String, String>,
    /// What the image is for.
    pub platform: Platform,
    /// What it is built on.
    pub host: Platform,
    /// Labels of the image, beside those that the Dockerfile gives it.
    pub labels: BTreeMap<String, String>,
    /// The time that the image says it was made at, and that no file in it is newer than, in seconds
    /// since 1970.
    pub epoch: Option<i64>,
}

impl Wanted {
    /// The last stage, for this machine.
    pub fn new() -> Self {
        Self {
            target: None,
            args: BTreeMap::new(),
            platform: Platform::host(),
            host: Platform::host(),
            labels: BTreeMap::new(),
            epoch: None,
        }
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Self::new()
    }
}

/// A Dockerfile with what is wanted of it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) file: Dockerfile,
    pub(crate) wanted: Wanted,
    /// Values of `ARG`s before the first `FROM`, and of those that are always there.
    pub(crate) globals: BTreeMap<String, String>,
    pub(crate) stages: Vec<Planned>,
    pub(crate) target: usize,
    pub(crate) graph: Graph,
    pub warnings: Vec<Warning>,
}

/// A stage with its variables replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What it is called in messages: its name, or `stage-2`.
    pub name: String,
    pub base: Base,
    /// What its programs are for.
    pub platform: Platform,
}

/// What a stage stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// Nothing.
    Scratch,
    Stage(usize),
    Image(String),
}

impl Plan {
    /// Plans the build. Nothing is read but the Dockerfile.
    pub fn new(file: Dockerfile, mut wanted: Wanted) -> Result<Self, Problem> {
        if wanted.epoch.is_none() {
            wanted.epoch = globals::epoch(&file, &wanted)?;
        }
        let globals = globals::values(&file, &wanted)?;
        let mut warnings = file.warnings.clone();
        let stages = graph::stages(&file, &wanted, &globals)?;
        let graph = Graph::new(&file, &stages)?;
        let target = graph::target(&file, wanted.target.as_deref())?;
        warnings.extend(globals::unknown(&file, &wanted));
        Ok(Self { file, wanted, globals, stages, target, graph, warnings })
    }

    /// The number of the stage that is wanted.
    pub fn target(&self) -> usize {
        self.target
    }

    pub fn stages(&self) -> &[Planned] {
        &self.stages
    }

    /// The stages that are built, each after those that it needs.
    pub fn order(&self) -> Vec<usize> {
        self.graph.order(self.target)
    }

    /// The stages that this one needs.
    pub fn needs(&self, stage: usize) -> Vec<usize> {
        self.graph.needs(stage)
    }
}

#[cfg(test)]
mod tests;
