//! `osb sandbox exec`.

use opensandbox::{Events, Sandbox};

use crate::{
    ending,
    env::Environment,
    failure::Failure,
    follow::follow,
    lifetime::Lifetime,
    output::Output,
    run::Invocation,
    signals::{Interrupts, Signals},
    target::Target,
};

#[derive(Debug, clap::Args)]
#[command(after_help = ending::HELP)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// End the command after this time, such as 90s or 10m
    #[arg(short, long, value_name = "TIME")]
    timeout: Option<Lifetime>,
    #[command(flatten)]
    invocation: Invocation,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    let sandbox = Sandbox::connect(&lifecycle, &args.id).await?;
    let mut events = sandbox.stream(&args.invocation.command(args.timeout)).await?;
    exec(&sandbox, &mut events, &mut Signals::listen()?, output).await
}

async fn exec(
    sandbox: &Sandbox,
    events: &mut Events,
    interrupts: &mut impl Interrupts,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let signal = tokio::select! {
        outcome = follow(events, output) => return outcome.map(|end| ending::exit_code(&end)),
        signal = interrupts.next() => signal,
    };
    if let Some(id) = events.id().map(ToOwned::to_owned) {
        tokio::select! {
            stopped = sandbox.execd().interrupt(&id) => {
                if let Err(error) = stopped {
                    output.say(&format!("command {id} may still run: {error}"));
                }
            }
            _ = interrupts.next() => output.say(&format!("command {id} may still run")),
        }
    }
    Ok(signal.exit_code())
}
