//! `osb egress policy`, `set`, `allow`, `deny` and `rm`.

use opensandbox::api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};

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
    let mut table = Table::new(["ACTION", "TARGET", "PORTS", "METHODS", "PATHS"]);
    let list = |texts: &Option<Vec<String>>| or_dash(texts.as_ref().map(|texts| texts.join(",")));
    for NetworkRule { action, target, ports, methods, paths } in &policy.egress {
        let ports =
            ports.as_ref().map(|ports| ports.iter().map(ToString::to_string).collect::<Vec<_>>());
        let action = word(*action).to_owned();
        table.row([action, target.clone(), list(&ports), list(methods), list(paths)]);
    }
    let default = word(policy.default_action.unwrap_or(NetworkAction::Deny)).to_owned();
    let none = || list(&None);
    table.row([default, "everything else".to_owned(), none(), none(), none()]);
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
    /// Only requests of HTTP with this method, at the ports 80 and 443 unless others are given; may
    /// be repeated
    #[arg(long = "method", value_name = "METHOD")]
    methods: Vec<String>,
    /// Only requests for this path, or for all that begin like it if it ends in `*`; may be repeated
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn change(
    args: RuleArgs,
    action: NetworkAction,
    environment: &Environment,
) -> Result<u8, Failure> {
    let given = |texts: &Vec<String>| (!texts.is_empty()).then(|| texts.clone());
    let (methods, paths) = (given(&args.methods), given(&args.paths));
    let rule = |to: &Destination| NetworkRule {
        methods: methods.clone(),
        paths: paths.clone(),
        ..to.rule(action)
    };
    let rules: Vec<_> = args.targets.iter().map(rule).collect();
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
            r#"{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example","ports":[80,443]},{"action":"deny","target":"*.example","methods":["PUT","POST"],"paths":["/a/*"]}]}"#,
        );
        assert_eq!(
            describe(&policy.unwrap()),
            "ACTION  TARGET           PORTS   METHODS   PATHS\n\
             allow   a.example        80,443  -         -\n\
             deny    *.example        -       PUT,POST  /a/*\n\
             deny    everything else  -       -         -"
        );
    }
}
