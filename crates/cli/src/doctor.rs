//! `osb doctor`: what this machine must have to be a server.

mod fix;

use std::path::PathBuf;

use osb_native::{Check, Obstacle, Outcome};

use crate::{
    data_dir::{self, User},
    env::Environment,
    failure::Failure,
    logging,
    output::Output,
    runtime,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the server would keep its state [default: as for osb server]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Remove what a crash left of sandboxes that nobody wants any more, as a server does when it
    /// starts. Beyond that, and on the whole machine whatever --data-dir says, end every sandbox
    /// whose server has ended and whose data directory is gone
    #[arg(long)]
    fix: bool,
}

/// A look at the machine that is about to begin, in a process that has become what it can be.
#[derive(Debug)]
pub(crate) struct Begun {
    data_dir: PathBuf,
    fix: bool,
    obstacle: Option<Obstacle>,
}

/// What must happen before there is any thread.
pub(crate) fn begin(args: Args, environment: &Environment) -> Begun {
    let default = || data_dir::default_for(User::current(), environment);
    let data_dir = args.data_dir.unwrap_or_else(default);
    let obstacle = runtime::become_root(&data_dir).err();
    Begun { data_dir, fix: args.fix, obstacle }
}

pub(crate) async fn main(
    Begun { data_dir, fix, obstacle }: Begun,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let mut checks = runtime::checks(&data_dir, obstacle.as_ref());
    if fix {
        if !checks.iter().all(Check::is_ok) {
            return Err(Failure::Unfit(describe(&checks)));
        }
        logging::start(logging::level(environment, None)?)?;
        return fix::main(&data_dir, output).await;
    }
    if checks.iter().all(Check::is_ok) {
        checks.push(runtime::trial(&data_dir).await);
    }
    output.line(&describe(&checks))?;
    Ok(u8::from(!checks.iter().all(Check::is_ok)))
}

/// A line per check, and below those that found something missing how to get it.
pub(crate) fn describe(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let advice = |word: &str, name: &str, found: &str, remedy: &str| {
        let indent = width + 11;
        format!("{word:<7}  {name:<width$}  {found}\n{:indent$}to get it: {remedy}", "")
    };
    let lines: Vec<_> = checks
        .iter()
        .map(|check| match &check.outcome {
            Outcome::Ok(found) => format!("ok       {:<width$}  {found}", check.name),
            Outcome::Weaker { found, remedy } => advice("weaker", check.name, found, remedy),
            Outcome::Missing { found, remedy } => advice("missing", check.name, found, remedy),
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let checks = [
            Check { name: "kernel", outcome: Outcome::Ok("Linux 6.1".to_owned()) },
            Check {
                name: "root",
                outcome: Outcome::Missing {
                    found: "user 1000".to_owned(),
                    remedy: "use sudo".to_owned(),
                },
            },
        ];
        assert_eq!(
            describe(&checks),
            "ok       kernel  Linux 6.1\n\
             missing  root    user 1000\n                 to get it: use sudo"
        );
    }
}
