//! What a new sandbox may reach, as flags say it.

use std::{net::Ipv6Addr, str::FromStr};

use opensandbox::api::lifecycle::{NetworkAction, NetworkPolicy, NetworkPolicyStatus, NetworkRule};
use osb_server::{EgressPolicy, Operator, PolicyError, meet};
use serde::Deserialize as _;
use serde_json::Value;

#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// Let the sandbox reach this, and nothing else that no flag allows: a name, `*.domain`, an
    /// address or a range; may be repeated
    #[arg(long, value_name = "TARGET[:PORT,…]", help_heading = "Network")]
    allow: Vec<Destination>,
    /// Keep the sandbox from reaching this, before anything is allowed; without --allow, the rest is
    /// what the server lets sandboxes reach. What its operator allows all of them it does not take
    /// away. May be repeated
    #[arg(long, value_name = "TARGET[:PORT,…]", help_heading = "Network")]
    deny: Vec<Destination>,
    /// Let the sandbox reach nothing but what the server's operator allows all of them
    #[arg(long, conflicts_with_all = ["allow", "deny", "policy"], help_heading = "Network")]
    no_network: bool,
    /// Read what the sandbox may reach from this file, in JSON, as `osb egress learn` prints it, `-`
    /// for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["allow", "deny"],
        help_heading = "Network"
    )]
    policy: Option<String>,
}

impl Reach {
    pub(crate) fn policy_file(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Whether anything was said.
    pub(crate) fn is_limited(&self) -> bool {
        let is_named = !self.allow.is_empty() || !self.deny.is_empty();
        is_named || self.no_network || self.policy.is_some()
    }

    /// Whether it takes to know what sandboxes reach without a policy.
    pub(crate) fn leaves_to_the_server(&self) -> bool {
        self.no_network || !self.deny.is_empty()
    }

    /// The policy that flags ask for, if they do: with something allowed, the rest is not. If things
    /// are only denied, the rest stays what it is without a policy.
    pub(crate) fn policy(&self, around: Option<&NetworkPolicyStatus>) -> Option<NetworkPolicy> {
        if self.allow.is_empty() && self.deny.is_empty() && !self.no_network {
            return None;
        }
        let only_denied = self.allow.is_empty() && !self.no_network;
        let rest = around.and_then(|around| around.policy.default_action);
        let default =
            if only_denied { rest.unwrap_or(NetworkAction::Allow) } else { NetworkAction::Deny };
        let denied = self.deny.iter().map(|to| to.rule(NetworkAction::Deny));
        let allowed = self.allow.iter().map(|to| to.rule(NetworkAction::Allow));
        Some(NetworkPolicy {
            default_action: Some(default),
            egress: denied.chain(allowed).collect(),
        })
    }

    /// What is reached all the same, because the operator allows it to all sandboxes.
    pub(crate) fn outranked(&self, operator: &[NetworkRule]) -> Option<String> {
        if self.no_network {
            let allows = |rule: &&NetworkRule| rule.action == NetworkAction::Allow;
            let targets: Vec<_> =
                operator.iter().filter(allows).map(|rule| rule.target.as_str()).collect();
            return (!targets.is_empty()).then(|| {
                format!(
                    "--no-network does not keep the sandbox from what the operator lets all \
                     sandboxes reach: {}",
                    targets.join(", ")
                )
            });
        }
        let denied = self.deny.iter().map(|to| to.rule(NetworkAction::Deny));
        denied
            .filter_map(|rule| outranked(&rule, operator))
            .reduce(|all, one| all + "\nosb: " + &one)
    }
}

/// Says of a rule which one of the operator's comes before it and decides otherwise, if one does.
pub(crate) fn outranked(rule: &NetworkRule, operator: &[NetworkRule]) -> Option<String> {
    let is_first = |other: &&NetworkRule| meet(&other.target, &rule.target);
    let first = operator.iter().find(is_first).filter(|first| first.action != rule.action)?;
    let (does, holds) = match first.action {
        NetworkAction::Allow => ("allows", "denied"),
        NetworkAction::Deny => ("denies", "allowed"),
    };
    Some(format!(
        "{} is not {holds} where the operator {does} {}, which comes first",
        rule.target, first.target
    ))
}

/// Whom a rule is about: a target, and the ports if not all are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    target: String,
    ports: Option<Vec<u16>>,
}

/// What is no destination, whatever the server thinks of targets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidDestination {
    #[error("what follows the colon should be ports from 1 to 65535, such as 443 or 80,443")]
    Ports,
    #[error("write [{address}]:{port} for the port, or [{whole}] if that is the address")]
    Port { address: String, port: String, whole: String },
    #[error("{0}")]
    Target(String),
    #[error("name each target by itself, as in --allow a.example --allow b.example:80,443")]
    Several,
    #[error(
        "leave --allow out to reach all that is public, or write a policy whose `defaultAction` is \
         `allow`; --no-network is to reach nothing"
    )]
    Everything,
}

impl Destination {
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    pub(crate) fn rule(&self, action: NetworkAction) -> NetworkRule {
        NetworkRule { ports: self.ports.clone(), ..NetworkRule::new(action, &self.target) }
    }
}

impl FromStr for Destination {
    type Err = InvalidDestination;

    /// Addresses with colons of their own stand in brackets if ports follow.
    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (target, ports) = match bracketed {
            Some((target, "")) => (target, None),
            Some((target, rest)) => {
                (target, Some(rest.strip_prefix(':').ok_or(InvalidDestination::Ports)?))
            }
            None => match text.split_once(':') {
                Some((target, ports)) if !ports.contains(':') && !ports.starts_with("//") => {
                    (target, Some(ports))
                }
                _ => (text, None),
            },
        };
        if bracketed.is_none()
            && let Some((address, port)) = text.rsplit_once(':')
            && COMMON_PORTS.contains(&port)
            && address.parse::<Ipv6Addr>().is_ok()
        {
            let (address, port) = (address.to_owned(), port.to_owned());
            return Err(InvalidDestination::Port { address, port, whole: text.to_owned() });
        }
        if target.contains([',', ' ']) {
            return Err(InvalidDestination::Several);
        }
        if target == "*" {
            return Err(InvalidDestination::Everything);
        }
        let port = |port: &str| {
            port.parse().ok().filter(|port| *port != 0).ok_or(InvalidDestination::Ports)
        };
        let ports = ports.map(|ports| ports.split(',').map(port).collect()).transpose()?;
        let destination = Self { target: target.to_owned(), ports };
        possible(destination.rule(NetworkAction::Allow)).map_err(InvalidDestination::Target)?;
        Ok(destination)
    }
}

/// What people mean by a port behind an address, which reads as a part of it.
const COMMON_PORTS: [&str; 8] = ["22", "80", "443", "3306", "5432", "6379", "8080", "8443"];

/// Whether a policy may have such a rule, and else why not.
pub(crate) fn possible(rule: NetworkRule) -> Result<(), String> {
    let policy = NetworkPolicy { default_action: None, egress: vec![rule] };
    match EgressPolicy::compile(&policy, &Operator::default()) {
        Ok(_) => Ok(()),
        Err(PolicyError::Rule { problem, .. }) => Err(problem.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a policy. Says of what is none what it is instead, and of a rule that is none which.
pub(crate) fn parse(text: &str) -> Result<NetworkPolicy, String> {
    const FORM: &str =
        r#"a policy is an object such as {"defaultAction": "deny", "egress": [rules]}"#;
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if !value.is_object() {
        return Err(if value.is_array() {
            format!("it is a list, and {FORM}")
        } else {
            FORM.to_owned()
        });
    }
    let rules = value.get("egress").and_then(Value::as_array).map(Vec::as_slice);
    for (number, rule) in (1..).zip(rules.unwrap_or_default()) {
        check(rule).map_err(|problem| format!("rule {number}: {problem}"))?;
    }
    serde_json::from_value(value).map_err(|error| format!("it is no policy: {error}"))
}

fn check(rule: &Value) -> Result<(), String> {
    if !rule.is_object() {
        return Err(
            r#"a rule is an object such as {"action": "allow", "target": "pypi.org"}"#.to_owned()
        );
    }
    let is_port = |port: &Value| port.as_u64().is_some_and(|port| (1..=65535).contains(&port));
    match rule.get("ports") {
        None | Some(Value::Null) => {}
        Some(Value::Array(ports)) if ports.iter().all(is_port) => {}
        Some(_) => {
            return Err(
                "`ports` is a list of numbers from 1 to 65535, such as [80, 443]".to_owned()
            );
        }
    }
    let rule = NetworkRule::deserialize(rule).map_err(|error| error.to_string())?;
    let target = rule.target.clone();
    possible(rule).map_err(|problem| format!("{target}: {problem}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{json, to_value};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        reach: Reach,
    }

    fn reach(line: &[&str]) -> Reach {
        Line::try_parse_from([&["run"], line].concat()).unwrap().reach
    }

    fn policy(line: &[&str]) -> Option<serde_json::Value> {
        reach(line).policy(None).map(|policy| to_value(policy).unwrap())
    }

    #[test]
    fn what_is_only_denied_widens_nothing() {
        let around: NetworkPolicyStatus = serde_json::from_value(json!({
            "status": "ok", "mode": "deny_all",
            "policy": {"defaultAction": "deny", "egress": []},
        }))
        .unwrap();
        let policy = |line: &[&str]| reach(line).policy(Some(&around)).unwrap();
        assert_eq!(policy(&["--deny", "a.b"]).default_action, Some(NetworkAction::Deny));
        assert_eq!(policy(&["--allow", "a.b"]).default_action, Some(NetworkAction::Deny));
        assert!(reach(&["--deny", "a.b"]).leaves_to_the_server());
        assert!(!reach(&["--allow", "a.b"]).leaves_to_the_server());
    }

    #[test]
    fn what_the_operator_says_first_is_told() {
        let operator: Vec<NetworkRule> = serde_json::from_value(json!([
            {"action": "deny", "target": "*.tracker.test"},
            {"action": "allow", "target": "pypi.org"},
            {"action": "allow", "target": "*.corp.test"},
        ]))
        .unwrap();
        let said = |line: &[&str]| reach(line).outranked(&operator);
        assert_eq!(
            said(&["--no-network"]).unwrap(),
            "--no-network does not keep the sandbox from what the operator lets all sandboxes \
             reach: pypi.org, *.corp.test"
        );
        assert_eq!(
            said(&["--deny", "a.b", "--deny", "PyPI.org", "--deny", "git.corp.test"]).unwrap(),
            "PyPI.org is not denied where the operator allows pypi.org, which comes first\n\
             osb: git.corp.test is not denied where the operator allows *.corp.test, which comes first"
        );
        assert_eq!(said(&["--deny", "x.tracker.test"]), None);
        assert_eq!(reach(&["--no-network"]).outranked(&operator[..1]), None);
        let allowed = NetworkRule::new(NetworkAction::Allow, "x.tracker.test");
        assert!(outranked(&allowed, &operator).unwrap().contains("operator denies *.tracker.test"));
    }

    #[test]
    fn flags_become_a_policy() {
        assert_eq!(policy(&[]), None);
        assert_eq!(policy(&["--no-network"]), Some(json!({"defaultAction": "deny", "egress": []})));
        let denied = json!({"action": "deny", "target": "10.0.0.0/8"});
        assert_eq!(
            policy(&["--deny", "10.0.0.0/8"]),
            Some(json!({"defaultAction": "allow", "egress": [denied]}))
        );
        let allowed = json!({"action": "allow", "target": "db.example", "ports": [5432, 80]});
        assert_eq!(
            policy(&["--allow", "db.example:5432,80", "--deny", "10.0.0.0/8"]),
            Some(json!({"defaultAction": "deny", "egress": [denied, allowed]}))
        );
        assert!(Line::try_parse_from(["run", "--no-network", "--allow", "a.b"]).is_err());
    }

    #[test]
    fn ports_are_told_from_addresses() {
        for (text, target, ports) in [
            ("*.a.b", "*.a.b", None),
            ("a.b:443", "a.b", Some(vec![443])),
            ("2001:db8::1", "2001:db8::1", None),
            ("2001:db8::/32", "2001:db8::/32", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:22,80", "2001:db8::1", Some(vec![22, 80])),
            ("[2001:db8::7:443]", "2001:db8::7:443", None),
        ] {
            let destination: Destination = text.parse().unwrap();
            assert_eq!((destination.target.as_str(), destination.ports), (target, ports), "{text}");
        }
        for text in ["a.b,c.d", "a.b,c.d:80", "a.b c.d"] {
            assert_eq!(text.parse::<Destination>(), Err(InvalidDestination::Several), "{text}");
        }
        for (text, part) in [
            ("2001:db8::7:443", "write [2001:db8::7]:443"),
            ("https://a.b", "a host and not a URL"),
            ("127.0.0.1", "the sandbox itself"),
        ] {
            let problem = text.parse::<Destination>().unwrap_err().to_string();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        for text in ["*", "*:443"] {
            assert_eq!(text.parse::<Destination>(), Err(InvalidDestination::Everything), "{text}");
        }
        for text in ["a.b:", "a.b:http", "a.b:0", "a.b:80,", "a.b:65536", "[::1]80"] {
            assert_eq!(text.parse::<Destination>(), Err(InvalidDestination::Ports), "{text}");
        }
    }

    #[test]
    fn a_file_that_holds_no_policy_says_what_it_holds() {
        for (text, part) in [
            ("not: json", "it is not JSON: expected"),
            ("", "it is not JSON: EOF"),
            (
                r#"[{"action": "allow", "target": "a.b"}]"#,
                "it is a list, and a policy is an object",
            ),
            (r#""deny""#, "a policy is an object"),
            (r#"{"egress": ["a.b"]}"#, "rule 1: a rule is an object"),
            (
                r#"{"egress": [{"action": "deny", "target": "a.b"}, {"action": "allow", "target": "a.b", "ports": ["443"]}]}"#,
                "rule 2: `ports` is a list of numbers",
            ),
            (
                r#"{"egress": [{"action": "allow", "target": "a.b", "ports": 443}]}"#,
                "rule 1: `ports`",
            ),
            (
                r#"{"egress": [{"action": "allow", "target": "a.b", "ports": [70000]}]}"#,
                "from 1 to 65535",
            ),
            (
                r#"{"egress": [{"action": "allow", "target": "https://a.b"}]}"#,
                "rule 1: https://a.b: a target is a host",
            ),
            (r#"{"egress": [{"target": "a.b"}]}"#, "rule 1: missing field `action`"),
            (
                r#"{"egress": [{"action": "allow", "target": "a.b", "port": 80}]}"#,
                "rule 1: unknown",
            ),
            (r#"{"egress": {}}"#, "it is no policy: "),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        let rule = r#"{"action": "allow", "target": "a.b", "ports": [80]}"#;
        assert!(parse(&format!(r#"{{"egress": [{rule}]}}"#)).is_ok());
        assert!(parse("{}").is_ok() && parse(r#"{"egress": null}"#).is_ok());
    }
}
