//! `osb sandbox create`.

use crate::{
    env::Environment,
    failure::Failure,
    lifetime::{InvalidLifetime, Lifetime},
    output::{Format, Output},
    spec::Spec,
    start,
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    spec: Spec,
    /// How long the sandbox lives, such as 90s or 1h; `none` keeps it until it is removed
    #[arg(short, long, value_name = "TIME", default_value = "10m", value_parser = timeout)]
    timeout: Timeout,
    /// Print the id, or the whole sandbox as JSON
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
    /// The sandbox's main program; the sandbox ends with it [default: one that does nothing]
    #[arg(last = true, value_name = "ENTRYPOINT")]
    entrypoint: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timeout {
    Never,
    After(Lifetime),
}

fn timeout(text: &str) -> Result<Timeout, InvalidLifetime> {
    if text == "none" { Ok(Timeout::Never) } else { text.parse().map(Timeout::After) }
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let content = args.spec.read()?;
    let lifecycle = args.target.lifecycle(environment)?;
    let around = args.spec.surroundings(&lifecycle).await?;
    args.spec.warn(around.as_ref(), output);
    let seconds = match args.timeout {
        Timeout::Never => None,
        Timeout::After(lifetime) => i64::try_from(lifetime.duration().as_secs()).ok(),
    };
    let mut request = args.spec.request(&content, around.as_ref(), seconds);
    if !args.entrypoint.is_empty() {
        request.entrypoint = Some(args.entrypoint);
    }
    let sandbox = start::start(&lifecycle, &request, output).await?;
    if let Err(error) = Spec::furnish(&content, &sandbox).await {
        // The first error is the one to know about; the sandbox's own end catches the rest.
        drop(sandbox.kill().await);
        return Err(error.into());
    }
    match args.output {
        Format::Table => output.line(sandbox.id())?,
        Format::Json => output.json(&lifecycle.get(sandbox.id()).await?)?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_may_live_for_ever() {
        assert_eq!(timeout("none"), Ok(Timeout::Never));
        assert_eq!(timeout("1h"), Ok(Timeout::After("3600".parse().unwrap())));
        assert!(timeout("never").is_err());
    }
}
