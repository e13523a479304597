//! Building an image.
//!
//! Each stage is a future that goes through its instructions. Where it takes files from another stage it
//! waits for that one; otherwise stages go side by side. A step that was done before is not done again.

mod copy;
mod run;
mod stage;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::{BoxFuture, try_join_all};
use osb_core::{Clock, ImageName};
use osb_image::{Configuration, Stack};
use osb_registry::{Digest, Platform, Reference};
use tokio::sync::{OnceCell, Semaphore};

use crate::{
    BuildError, CacheKey, Context, Event, Plan, Progress, Secret, Source, Tree, WorkError,
    Workshop,
    key::Key,
    plan::Graph,
    problem::{Fault, Problem},
};

/// Everything that a build needs.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    pub plan: &'a Plan,
    pub context: &'a Context,
    pub workshop: &'a dyn Workshop,
    pub progress: &'a dyn Progress,
    pub clock: &'a dyn Clock,
    /// By their ids.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// What the image will be called.
    pub names: &'a [Reference],
    pub caching: Caching,
    /// How many steps may be at work at a time.
    pub side_by_side: usize,
}

/// Whether steps are done that were done before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caching {
    /// What was done before is taken.
    #[default]
    Use,
    /// Everything is done anew, for the next build to take.
    Renew,
}

/// An image that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Of its manifest.
    pub digest: Digest,
    pub tree: Tree,
}

impl std::fmt::Debug for Build<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Build").field("plan", self.plan).finish_non_exhaustive()
    }
}

impl Build<'_> {
    /// Builds the image. Dropping the future ends the build.
    pub async fn run(&self) -> Result<Built, BuildError> {
        for warning in &self.plan.warnings {
            self.progress.tell(Event::Warned(warning.clone()));
        }
        let stages = self.plan.stages().iter().map(|_| OnceCell::new()).collect();
        let builder = Builder {
            build: self,
            stages,
            graph: Mutex::new(self.plan.graph.clone()),
            turns: Semaphore::new(self.side_by_side.max(1)),
            is_alone: self.plan.order().len() == 1,
        };
        let order = self.plan.order();
        try_join_all(order.iter().map(|stage| builder.stage(*stage))).await?;
        let finished = builder.stage(self.plan.target()).await?;
        let mut configuration = finished.configuration.clone();
        configuration.config.labels.extend(self.plan.wanted.labels.clone());
        let place = self.plan.file.stages.get(self.plan.target()).map(|stage| &stage.place);
        let (line, text) = place.map_or((1, ""), |place| (place.last, place.text.as_str()));
        let digest = self.workshop.finish(&finished.tree, configuration, self.names).await;
        let digest =
            digest.map_err(|error| BuildError::work(&self.plan.file.name, line, text, error))?;
        Ok(Built { digest, tree: finished.tree.clone() })
    }
}

/// A build that is going on.
struct Builder<'a> {
    build: &'a Build<'a>,
    stages: Vec<OnceCell<Result<Arc<Finished>, BuildError>>>,
    /// With what images want of other stages that are built on them.
    graph: Mutex<Graph>,
    turns: Semaphore,
    /// Whether there is one stage only, which then needs no name.
    is_alone: bool,
}

/// A stage that is built.
#[derive(Debug)]
struct Finished {
    tree: Tree,
    configuration: Configuration,
    /// When its last step was done.
    at: Option<i64>,
}

/// Files of another stage or image.
struct Opened {
    stack: Arc<Stack>,
    key: CacheKey,
}

impl Builder<'_> {
    /// The stage, which is built if it is not yet.
    fn stage(&self, number: usize) -> BoxFuture<'_, Result<Arc<Finished>, BuildError>> {
        Box::pin(async move {
            let Some(cell) = self.stages.get(number) else {
                let fault = Fault::new(format!("there is no stage {number}"));
                return Err(Problem::new(&self.build.plan.file.name, 1, "", &fault).into());
            };
            cell.get_or_init(|| async { self.build_stage(number).await.map(Arc::new) })
                .await
                .clone()
        })
    }

    /// Files of another stage or of an image, for a step of stage `number`.
    async fn open(
        &self,
        number: usize,
        source: &Source,
        platform: &Platform,
    ) -> Result<Opened, Trouble> {
        let tree = match source {
            // Whoever asks has it already.
            Source::Context => Tree::default(),
            Source::Stage(other) => {
                // The Dockerfile said so, or an image that the stage stands on.
                let added = {
                    let mut graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
                    graph.try_add(number, *other)
                };
                added.map_err(Trouble::Fault)?;
                self.stage(*other).await.map_err(Trouble::Build)?.tree.clone()
            }
            Source::Image(name) => self.base(name, platform).await?.0,
        };
        let stack = self.build.workshop.open(&tree).await.map_err(Trouble::Work)?;
        Ok(Opened { stack, key: tree_key(&tree) })
    }

    /// An image from elsewhere.
    async fn base(
        &self,
        name: &str,
        platform: &Platform,
    ) -> Result<(Tree, Configuration), Trouble> {
        if name == "host" {
            return Err(Trouble::Fault(Fault::new(
                "host is no image to build on: most of it is files of this machine, which stay here",
            )));
        }
        Reference::parse(name).map_err(|error| {
            Trouble::Fault(Fault::new(format!("{name} cannot be the name of an image: {error}")))
        })?;
        let base = self.build.workshop.base(&ImageName::new(name), platform).await;
        let base = base.map_err(Trouble::Work)?;
        Ok((base.tree, base.configuration))
    }

    fn now(&self) -> i64 {
        self.build.plan.wanted.epoch.unwrap_or_else(|| self.build.clock.now().as_second())
    }
}

/// Why a step was not done, before anybody has said which.
enum Trouble {
    Fault(Fault),
    Work(WorkError),
    /// Another stage is to blame.
    Build(BuildError),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<WorkError> for Trouble {
    fn from(error: WorkError) -> Self {
        Self::Work(error)
    }
}

/// What a tree is, wherever it came from.
fn tree_key(tree: &Tree) -> CacheKey {
    let layers = tree.layers.iter().map(|layer| layer.diff_id.as_str());
    Key::new("tree").with_all(layers).finish()
}
