//! `osb egress learn`.

use std::collections::BTreeSet;

use opensandbox::api::{
    egress::{Decision, DecisionProtocol, ReasonKind},
    lifecycle::{NetworkAction, NetworkPolicy, NetworkRule},
};

use crate::{env::Environment, failure::Failure, output::Output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let log = args.target.lifecycle(environment)?.egress_log(&args.id).await?;
    let learnt = Learnt::of(&log.decisions);
    if log.decisions.len() >= FULL {
        output.say("the log of this sandbox is full: some of what it tried may be missing");
    }
    for (place, why) in &learnt.left_out {
        output.say(&format!("left out: {place} ({why})"));
    }
    output.json(&learnt.policy)?;
    Ok(0)
}

/// The entries that the server keeps of a sandbox.
const FULL: usize = 256;

/// What a policy would have to allow.
#[derive(Debug, PartialEq, Eq)]
struct Learnt {
    policy: NetworkPolicy,
    left_out: BTreeSet<(String, &'static str)>,
}

impl Learnt {
    fn of(decisions: &[Decision]) -> Self {
        let mut targets = BTreeSet::new();
        let mut left_out = BTreeSet::new();
        for decision in decisions {
            // What was only asked for was not used.
            let Some(place) = place(decision) else { continue };
            let why = match (decision.action, decision.reason.reason) {
                (NetworkAction::Allow, _) | (_, ReasonKind::Default | ReasonKind::Limit) => {
                    targets.insert(place);
                    continue;
                }
                (_, ReasonKind::Rule) => "a rule of the policy denies it",
                (_, ReasonKind::Operator) => "the operator denies it",
                (_, ReasonKind::Guard) => "its address is guarded",
                (_, ReasonKind::Mismatch) => "it was for another host than it said",
                (_, ReasonKind::Binding) => "a binding of the vault keeps it from being sent",
            };
            left_out.insert((place, why));
        }
        let allow = |target| NetworkRule::new(NetworkAction::Allow, target);
        let egress = targets.into_iter().map(allow).collect();
        let policy = NetworkPolicy { default_action: Some(NetworkAction::Deny), egress };
        Self { policy, left_out }
    }
}

/// The target of a rule that would be about this.
fn place(decision: &Decision) -> Option<String> {
    let denied = decision.action == NetworkAction::Deny;
    match (decision.protocol, &decision.name) {
        // Its connection was decided before.
        (DecisionProtocol::Http | DecisionProtocol::Credential, _) => None,
        // Whoever is denied a name never connects.
        (DecisionProtocol::Dns, name) => name.clone().filter(|_| denied),
        (_, Some(name)) => Some(name.clone()),
        (_, None) => decision.address.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_allowed_and_what_is_guarded_is_left_out() {
        let decision = |protocol: &str, place: &str, action: &str, reason: &str| {
            format!(
                r#"{{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"{protocol}",{place},
                "port":443,"action":"{action}","reason":"{reason}","times":1}}"#
            )
        };
        let text = [
            decision("dns", r#""name":"only-asked.test""#, "allow", "default"),
            decision("dns", r#""name":"denied.test""#, "deny", "default"),
            decision("tcp", r#""name":"a.test","address":"192.0.2.1""#, "allow", "default"),
            decision("tcp", r#""name":"a.test","address":"192.0.2.2""#, "allow", "default"),
            decision("tcp", r#""address":"192.0.2.7""#, "allow", "default"),
            decision("tcp", r#""address":"169.254.169.254""#, "deny", "guard"),
        ]
        .join(",");
        let decisions: Vec<Decision> = serde_json::from_str(&format!("[{text}]")).unwrap();
        let learnt = Learnt::of(&decisions);
        let targets: Vec<_> = learnt.policy.egress.iter().map(|rule| &rule.target).collect();
        assert_eq!(targets, ["192.0.2.7", "a.test", "denied.test"]);
        assert_eq!(learnt.left_out.len(), 1);
    }
}
