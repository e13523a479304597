//! `RUN`

use super::{Mounted, Scope};
use crate::{
    dockerfile::{Command, Heredoc, Reach, Run},
    problem::Fault,
};

/// What a step runs, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// A program that stands in the Dockerfile.
    pub(crate) script: Option<Script>,
    pub(crate) environment: Vec<(String, String)>,
    /// What is given to the step and is no part of what it is.
    pub(crate) beside: Vec<(String, String)>,
    pub(crate) workdir: String,
    /// A name or number, perhaps with a group.
    pub(crate) user: Option<String>,
    pub(crate) network: Reach,
    pub(crate) mounts: Vec<Mounted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) path: String,
    pub(crate) content: String,
}

impl Script {
    /// Where it is while it runs. No image has this directory.
    pub(crate) const DIRECTORY: &str = "/.opensandbox-build";
}

impl Scope<'_> {
    pub(super) fn order(&self, run: &Run) -> Result<Order, Fault> {
        let (arguments, script) = self.arguments(run)?;
        if arguments.first().is_none_or(String::is_empty) {
            return Err(Fault::new("RUN has no program: write RUN and a command line"));
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(Fault::new("a zero byte cannot be given to a program"));
        }
        let (environment, beside) = self.environment();
        let mounts = run.mounts.iter().map(|mount| self.mount(mount)).collect::<Result<_, _>>()?;
        Ok(Order {
            arguments,
            script,
            environment,
            beside,
            workdir: self.workdir().to_owned(),
            user: self.user().map(str::to_owned),
            network: run.network,
            mounts,
        })
    }

    fn arguments(&self, run: &Run) -> Result<(Vec<String>, Option<Script>), Fault> {
        let line = match (&run.command, run.inline.as_slice()) {
            (Command::Exec(words), _) => return Ok((words.clone(), None)),
            (Command::Shell(line), []) => line.clone(),
            // The text is all there is: it is the program.
            (Command::Shell(line), [text]) if is_alone(line) => {
                let content = text.text();
                if content.starts_with("#!") {
                    let path = format!("{}/{}", Script::DIRECTORY, file_name(&text.name)?);
                    return Ok((vec![path.clone()], Some(Script { path, content })));
                }
                content
            }
            // The shell reads here-documents itself.
            (Command::Shell(line), texts) => {
                let whole =
                    |line: String, text: &Heredoc| format!("{line}\n{}{}", text.content, text.name);
                texts.iter().fold(line.clone(), whole) + "\n"
            }
        };
        Ok((self.shell().into_iter().chain([line]).collect(), None))
    }
}

/// Whether a line is the beginning of a here-document and nothing else.
fn is_alone(line: &str) -> bool {
    let rest = line.trim().trim_start_matches(|c: char| c.is_ascii_digit());
    rest.strip_prefix("<<").is_some_and(|rest| {
        let name = rest.strip_prefix('-').unwrap_or(rest).trim_start();
        !name.contains(|c: char| c.is_whitespace() || "<>|&;".contains(c))
    })
}

pub(super) fn file_name(name: &str) -> Result<&str, Fault> {
    if name.contains('/') || name == "." || name == ".." || name.contains('\0') || name.len() > 255
    {
        return Err(Fault::new(format!("{name} cannot be the name of a file: use another")));
    }
    Ok(name)
}
