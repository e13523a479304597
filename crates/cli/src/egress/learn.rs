//! `osb egress learn`.

use std::collections::{BTreeMap, BTreeSet};

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
    let requests = log.decisions.iter().filter(|it| it.method.is_some()).count();
    if requests >= FULL || log.decisions.len() - requests >= FULL {
        output.say("the log of this sandbox is full: some of what it tried may be missing");
    }
    for (place, why) in &learnt.left_out {
        output.say(&format!("left out: {place} ({why})"));
    }
    output.json(&learnt.policy)?;
    Ok(0)
}

/// The entries that the server keeps of a sandbox, of requests and of everything else.
const FULL: usize = 256;

/// What a policy would have to allow.
#[derive(Debug, PartialEq, Eq)]
struct Learnt {
    policy: NetworkPolicy,
    left_out: BTreeSet<(String, &'static str)>,
}

impl Learnt {
    fn of(decisions: &[Decision]) -> Self {
        let mut places = BTreeMap::<String, Place>::new();
        let mut left_out = BTreeSet::new();
        for decision in decisions {
            // What was only asked for was not used.
            let Some(target) = target(decision) else { continue };
            let why = match (decision.action, decision.reason.reason) {
                (NetworkAction::Allow, _) | (_, ReasonKind::Default | ReasonKind::Limit) => {
                    match places.entry(target).or_default().add(decision) {
                        Ok(()) => continue,
                        Err(why) => why,
                    }
                }
                (_, ReasonKind::Rule) => "a rule of the policy denies it",
                (_, ReasonKind::Operator) => "the operator denies it",
                (_, ReasonKind::Guard) => "its address is guarded",
                (_, ReasonKind::Mismatch) => "it was for another host than it said",
                (_, ReasonKind::Binding) => "a binding of the vault keeps it from being sent",
            };
            left_out.insert((said(decision), why));
        }
        let egress = places.iter().flat_map(|(target, place)| place.rules(target)).collect();
        let policy = NetworkPolicy { default_action: Some(NetworkAction::Deny), egress };
        Self { policy, left_out }
    }
}

/// What was tried at one target.
#[derive(Debug, Default)]
struct Place {
    /// The ports of connections; that of a question for a name is unknown.
    ports: BTreeSet<u16>,
    /// Paths by port and method, where connections were looked into.
    requests: BTreeMap<(u16, String), BTreeSet<String>>,
}

impl Place {
    /// As many as one rule may have.
    const MOST_PATHS: usize = 64;

    fn add(&mut self, decision: &Decision) -> Result<(), &'static str> {
        let (Some(method), Some(path)) = (&decision.method, &decision.path) else {
            if decision.protocol != DecisionProtocol::Dns {
                self.ports.insert(decision.port);
            }
            return Ok(());
        };
        let paths = self.requests.entry((decision.port, method.clone())).or_default();
        if path.contains('*') {
            return Err("no rule can be about its path alone");
        }
        paths.insert(path.clone());
        Ok(())
    }

    /// Rules that allow all of it: requests where they are known, and whole ports elsewhere.
    fn rules(&self, target: &str) -> Vec<NetworkRule> {
        let mut unseen = self.ports.clone();
        unseen.retain(|port| !self.requests.keys().any(|(seen, _)| seen == port));
        let all = NetworkRule::new(NetworkAction::Allow, target);
        if self.requests.is_empty() {
            return vec![all];
        }
        let mut rules = Vec::new();
        if !unseen.is_empty() {
            rules.push(NetworkRule { ports: Some(unseen.into_iter().collect()), ..all.clone() });
        }
        // Methods with the same paths are one rule.
        let mut methods = BTreeMap::<(Option<u16>, &BTreeSet<String>), BTreeSet<&String>>::new();
        for ((port, method), paths) in &self.requests {
            let unusual = Some(*port).filter(|port| !matches!(port, 80 | 443));
            methods.entry((unusual, paths)).or_default().insert(method);
        }
        for ((port, paths), methods) in methods {
            let paths: Vec<_> = paths.iter().cloned().collect();
            for paths in paths.chunks(Self::MOST_PATHS) {
                rules.push(NetworkRule {
                    ports: port.map(|port| vec![port]),
                    methods: Some(methods.iter().map(ToString::to_string).collect()),
                    paths: Some(paths.to_vec()),
                    ..all.clone()
                });
            }
        }
        rules
    }
}

/// The target of a rule that would be about this.
fn target(decision: &Decision) -> Option<String> {
    let denied = decision.action == NetworkAction::Deny;
    match (decision.protocol, &decision.name) {
        // Its request was decided before.
        (DecisionProtocol::Credential, _) => None,
        // Whoever is denied a name never connects.
        (DecisionProtocol::Dns, name) => name.clone().filter(|_| denied),
        (_, Some(name)) => Some(name.clone()),
        (_, None) => decision.address.clone(),
    }
}

fn said(decision: &Decision) -> String {
    let place = decision.name.as_ref().or(decision.address.as_ref());
    let place = place.map_or("?", String::as_str);
    match (&decision.method, &decision.path) {
        (Some(method), Some(path)) => format!("{method} {place}{path}"),
        _ => place.to_owned(),
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

    #[test]
    fn requests_are_allowed_one_by_one_where_they_are_known() {
        let decision = |protocol: &str, port: u16, rest: &str| {
            format!(
                r#"{{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"{protocol}","port":{port},
                "name":"a.test","times":1,{rest}}}"#
            )
        };
        let allowed = r#""action":"allow","reason":"rule""#;
        let ask = |method: &str, path: &str, rest: &str| {
            decision("http", 443, &format!(r#""method":"{method}","path":"{path}",{rest}"#))
        };
        let text = [
            decision("tcp", 443, allowed),
            decision("tcp", 22, allowed),
            ask("GET", "/x", allowed),
            ask("HEAD", "/x", allowed),
            ask("POST", "/y", r#""action":"deny","reason":"default""#),
            ask("POST", "/z", r#""action":"deny","reason":"rule""#),
        ]
        .join(",");
        let decisions: Vec<Decision> = serde_json::from_str(&format!("[{text}]")).unwrap();
        let learnt = Learnt::of(&decisions);
        assert_eq!(
            serde_json::to_value(&learnt.policy.egress).unwrap(),
            serde_json::json!([
                {"action": "allow", "target": "a.test", "ports": [22]},
                {"action": "allow", "target": "a.test", "methods": ["GET", "HEAD"], "paths": ["/x"]},
                {"action": "allow", "target": "a.test", "methods": ["POST"], "paths": ["/y"]},
            ])
        );
        assert_eq!(learnt.left_out.first().unwrap().0, "POST a.test/z");
    }
}
