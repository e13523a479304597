//! One stage.

use std::time::Duration;

use osb_image::{Configuration, Step as Record};
use tokio::time::Instant;

use super::{Builder, Finished, Trouble, tree_key};
use crate::{
    Base, BuildError, CacheKey, Caching, Event, Made, Planned, StepId, Tree,
    dockerfile::{self, Instruction, Said},
    error::{Failed, How},
    event::Number,
    key::Key,
    problem::{Fault, Problem, shown},
    scope::{Scope, Step},
};

/// The longest text of an instruction that an image keeps of how it was made.
const MOST_HISTORY: usize = 4096;

impl Builder<'_> {
    pub(super) async fn build_stage(&self, number: usize) -> Result<Finished, BuildError> {
        let plan = self.build.plan;
        let (Some(stage), Some(planned)) =
            (plan.file.stages.get(number), plan.stages().get(number))
        else {
            let fault = Fault::new(format!("there is no stage {number}"));
            return Err(Problem::new(&plan.file.name, 1, "", &fault).into());
        };
        let id = StepId { stage: number, step: 1 };
        let steps = 1 + layered(stage.steps.iter());
        let title = format!("{} {}", self.number(planned, 1, steps), stage.place.text);
        let mut timer = self.begin(id, &title);
        let based = self.stand(planned).await;
        let (tree, configuration, at) =
            based.map_err(|trouble| timer.fail(&plan.file.name, &stage.place, trouble))?;
        timer.done();
        let (scope, triggers) = match configuration {
            Some(configuration) => {
                let triggers = configuration.config.on_build.clone();
                (Scope::new(plan, number, configuration), triggers)
            }
            None => (Scope::scratch(plan, number), Vec::new()),
        };
        let image = format!("trigger of {}", stage.base);
        let triggers: Vec<Said> = triggers
            .iter()
            .map(|text| dockerfile::trigger(&stage.base, text))
            .collect::<Result<_, _>>()?;
        let steps = steps + layered(triggers.iter());
        let key = tree_key(&tree);
        let mut going =
            Going { builder: self, number, planned, scope, tree, key, at, step: 1, steps };
        for said in &triggers {
            going.take(&image, said).await?;
        }
        for said in &stage.steps {
            going.take(&plan.file.name, said).await?;
        }
        Ok(going.finish())
    }

    /// What a stage stands on, what that says about itself, and when it was made.
    async fn stand(
        &self,
        planned: &Planned,
    ) -> Result<(Tree, Option<Configuration>, Option<i64>), Trouble> {
        match &planned.base {
            Base::Scratch => Ok((Tree::default(), None, None)),
            Base::Stage(other) => {
                let Finished { tree, configuration, at } =
                    &*self.stage(*other).await.map_err(Trouble::Build)?;
                Ok((tree.clone(), Some(configuration.clone()), *at))
            }
            Base::Image(name) => {
                let (tree, configuration) = self.base(name, &planned.platform).await?;
                let made = configuration.created.as_deref();
                let at = made.and_then(|made| made.parse::<jiff::Timestamp>().ok());
                Ok((tree, Some(configuration), at.map(jiff::Timestamp::as_second)))
            }
        }
    }

    pub(super) fn number<'b>(&self, planned: &'b Planned, step: usize, of: usize) -> Number<'b> {
        let stage = (!self.is_alone).then_some(planned.name.as_str());
        Number { stage, step, of }
    }

    /// Tells that a step begins.
    pub(super) fn begin(&self, step: StepId, title: &str) -> Timer<'_> {
        self.build.progress.tell(Event::Began { step, title: shown(title) });
        Timer { builder: self, step, began: Instant::now() }
    }
}

/// How long a step takes, and how it ends.
pub(super) struct Timer<'a> {
    builder: &'a Builder<'a>,
    pub(super) step: StepId,
    began: Instant,
}

impl Timer<'_> {
    fn took(&self) -> Duration {
        self.began.elapsed()
    }

    fn done(&self) {
        self.builder.build.progress.tell(Event::Done { step: self.step, took: self.took() });
    }

    fn cached(&self) {
        self.builder.build.progress.tell(Event::Cached { step: self.step });
    }

    fn fail(&mut self, file: &str, place: &dockerfile::Place, trouble: Trouble) -> BuildError {
        if !matches!(trouble, Trouble::Build(_)) {
            let event = Event::Failed { step: self.step, took: self.took() };
            self.builder.build.progress.tell(event);
        }
        match trouble {
            Trouble::Fault(fault) => Problem::new(file, place.first, &place.text, &fault).into(),
            Trouble::Work(error) => BuildError::work(file, place.first, &place.text, error),
            Trouble::Build(error) => error,
        }
    }
}

/// A stage that is being built.
pub(super) struct Going<'a> {
    pub(super) builder: &'a Builder<'a>,
    pub(super) number: usize,
    pub(super) planned: &'a Planned,
    pub(super) scope: Scope<'a>,
    pub(super) tree: Tree,
    pub(super) key: CacheKey,
    /// When its last step was done.
    at: Option<i64>,
    pub(super) step: usize,
    pub(super) steps: usize,
}

/// How a step came out.
pub(super) enum Outcome {
    Tree(Tree),
    Failed { how: How, last_lines: Vec<String>, notes: Vec<String> },
}

impl Going<'_> {
    async fn take(&mut self, file: &str, said: &Said) -> Result<(), BuildError> {
        let problem = |fault: &Fault| Problem::new(file, said.place.first, &said.place.text, fault);
        let step = self.scope.take(said).map_err(|fault| problem(&fault))?;
        if step == Step::Said {
            self.record(said, true);
            return Ok(());
        }
        self.step += 1;
        let id = StepId { stage: self.number, step: self.step };
        let number = self.builder.number(self.planned, self.step, self.steps);
        let title = format!("{number} {}", said.place.text);
        let mut timer = self.builder.begin(id, &title);
        let before = self.tree.layers.len();
        match self.do_step(&step, &title, &timer).await {
            Ok(Outcome::Tree(tree)) => self.tree = tree,
            Ok(Outcome::Failed { how, last_lines, notes }) => {
                let event = Event::Failed { step: id, took: timer.took() };
                self.builder.build.progress.tell(event);
                return Err(BuildError::Command(Box::new(Failed {
                    file: file.to_owned(),
                    line: said.place.first,
                    text: said.place.text.clone(),
                    how,
                    last_lines,
                    notes,
                })));
            }
            Err(trouble) => return Err(timer.fail(file, &said.place, trouble)),
        }
        self.record(said, self.tree.layers.len() == before);
        Ok(())
    }

    async fn do_step(
        &mut self,
        step: &Step,
        title: &str,
        timer: &Timer<'_>,
    ) -> Result<Outcome, Trouble> {
        let prepared = match step {
            Step::Said => return Ok(Outcome::Tree(self.tree.clone())),
            Step::Run(order) => Prepared::Run(self.prepare_run(order).await?),
            Step::Transfer(moved) => Prepared::Copy(self.prepare_copy(moved).await?),
            Step::Directory(path) => Prepared::Directory(path, self.directory_key(path)),
        };
        let key = match &prepared {
            Prepared::Run(run) => run.key.clone(),
            Prepared::Copy(copy) => copy.key.clone(),
            Prepared::Directory(_, key) => key.clone(),
        };
        let workshop = self.builder.build.workshop;
        if self.builder.build.caching == Caching::Use
            && let Some(made) = workshop.recall(&key).await?
        {
            timer.cached();
            self.at = Some(made.at);
            self.key = key;
            return Ok(Outcome::Tree(made.tree));
        }
        let turn = self.builder.turns.acquire().await;
        let turn = turn.map_err(|error| {
            crate::WorkError::failed("cannot wait for other steps to end", error)
        })?;
        let outcome = match (step, prepared) {
            (Step::Run(order), Prepared::Run(run)) => {
                self.run(order, run, title, timer.step).await?
            }
            (Step::Transfer(moved), Prepared::Copy(copy)) => {
                Outcome::Tree(self.copy(moved, copy).await?)
            }
            (_, Prepared::Directory(path, _)) => Outcome::Tree(self.make_directory(path).await?),
            // They are prepared for what they are.
            _ => Outcome::Tree(self.tree.clone()),
        };
        drop(turn);
        if let Outcome::Tree(tree) = &outcome {
            let at = self.builder.now();
            workshop.remember(&key, &Made { tree: tree.clone(), at }).await?;
            self.at = Some(at);
            self.key = key;
            timer.done();
        }
        Ok(outcome)
    }

    fn directory_key(&self, path: &str) -> CacheKey {
        let parent = self.key.as_digest().as_str();
        Key::new("directory").with(parent).with(path).with_some(self.scope.user()).finish()
    }

    /// Notes in the image how it came to be.
    fn record(&mut self, said: &Said, empty_layer: bool) {
        let mut text = said.place.text.clone();
        if text.len() > MOST_HISTORY {
            let end = (0..=MOST_HISTORY).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        let created = self.at.and_then(time);
        self.scope.configuration.history.push(Record {
            created,
            created_by: Some(text),
            author: None,
            comment: Some("opensandbox".to_owned()),
            empty_layer,
        });
    }

    fn finish(self) -> Finished {
        let at = self.builder.build.plan.wanted.epoch.or(self.at);
        let at = at.or_else(|| Some(self.builder.now()));
        let mut configuration = self.scope.finish();
        configuration.created = at.and_then(time);
        Finished { tree: self.tree, configuration, at }
    }
}

enum Prepared<'a> {
    Run(super::run::Prepared),
    Copy(super::copy::Prepared),
    Directory(&'a str, CacheKey),
}

/// A time as images write it.
fn time(seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// How many of these instructions make a layer.
fn layered<'s>(steps: impl Iterator<Item = &'s Said>) -> usize {
    let is_layered = |said: &&Said| {
        matches!(
            said.what,
            Instruction::Add(_)
                | Instruction::Copy(_)
                | Instruction::Run(_)
                | Instruction::Workdir(_)
        )
    };
    steps.filter(is_layered).count()
}
