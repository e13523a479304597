//! What a stage knows as it goes from instruction to instruction: its variables, and what its image
//! will say about itself.

mod command;
mod metadata;
mod mounts;
mod transfer;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
};

use osb_image::{Configuration, RunConfiguration};

pub use self::mounts::Sharing;
pub(crate) use self::{
    command::{Order, Script},
    mounts::Mounted,
    transfer::{Content, Moved, Unpack},
};
use crate::{
    dockerfile::{Declared, Instruction, Said},
    expand::{self, Variables},
    plan::{EPOCH, PROXIES, Plan},
    problem::Fault,
};

/// Where programs are looked for if nobody says anything else.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The shell of a stage that names none.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];
/// All variables together. The kernel gives a program a few megabytes of them at most (`execve(2)`).
const MOST_BYTES: usize = 1 << 20;

/// Variables with their values.
pub(crate) type Environment = Vec<(String, String)>;

/// What an instruction asks for, with its variables replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing but what the image says about itself.
    Said,
    Run(Order),
    Transfer(Moved),
    /// A directory that has to be there.
    Directory(String),
}

/// The state of a stage.
#[derive(Debug, Clone)]
pub(crate) struct Scope<'a> {
    plan: &'a Plan,
    stage: usize,
    pub(crate) configuration: Configuration,
    /// Variables that the image keeps, in the order in which they came.
    env: Vec<(String, String)>,
    /// Variables that only the build has.
    args: BTreeMap<String, String>,
    /// Whether `CMD` is the stage's own, and not that of its base.
    has_cmd: bool,
    /// Stages that are known to be needed beside those that the Dockerfile names.
    pub(crate) line: usize,
}

impl<'a> Scope<'a> {
    /// A stage on a base with this configuration.
    pub(crate) fn new(plan: &'a Plan, stage: usize, mut configuration: Configuration) -> Self {
        let assignment = |line: &String| {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        };
        let env = configuration.config.env.iter().map(assignment).collect();
        // They are for this stage, and not for those that stand on it.
        configuration.config.on_build.clear();
        let args = BTreeMap::new();
        Self { plan, stage, configuration, env, args, has_cmd: false, line: 0 }
    }

    /// A stage on nothing.
    pub(crate) fn scratch(plan: &'a Plan, stage: usize) -> Self {
        let mut configuration = Configuration::default();
        if let Some(planned) = plan.stages().get(stage) {
            configuration.architecture.clone_from(&planned.platform.architecture);
            configuration.os.clone_from(&planned.platform.os);
            configuration.variant.clone_from(&planned.platform.variant);
        }
        configuration.config.env = vec![format!("PATH={PATH}")];
        Self::new(plan, stage, configuration)
    }

    fn run(&self) -> &RunConfiguration {
        &self.configuration.config
    }

    pub(crate) fn user(&self) -> Option<&str> {
        Some(self.run().user.as_str()).filter(|user| !user.is_empty())
    }

    pub(crate) fn workdir(&self) -> &str {
        if self.run().working_dir.is_empty() { "/" } else { &self.run().working_dir }
    }

    /// Takes the next instruction. What it says about the image is noted; what it asks for is
    /// answered.
    pub(crate) fn take(&mut self, said: &Said) -> Result<Step, Fault> {
        self.line = said.place.first;
        match &said.what {
            Instruction::Add(transfer) => {
                self.transfer(transfer, Unpack::Archives).map(Step::Transfer)
            }
            Instruction::Copy(transfer) => {
                self.transfer(transfer, Unpack::Nothing).map(Step::Transfer)
            }
            Instruction::Run(run) => self.order(run).map(Step::Run),
            Instruction::Workdir(path) => self.enter(path).map(Step::Directory),
            Instruction::Arg(declared) => self.declare(declared).map(|()| Step::Said),
            Instruction::Env(pairs) => self.set(pairs).map(|()| Step::Said),
            Instruction::Cmd(_)
            | Instruction::Entrypoint(_)
            | Instruction::Expose(_)
            | Instruction::Healthcheck(_)
            | Instruction::Label(_)
            | Instruction::Maintainer(_)
            | Instruction::Onbuild(_)
            | Instruction::Shell(_)
            | Instruction::Stopsignal(_)
            | Instruction::User(_)
            | Instruction::Volume(_) => self.note(&said.what).map(|()| Step::Said),
        }
    }

    /// Notes the labels that were asked for from outside.
    pub(crate) fn finish(mut self) -> Configuration {
        self.configuration.config.labels.extend(self.plan.wanted.labels.clone());
        self.configuration
    }

    fn escape(&self) -> char {
        self.plan.file.directives.escape
    }

    fn word(&self, text: &str) -> Result<String, Fault> {
        expand::word(text, self.escape(), self)
    }

    fn declare(&mut self, declared: &[Declared]) -> Result<(), Fault> {
        let mut values = Vec::new();
        for arg in declared {
            let name = self.word(&arg.name)?;
            let default = arg.default.as_deref().map(|text| self.word(text)).transpose()?;
            let given = self.plan.wanted.args.get(&name).cloned();
            let value = given.or(default).or_else(|| self.plan.globals.get(&name).cloned());
            values.push((name, value));
        }
        for (name, value) in values {
            match value {
                Some(value) => drop(self.args.insert(name, value)),
                None => drop(self.args.remove(&name)),
            }
        }
        self.check_size()
    }

    fn set(&mut self, pairs: &[(String, String)]) -> Result<(), Fault> {
        // All of them see the values from before.
        let pairs = pairs.iter().map(|(name, value)| Ok((self.word(name)?, self.word(value)?)));
        for (name, value) in pairs.collect::<Result<Vec<_>, _>>()? {
            if name.is_empty() || name.contains('=') || name.contains('\0') || value.contains('\0')
            {
                return Err(Fault::new(format!("{name} cannot be the name of a variable")));
            }
            match self.env.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => self.env.push((name, value)),
            }
        }
        let line = |(name, value): &(String, String)| format!("{name}={value}");
        self.configuration.config.env = self.env.iter().map(line).collect();
        self.check_size()
    }

    fn check_size(&self) -> Result<(), Fault> {
        let env = self.env.iter().map(|(name, value)| name.len() + value.len() + 2);
        let args = self.args.iter().map(|(name, value)| name.len() + value.len() + 2);
        if env.chain(args).sum::<usize>() > MOST_BYTES {
            return Err(Fault::new(format!(
                "all variables together have more than {MOST_BYTES} bytes, which no program can be given"
            )));
        }
        Ok(())
    }

    fn enter(&mut self, path: &str) -> Result<String, Fault> {
        let path = self.word(path)?;
        if path.is_empty() {
            return Err(Fault::new("WORKDIR is empty once its variables are replaced"));
        }
        let path = absolute(self.workdir(), &path)?;
        self.configuration.config.working_dir.clone_from(&path);
        Ok(path)
    }

    /// What a step sees: the variables of the image and of the build. The second part is no part of
    /// what the step is.
    pub(crate) fn environment(&self) -> (Environment, Environment) {
        let mut seen = self.env.clone();
        let names: BTreeSet<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        let own = self.args.iter().filter(|(name, _)| !names.contains(name.as_str()));
        seen.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        if self.value("PATH").is_none() {
            seen.push(("PATH".to_owned(), PATH.to_owned()));
        }
        let is_besides = |name: &&str| self.value(name).is_none();
        let given = |name: &str| {
            let value = self.plan.wanted.args.get(name)?;
            Some((name.to_owned(), value.clone()))
        };
        let mut beside: Vec<_> = PROXIES.into_iter().filter(is_besides).filter_map(given).collect();
        if let (Some(epoch), None) = (self.plan.wanted.epoch, self.value(EPOCH)) {
            beside.push((EPOCH.to_owned(), epoch.to_string()));
        }
        (seen, beside)
    }
}

impl Variables for Scope<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        let kept = self.env.iter().find(|(known, _)| known == name);
        kept.map(|(_, value)| value.as_str()).or_else(|| self.args.get(name).map(String::as_str))
    }
}

/// A path from the root, without `.` and `..`, that is meant from `from`.
pub(crate) fn absolute(from: &str, path: &str) -> Result<String, Fault> {
    if path.contains('\0') || path.len() > 4096 {
        return Err(Fault::new("a path has at most 4096 bytes and no zero byte"));
    }
    let mut names: Vec<String> = Vec::new();
    for part in Path::new(from).join(path).components() {
        match part {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(names.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    Ok(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests;
