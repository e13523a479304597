//! What a Dockerfile can say, with its variables not yet replaced.

use std::time::Duration;

use super::{Heredoc, Mount};

/// Where in the file something is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The numbers of its first and last line, counted from one.
    pub first: usize,
    pub last: usize,
    /// All of it in one line, without the texts of here-documents.
    pub text: String,
}

/// What builds one image: a base and what is done on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub place: Place,
    /// The image or the stage below.
    pub base: String,
    pub platform: Option<String>,
    /// Lower case.
    pub name: Option<String>,
    pub steps: Vec<Said>,
}

/// An instruction, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub place: Place,
    pub what: Instruction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    Add(Transfer),
    Arg(Vec<Declared>),
    Cmd(Command),
    Copy(Transfer),
    Entrypoint(Command),
    Env(Vec<(String, String)>),
    Expose(Vec<String>),
    Healthcheck(Healthcheck),
    Label(Vec<(String, String)>),
    Maintainer(String),
    /// What is done when somebody builds on this image. It is read again then.
    Onbuild(String),
    Run(Run),
    Shell(Vec<String>),
    Stopsignal(String),
    User(String),
    Volume(Vec<String>),
    Workdir(String),
}

/// `ARG name=default`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub default: Option<String>,
}

/// Something to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A line for the shell of the stage.
    Shell(String),
    /// A program and its arguments.
    Exec(Vec<String>),
}

/// `COPY` and `ADD`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transfer {
    pub sources: Vec<String>,
    /// Files whose content stands in the Dockerfile.
    pub inline: Vec<Heredoc>,
    pub destination: String,
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    pub link: bool,
    pub parents: bool,
    pub exclude: Vec<String>,
    /// Of what is fetched; `ADD` alone has it.
    pub checksum: Option<String>,
    /// Whether archives are unpacked, if it is said; `ADD` alone has it.
    pub unpack: Option<bool>,
}

/// `RUN`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub command: Command,
    pub inline: Vec<Heredoc>,
    pub mounts: Vec<Mount>,
    pub network: Reach,
}

/// What the network of a step is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// Whatever the policy of the build allows.
    #[default]
    Policy,
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Healthcheck {
    /// None, not even that of the base.
    None,
    Check {
        command: Command,
        interval: Option<Duration>,
        timeout: Option<Duration>,
        start_period: Option<Duration>,
        start_interval: Option<Duration>,
        retries: Option<u32>,
    },
}
