//! The program that the sandbox is for.

use std::{
    io::{self, Write, stderr},
    process::Stdio,
};

use crate::{
    daemon::Daemon,
    program::{Launch, Program},
    reaper::Started,
};

/// Why the entrypoint did not start.
#[derive(Debug)]
pub(crate) struct Failure {
    program: String,
    source: io::Error,
}

impl Failure {
    /// Tells it where the entrypoint's own messages would have gone, and returns the exit code
    /// that shells give to it.
    pub(crate) fn report(self) -> u8 {
        // With nobody to read it there is nobody to tell.
        drop(writeln!(stderr(), "execd: cannot start {}: {}", self.program, self.source));
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// Starts the entrypoint with the output that execd itself was given.
pub(crate) fn start(daemon: &Daemon, argv: &[String]) -> Result<Started, Failure> {
    let environment = &daemon.environment;
    let program = Program::Argv(argv.to_vec());
    let launch = Launch {
        program,
        cwd: environment.workdir().to_owned(),
        env: environment.base().clone(),
        identity: None,
    };
    launch
        .command()
        .and_then(|mut command| {
            command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
            daemon.reaper.spawn(&mut command)
        })
        .map_err(|source| Failure { program: argv.first().cloned().unwrap_or_default(), source })
}
