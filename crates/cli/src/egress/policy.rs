//! `osb egress policy`, `set`, `allow`, `deny` and `rm`.

use opensandbox::api::lifecycle::{NetworkAction, NetworkPolicy};

use crate::{
    env::Environment,
    failure::Failure,
    network::{self, Destination},
    output::Output,
    table::Table,
    target::Target,
    view::{View, or_dash},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    view: View,
}

/// Shows the rules in the order in which they are asked.
pub(crate) async fn show(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let status = args.view.lifecycle(environment)?.policy(&args.id).await?;
    args.view.show(&status.policy, output, describe)
}

fn describe(policy: &NetworkPolicy) -> String {
    let mut table = Table::new(["ACTION", "TARGET", "PORTS"]);
    for rule in &policy.egress {
        let ports = rule
            .ports
            .as_ref()
            .map(|ports| ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        table.row([word(rule.action).to_owned(), rule.target.clone(), or_dash(ports)]);
    }
    let default = word(policy.default_action.unwrap_or(NetworkAction::Deny));
    table.row([default.to_owned(), "everything else".to_owned(), or_dash(None::<String>)]);
    table.render()
}

fn word(action: NetworkAction) -> &'static str {
    match action {
        NetworkAction::Allow => "allow",
        NetworkAction::Deny => "deny",
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The sandbox
    id: String,
    /// The policy in JSON, as `osb egress learn` prints it
    #[arg(value_name = "FILE", value_parser = network::read)]
    policy: NetworkPolicy,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn set(args: SetArgs, environment: &Environment) -> Result<u8, Failure> {
    args.target.lifecycle(environment)?.replace_policy(&args.id, &args.policy).await?;
    Ok(0)
}

#[derive(Debug, clap::Args)]
pub(crate) struct RuleArgs {
    /// The sandbox
    id: String,
    /// Names, `*.domain`s, addresses or ranges
    #[arg(required = true, value_name = "TARGET[:PORT,…]")]
    targets: Vec<Destination>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn change(
    args: RuleArgs,
    action: NetworkAction,
    environment: &Environment,
) -> Result<u8, Failure> {
    let rules: Vec<_> = args.targets.iter().map(|to| to.rule(action)).collect();
    args.target.lifecycle(environment)?.merge_rules(&args.id, &rules).await?;
    Ok(0)
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// The sandbox
    id: String,
    /// The targets of the rules, as `osb egress policy` shows them
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn rm(
    args: RmArgs,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    if let Some(reason) = lifecycle.delete_rules(&args.id, &args.targets).await?.reason {
        output.say(&reason);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_shown_in_order_and_the_default_last() {
        let policy = serde_json::from_str(
            r#"{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example","ports":[80,443]},{"action":"deny","target":"*.example"}]}"#,
        );
        assert_eq!(
            describe(&policy.unwrap()),
            "ACTION  TARGET           PORTS\n\
             allow   a.example        80,443\n\
             deny    *.example        -\n\
             deny    everything else  -"
        );
    }
}
