//! Which stage needs which.

use std::collections::{BTreeMap, BTreeSet};

use osb_registry::Platform;

use super::{Base, Planned, Wanted};
use crate::{
    dockerfile::{Dockerfile, Instruction, Mount, Stage, Transfer},
    expand,
    problem::{Fault, Problem, meant},
};

/// Where `COPY --from` and `RUN --mount` take files from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The directory that is built.
    Context,
    Stage(usize),
    Image(String),
}

/// The stages that each stage needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    needs: Vec<BTreeSet<usize>>,
}

impl Graph {
    pub(super) fn new(file: &Dockerfile, stages: &[Planned]) -> Result<Self, Problem> {
        let mut graph = Self { needs: vec![BTreeSet::new(); stages.len()] };
        for (number, (stage, planned)) in file.stages.iter().zip(stages).enumerate() {
            if let Base::Stage(base) = planned.base {
                let Stage { place, .. } = stage;
                graph
                    .try_add(number, base)
                    .map_err(|fault| Problem::new(&file.name, place.first, &place.text, &fault))?;
            }
            for said in &stage.steps {
                for from in named(&said.what) {
                    let problem = |fault| {
                        Problem::new(&file.name, said.place.first, &said.place.text, &fault)
                    };
                    let source = source(file, number, from).map_err(problem)?;
                    let Source::Stage(other) = source else { continue };
                    if other == number || graph.reaches(other, number) {
                        return Err(problem(Fault::new(format!(
                            "{from} cannot be built before this stage, for it needs this stage itself"
                        ))));
                    }
                    graph.add(number, other);
                }
            }
        }
        Ok(graph)
    }

    /// Lets a stage need another one as well, unless that one needs the first.
    pub(crate) fn try_add(&mut self, stage: usize, needed: usize) -> Result<(), Fault> {
        if stage == needed || self.reaches(needed, stage) {
            return Err(Fault::new(
                "a stage cannot be built that needs this one, which it is needed for",
            ));
        }
        self.add(stage, needed);
        Ok(())
    }

    fn add(&mut self, stage: usize, needed: usize) {
        if let Some(needs) = self.needs.get_mut(stage) {
            needs.insert(needed);
        }
    }

    pub(super) fn needs(&self, stage: usize) -> Vec<usize> {
        self.needs.get(stage).map(|needs| needs.iter().copied().collect()).unwrap_or_default()
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        self.order(from).contains(&to)
    }

    /// A stage after all that it needs.
    pub(super) fn order(&self, target: usize) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![(target, false)];
        while let Some((stage, is_done)) = open.pop() {
            if is_done {
                order.push(stage);
            } else if seen.insert(stage) {
                open.push((stage, true));
                open.extend(self.needs(stage).into_iter().rev().map(|needed| (needed, false)));
            }
        }
        order
    }
}

/// The stages and images that an instruction takes files from.
pub(super) fn named(what: &Instruction) -> Vec<&str> {
    if let Instruction::Copy(Transfer { from: Some(from), .. }) = what {
        return vec![from.as_str()];
    }
    if let Instruction::Run(run) = what {
        return run.mounts.iter().filter_map(Mount::from).collect();
    }
    Vec::new()
}

/// What a stage means by a name: another stage, by name or number, or an image.
pub(crate) fn source(file: &Dockerfile, stage: usize, from: &str) -> Result<Source, Fault> {
    if let Ok(number) = from.parse::<usize>() {
        if number < file.stages.len() && number != stage {
            return Ok(Source::Stage(number));
        }
        return Err(Fault::new(format!(
            "there is no other stage {number}: they are counted from 0, and this is stage {stage} of {}",
            file.stages.len()
        )));
    }
    let lower = from.to_ascii_lowercase();
    let is_it = |(_, one): &(usize, &Stage)| one.name.as_deref() == Some(&lower);
    let before = file.stages.iter().enumerate().take(stage).rev().find(is_it);
    let after = || file.stages.iter().enumerate().skip(stage + 1).find(is_it);
    if let Some((number, _)) = before.or_else(after) {
        return Ok(Source::Stage(number));
    }
    if file.stages.get(stage).is_some_and(|one| one.name.as_deref() == Some(&lower)) {
        return Err(Fault::new(format!("{from} is this stage itself: leave --from out")));
    }
    if lower == "scratch" {
        return Err(Fault::new("there are no files in scratch"));
    }
    Ok(Source::Image(from.to_owned()))
}

/// The stage that is wanted.
pub(super) fn target(file: &Dockerfile, wanted: Option<&str>) -> Result<usize, Problem> {
    let last = file.stages.len().saturating_sub(1);
    let Some(wanted) = wanted else { return Ok(last) };
    let lower = wanted.to_ascii_lowercase();
    let by_name = file.stages.iter().rposition(|stage| stage.name.as_deref() == Some(&lower));
    let by_number = || wanted.parse().ok().filter(|number| *number <= last);
    by_name.or_else(by_number).ok_or_else(|| {
        let names: Vec<&str> =
            file.stages.iter().filter_map(|stage| stage.name.as_deref()).collect();
        let help = match meant(wanted, &names) {
            Some(name) => format!("did you mean {name}?"),
            None if names.is_empty() => "none has a name: write FROM … AS name".to_owned(),
            None => format!("there are {}", names.join(", ")),
        };
        let fault = Fault::new(format!("there is no stage {wanted}: {help}"));
        Problem::new(&file.name, 1, "", &fault)
    })
}

/// The stages with the variables of their `FROM` replaced.
pub(super) fn stages(
    file: &Dockerfile,
    wanted: &Wanted,
    globals: &BTreeMap<String, String>,
) -> Result<Vec<Planned>, Problem> {
    let mut planned: Vec<Planned> = Vec::new();
    for (number, stage) in file.stages.iter().enumerate() {
        let problem =
            |fault: Fault| Problem::new(&file.name, stage.place.first, &stage.place.text, &fault);
        let word = |text: &str| expand::word(text, file.directives.escape, globals);
        let name = word(&stage.base).map_err(problem)?;
        if name.is_empty() {
            let what = format!(
                "{} is empty: give the variable a default before the first FROM, as in ARG name=value",
                stage.base
            );
            return Err(problem(Fault(what)));
        }
        let lower = name.to_ascii_lowercase();
        let earlier = file.stages.iter().take(number);
        let base = earlier.clone().rev().position(|one| one.name.as_deref() == Some(&lower));
        let base = match base {
            Some(back) => Base::Stage(number - 1 - back),
            None if name == "scratch" => Base::Scratch,
            None => Base::Image(name),
        };
        let inherited = match base {
            Base::Stage(base) => planned.get(base).map(|stage| stage.platform.clone()),
            Base::Scratch | Base::Image(_) => None,
        };
        let platform = match &stage.platform {
            Some(text) => {
                let text = word(text).map_err(problem)?;
                Platform::parse(&text).ok_or_else(|| {
                    problem(Fault(format!("{text} is no platform: write linux/amd64 or the like")))
                })?
            }
            None => inherited.unwrap_or_else(|| wanted.platform.clone()),
        };
        let name = stage.name.clone().unwrap_or_else(|| format!("stage-{number}"));
        planned.push(Planned { name, base, platform });
    }
    Ok(planned)
}
