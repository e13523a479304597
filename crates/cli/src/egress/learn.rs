//! `osb egress learn`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use opensandbox::api::{
    egress::{Decision, DecisionProtocol, ReasonKind},
    lifecycle::{NetworkAction, NetworkPolicy, NetworkRule},
};

use super::log;
use crate::{
    env::Environment, failure::Failure, network::possible, output::Output, table::clean,
    target::Target,
};

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
    let policy = learn(&log.decisions, output);
    output.json(&policy)?;
    Ok(0)
}

/// The policy that would allow what was tried. What it leaves out is said.
pub(crate) fn learn(decisions: &[Decision], output: &mut Output<'_>) -> NetworkPolicy {
    let learnt = Learnt::of(decisions);
    let requests = decisions.iter().filter(|it| it.method.is_some()).count();
    if requests >= FULL || decisions.len() - requests >= FULL {
        output.say("the log of this sandbox is full: some of what it tried may be missing");
    }
    for (place, why) in &learnt.left_out {
        output.say(&clean(&format!("left out: {place} ({why})")));
    }
    learnt.policy
}

/// The entries that the server keeps of a sandbox, of requests and of everything else.
const FULL: usize = 256;

/// What a policy would have to allow.
#[derive(Debug, PartialEq, Eq)]
struct Learnt {
    policy: NetworkPolicy,
    left_out: BTreeSet<(String, String)>,
}

impl Learnt {
    fn of(decisions: &[Decision]) -> Self {
        let mut places = BTreeMap::<String, Place>::new();
        let mut left_out = BTreeSet::new();
        let mut denied = BTreeMap::new();
        // What was decided last counts, and the log is in the order of what ended last.
        let mut decisions: Vec<_> = decisions.iter().collect();
        decisions.sort_by_key(|decision| (decision.at, decision.number));
        for decision in decisions {
            // What was only asked for was not used.
            let Some(target) = target(decision) else { continue };
            let why = match (decision.action, decision.reason.reason) {
                (NetworkAction::Allow, _) | (_, ReasonKind::Default | ReasonKind::Limit) => {
                    let rule = NetworkRule::new(NetworkAction::Allow, &target);
                    let added = possible(rule).and_then(|()| {
                        places.entry(target.clone()).or_default().add(&target, decision)
                    });
                    denied.remove(&log::place(decision));
                    denied.remove(&target);
                    left_out.extend(added.err().map(|why| (said(decision), why)));
                    continue;
                }
                (_, ReasonKind::Rule | ReasonKind::Operator) => {
                    let why = if decision.reason.reason == ReasonKind::Operator {
                        "the operator denies it"
                    } else {
                        "a rule of the policy denies it"
                    };
                    denied.insert(log::place(decision), why.to_owned());
                    if places.entry(target.clone()).or_default().drop(decision) {
                        places.remove(&target);
                    }
                    continue;
                }
                (_, ReasonKind::Guard) => {
                    left_out.insert((said(decision), guarded(decision)));
                    continue;
                }
                (_, ReasonKind::Mismatch) => "it was for another host than it said",
                (_, ReasonKind::Binding) => "a binding of the vault keeps it from being sent",
            };
            left_out.insert((said(decision), why.to_owned()));
        }
        left_out.extend(denied);
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
    /// Paths by port and method, where connections were looked into. One request has more methods
    /// if a header asks for another: servers differ in which counts, and one rule must allow all.
    requests: BTreeMap<(u16, BTreeSet<String>), BTreeSet<String>>,
}

impl Place {
    /// As many as one rule may have.
    const MOST_PORTS: usize = 64;
    const MOST_PATHS: usize = 64;

    /// Of longer paths the log has only the beginning.
    const LONGEST_PATH: usize = 256;

    fn add(&mut self, target: &str, decision: &Decision) -> Result<(), String> {
        let (Some(method), Some(path)) = (&decision.method, &decision.path) else {
            if decision.protocol != DecisionProtocol::Dns {
                self.ports.insert(decision.port);
            }
            return Ok(());
        };
        let all = |one: &String, others: &[String]| [std::slice::from_ref(one), others].concat();
        let methods = all(method, &decision.other_methods);
        let paths = all(path, &decision.other_paths);
        let key = (decision.port, methods.iter().cloned().collect());
        let known = self.requests.entry(key).or_default();
        if paths.iter().any(|path| path.contains('*')) {
            return Err("no rule can be about its path alone".to_owned());
        }
        if paths.iter().any(|path| path.chars().count() >= Self::LONGEST_PATH) {
            return Err("its path is too long to be known".to_owned());
        }
        let rule = NetworkRule::new(NetworkAction::Allow, target);
        possible(NetworkRule { methods: Some(methods), paths: Some(paths.clone()), ..rule })?;
        known.extend(paths);
        Ok(())
    }

    /// Forgets what was denied later. Whether nothing is left.
    fn drop(&mut self, decision: &Decision) -> bool {
        match (decision.protocol, &decision.path) {
            (DecisionProtocol::Dns, _) => return true,
            (_, None) => {
                self.ports.remove(&decision.port);
                self.requests.retain(|(port, _), _| *port != decision.port);
            }
            (_, Some(path)) => {
                let is_its = |methods: &BTreeSet<String>| {
                    decision.method.as_ref().is_some_and(|method| methods.contains(method))
                };
                let key = (decision.port, decision.method.iter().cloned().collect());
                // So it is known that the port was looked into, even if nothing there was allowed.
                self.requests.entry(key).or_default();
                for ((port, methods), paths) in &mut self.requests {
                    if *port == decision.port && is_its(methods) {
                        paths.remove(path);
                    }
                }
            }
        }
        self.ports.is_empty() && self.requests.is_empty()
    }

    /// Rules that allow all of it: requests where they are known, and whole ports elsewhere.
    fn rules(&self, target: &str) -> Vec<NetworkRule> {
        let mut unseen = self.ports.clone();
        unseen.retain(|port| !self.requests.keys().any(|(seen, _)| seen == port));
        let all = NetworkRule::new(NetworkAction::Allow, target);
        if self.requests.is_empty() && unseen.is_empty() {
            return vec![all];
        }
        let unseen: Vec<_> = unseen.into_iter().collect();
        let some = |ports: &[u16]| NetworkRule { ports: Some(ports.to_vec()), ..all.clone() };
        let mut rules: Vec<_> = unseen.chunks(Self::MOST_PORTS).map(some).collect();
        // Methods with the same paths are one rule.
        let mut methods = BTreeMap::<(Option<u16>, &BTreeSet<String>), BTreeSet<&String>>::new();
        for ((port, together), paths) in &self.requests {
            let unusual = Some(*port).filter(|port| !matches!(port, 80 | 443));
            methods.entry((unusual, paths)).or_default().extend(together);
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

/// What kind of address it is that a rule about the name does not open, and what would.
pub(super) fn guarded(decision: &Decision) -> String {
    let (kind, by_range) = match decision.reason.guarded.as_deref() {
        Some("host") => ("an address of the host", false),
        Some("metadata") => ("the address of a metadata service", false),
        Some("private") => ("a private address", true),
        Some("link-local") => ("a link-local address", true),
        _ => ("a special address", true),
    };
    let what = match (&decision.name, &decision.address) {
        (Some(_), Some(address)) => format!("it leads to {address}, {kind}"),
        _ => format!("it is {kind}"),
    };
    let address = decision.address.as_deref().and_then(|address| address.parse::<IpAddr>().ok());
    if address.is_some_and(|address| address.to_canonical().is_loopback()) {
        format!("{what}: only the operator opens it, by naming the address in allow-private")
    } else if by_range && decision.name.is_some() {
        format!(
            "{what}: the operator may name it in allow-private, or a rule may allow the address"
        )
    } else {
        format!("{what}: only a rule about that address opens it")
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
    use osb_server::{EgressPolicy, Operator};

    use super::*;

    #[test]
    fn what_was_denied_later_is_left_out() {
        let decision = |at: u32, protocol: &str, port: u16, rest: &str| {
            format!(
                r#"{{"number":{at},"at":"2030-01-01T00:00:{at:02}Z","protocol":"{protocol}",
                "port":{port},"times":1,{rest}}}"#
            )
        };
        let allowed =
            |name: &str| format!(r#""name":"{name}","action":"allow","reason":"default""#);
        let denied = |name: &str| format!(r#""name":"{name}","action":"deny","reason":"rule""#);
        let text = [
            // The log is in the order of what ended last.
            decision(2, "dns", 53, &denied("npm.test")),
            decision(1, "tcp", 443, &allowed("npm.test")),
            decision(3, "tcp", 443, &allowed("git.test")),
            decision(3, "tcp", 22, &allowed("git.test")),
            decision(4, "tcp", 22, &denied("git.test")),
            decision(5, "dns", 53, &denied("back.test")),
            decision(6, "tcp", 80, &denied("back.test")),
            decision(7, "tcp", 80, &allowed("back.test")),
        ];
        let decisions = format!("[{}]", text.join(","));
        let decisions: Vec<Decision> = serde_json::from_str(&decisions).unwrap();
        let learnt = Learnt::of(&decisions);
        let rules: Vec<_> =
            learnt.policy.egress.iter().map(|rule| (&*rule.target, rule.ports.clone())).collect();
        assert_eq!(rules, [("back.test", Some(vec![80])), ("git.test", Some(vec![443]))]);
        let left_out: Vec<_> = learnt.left_out.iter().map(|(place, _)| &**place).collect();
        assert_eq!(left_out, ["git.test:22", "npm.test"]);
    }

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
            decision(
                "tcp",
                r#""name":"in.test","address":"10.0.0.7","guarded":"private""#,
                "deny",
                "guard",
            ),
            decision("tcp", r#""address":"198.18.200.1""#, "deny", "default"),
        ]
        .join(",");
        let decisions: Vec<Decision> = serde_json::from_str(&format!("[{text}]")).unwrap();
        let learnt = Learnt::of(&decisions);
        let rules: Vec<_> =
            learnt.policy.egress.iter().map(|rule| (&*rule.target, rule.ports.clone())).collect();
        // Whoever is denied a name never tells at which port it would have been.
        let known = Some(vec![443]);
        assert_eq!(rules, [("192.0.2.7", known.clone()), ("a.test", known), ("denied.test", None)]);
        assert_eq!(learnt.left_out.len(), 3);
        let (place, why) = learnt.left_out.last().unwrap();
        let wanted = "it leads to 10.0.0.7, a private address: the operator may name it in \
                      allow-private, or a rule may allow the address";
        assert_eq!((&**place, &**why), ("in.test", wanted));
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
            ask("GET", "/a/../z", r#""action":"deny","reason":"default""#),
            ask("POST", "/o", &format!(r#""otherMethods":["PUT"],"otherPaths":["/p"],{allowed}"#)),
            ask("GET", "/%zz", r#""action":"deny","reason":"default""#),
            ask("GET", &format!("/{}", "l".repeat(255)), allowed),
        ]
        .join(",");
        let decisions: Vec<Decision> = serde_json::from_str(&format!("[{text}]")).unwrap();
        let learnt = Learnt::of(&decisions);
        assert_eq!(
            serde_json::to_value(&learnt.policy.egress).unwrap(),
            serde_json::json!([
                {"action": "allow", "target": "a.test", "ports": [22]},
                {"action": "allow", "target": "a.test", "methods": ["POST", "PUT"], "paths": ["/o", "/p"]},
                {"action": "allow", "target": "a.test", "methods": ["GET", "HEAD"], "paths": ["/x"]},
                {"action": "allow", "target": "a.test", "methods": ["POST"], "paths": ["/y"]},
            ])
        );
        // Nobody is told to set what is refused then.
        let compiled = EgressPolicy::compile(&learnt.policy, &Operator::default());
        assert!(compiled.is_ok(), "{compiled:?}");
        let left_out: Vec<_> =
            learnt.left_out.iter().map(|(what, why)| (&**what, &**why)).collect();
        assert_eq!(left_out.len(), 4, "{left_out:?}");
        assert!(left_out[1].0 == "GET a.test/a/../z" && left_out[1].1.contains("dot segments"));
        assert_eq!(left_out[3], ("POST a.test:443/z", "a rule of the policy denies it"));
    }
}
