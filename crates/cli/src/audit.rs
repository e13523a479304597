//! `osb audit`: what was written down about sandboxes, read on the machine of their server.

mod log;
mod verify;

use std::path::PathBuf;

use osb_audit::Fault;
use osb_server::AUDIT_DIRECTORY;

use crate::{
    data_dir::{self, User},
    env::Environment,
    failure::Failure,
    output::Output,
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check that nothing was changed in what was written down
    ///
    /// Each entry has a hash of itself and of the one before. The first that does not fit is named, and
    /// the exit status is 1 then. That nothing is missing at the end shows only the hash of the last
    /// entry, if it was noted elsewhere: the server writes it to its log when a sandbox is gone.
    Verify(verify::Args),
    /// Show what was written down about a sandbox
    ///
    /// It is checked on the way, and ends with an error where an entry does not fit the one before.
    Log(log::Args),
}

/// Where the books are.
#[derive(Debug, clap::Args)]
struct Shelf {
    /// The server's data directory [default: /var/lib/opensandbox for root, else
    /// ~/.local/share/opensandbox]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Verify(args) => verify::main(&args, environment, output),
        Command::Log(args) => log::main(&args, environment, output),
    }
}

impl Shelf {
    fn path(&self, environment: &Environment) -> Result<PathBuf, Failure> {
        let chosen = self.data_dir.clone();
        let chosen = chosen.unwrap_or_else(|| data_dir::default_for(User::current(), environment));
        let path = chosen.join(AUDIT_DIRECTORY);
        match path.try_exists() {
            Ok(false) => Err(Failure::Usage(format!(
                "{} is not there: name the server's data directory with --data-dir",
                path.display()
            ))),
            // Whoever may not look is told so by what comes next.
            Ok(true) | Err(_) => Ok(path),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Path(error) => Self::File(error),
            Fault::Missing(_) | Fault::Empty | Fault::Broken { .. } => {
                Self::Machine { doing: "cannot read the audit book", source: fault.into() }
            }
        }
    }
}
