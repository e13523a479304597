//! `osb server config`: settings without a server.

use crate::{
    data_dir::User,
    env::Environment,
    failure::Failure,
    output::Output,
    settings::{self, Flags, Settings},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Say whether a server could start with these settings, and all that is wrong if not
    ///
    /// Exits with 0 if they can be used and with 2 if they cannot.
    Check(Flags),
    /// Show all settings as TOML, with their defaults and where each comes from
    ///
    /// Secrets are shown as "***".
    Print(Flags),
    /// Print the JSON Schema of the configuration file
    Schema,
}

pub(super) fn main(
    command: &Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let load = |flags: &Flags| Settings::load(flags, environment, User::current());
    match command {
        Command::Check(flags) => match load(flags) {
            Ok(settings) => {
                warn(&settings, output);
                output.say(&match flags.file(environment) {
                    Some(path) => format!("{} can be used", path.display()),
                    None => "no configuration file is named, and the rest can be used".to_owned(),
                });
                Ok(0)
            }
            Err(failure) => {
                if let Some(report) = failure.report() {
                    output.say(&report);
                }
                Ok(2)
            }
        },
        Command::Print(flags) => {
            let settings = load(flags)?;
            warn(&settings, output);
            output.data(settings.effective.print().as_bytes())?;
            Ok(0)
        }
        Command::Schema => {
            output.json(&settings::schema())?;
            Ok(0)
        }
    }
}

fn warn(settings: &Settings, output: &mut Output<'_>) {
    for warning in &settings.warnings {
        output.say(&format!("warning: {warning}"));
    }
}
