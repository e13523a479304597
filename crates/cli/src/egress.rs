//! `osb egress`: what sandboxes reach, and what they tried.

mod learn;
mod log;
mod policy;
mod refusals;

use opensandbox::api::lifecycle::NetworkAction;

pub(crate) use self::{learn::learn, log::cells, refusals::Refusals};
use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what a sandbox may reach
    ///
    /// Rules are shown in the order in which they are asked, those of the operator first. As JSON it
    /// is the sandbox's own policy, as `osb egress set` reads it.
    Policy(policy::Args),
    /// Replace what a sandbox may reach
    ///
    /// It is in force when this returns, and connections that it does not cover are cut; so it is
    /// with all changes.
    Set(policy::SetArgs),
    /// Say what happens to all that no rule is about
    ///
    /// A sandbox without a policy has what the server says, which `osb egress policy` shows.
    Default(policy::DefaultArgs),
    /// Let a sandbox reach something, before all other rules
    ///
    /// It takes the place of all rules about the same target, and those are named; if one of them says
    /// more than the new rule, it must be said whether to --add to it or to --replace it. It restricts
    /// nothing: that is what the default is for, see `osb egress default`. With --method or --path the
    /// sandbox may only ask for that, and the server looks into its connections: its programs must
    /// trust the server, which they do if the sandbox was made with such a rule or with a vault.
    Allow(policy::RuleArgs),
    /// Keep a sandbox from reaching something, before all other rules
    ///
    /// It takes the place of all rules about the same target, also of those that allow it, and those
    /// are named; if one of them says more than the new rule, it must be said whether to --add to it
    /// or to --replace it. What the operator allows all sandboxes comes first, and is named. With
    /// --method or --path it keeps the sandbox from asking for that alone, under the same conditions
    /// as with `osb egress allow`.
    Deny(policy::RuleArgs),
    /// Drop the rules about something
    ///
    /// What no rule is about is named, and the exit status is 1 then.
    Rm(policy::RmArgs),
    /// Show what a sandbox tried in the network, and what was decided
    ///
    /// The server keeps the latest 256 different ones of every sandbox, and 256 requests where it
    /// looks into connections.
    Log(log::Args),
    /// Print the policy that would allow what a sandbox tried, and no more
    ///
    /// Run the workload once without a policy, or with one whose default is to allow, then save what
    /// this prints and use it as the policy from then on; `osb run --learn FILE` does it at once.
    /// What a policy cannot allow by itself is left out and named.
    Learn(learn::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Policy(args) => policy::show(args, environment, output).await,
        Command::Set(args) => policy::set(args, environment).await,
        Command::Default(args) => policy::default(args, environment).await,
        Command::Allow(args) => {
            policy::change(args, NetworkAction::Allow, environment, output).await
        }
        Command::Deny(args) => policy::change(args, NetworkAction::Deny, environment, output).await,
        Command::Rm(args) => policy::rm(args, environment, output).await,
        Command::Log(args) => log::main(args, environment, output).await,
        Command::Learn(args) => learn::main(args, environment, output).await,
    }
}
