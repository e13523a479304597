//! What a new sandbox may reach, as flags say it.

use std::{path::Path, str::FromStr};

use opensandbox::api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};
use osb_core::Chain;
use serde::Deserialize as _;
use serde_json::Value;

#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// Let the sandbox reach this, and nothing else that no flag allows: a name, `*.domain`, an
    /// address or a range; may be repeated
    #[arg(long, value_name = "TARGET[:PORT,…]", help_heading = "Network")]
    allow: Vec<Destination>,
    /// Keep the sandbox from reaching this, before anything is allowed; may be repeated
    #[arg(long, value_name = "TARGET[:PORT,…]", help_heading = "Network")]
    deny: Vec<Destination>,
    /// Let the sandbox reach nothing
    #[arg(long, conflicts_with_all = ["allow", "deny", "policy"], help_heading = "Network")]
    no_network: bool,
    /// Read what the sandbox may reach from this file, in JSON, as `osb egress learn` prints it
    #[arg(
        long,
        value_name = "FILE",
        value_parser = read,
        conflicts_with_all = ["allow", "deny"],
        help_heading = "Network"
    )]
    policy: Option<NetworkPolicy>,
}

impl Reach {
    /// The policy, if any was asked for: with something allowed, the rest is not.
    pub(crate) fn policy(&self) -> Option<NetworkPolicy> {
        if let Some(policy) = &self.policy {
            return Some(policy.clone());
        }
        if self.allow.is_empty() && self.deny.is_empty() && !self.no_network {
            return None;
        }
        let only_denied = self.allow.is_empty() && !self.no_network;
        let default = if only_denied { NetworkAction::Allow } else { NetworkAction::Deny };
        let denied = self.deny.iter().map(|to| to.rule(NetworkAction::Deny));
        let allowed = self.allow.iter().map(|to| to.rule(NetworkAction::Allow));
        Some(NetworkPolicy {
            default_action: Some(default),
            egress: denied.chain(allowed).collect(),
        })
    }
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
    #[error("what follows the colon should be ports, such as 443 or 80,443")]
    Ports,
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

    /// The server checks the target, which knows best. Addresses with colons of their own stand in
    /// brackets if ports follow.
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
        Ok(Self { target: target.to_owned(), ports })
    }
}

/// Reads a policy from a file.
pub(crate) fn read(path: &str) -> Result<NetworkPolicy, String> {
    let text =
        osb_sys::fs::read_to_string(Path::new(path)).map_err(|error| Chain(&error).to_string())?;
    parse(&text)
}

/// Says of what is no policy what it is instead, and of a rule that is none which.
fn parse(text: &str) -> Result<NetworkPolicy, String> {
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
    let is_port = |port: &Value| port.as_u64().is_some_and(|port| u16::try_from(port).is_ok());
    match rule.get("ports") {
        None | Some(Value::Null) => {}
        Some(Value::Array(ports)) if ports.iter().all(is_port) => {}
        Some(_) => return Err("`ports` is a list of numbers, such as [80, 443]".to_owned()),
    }
    NetworkRule::deserialize(rule).map(drop).map_err(|error| error.to_string())
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

    fn policy(line: &[&str]) -> Option<serde_json::Value> {
        let line = Line::try_parse_from([&["run"], line].concat()).unwrap();
        line.reach.policy().map(|policy| to_value(policy).unwrap())
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
        assert!(Line::try_parse_from(["run", "--policy", "/nowhere"]).is_err());
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
            ("https://a.b", "https://a.b", None),
        ] {
            let destination: Destination = text.parse().unwrap();
            assert_eq!((destination.target.as_str(), destination.ports), (target, ports), "{text}");
        }
        for text in ["a.b,c.d", "a.b,c.d:80", "a.b c.d"] {
            assert_eq!(text.parse::<Destination>(), Err(InvalidDestination::Several), "{text}");
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
            (r#"{"egress": [{"action": "allow", "target": "a.b", "ports": [70000]}]}"#, "`ports`"),
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
        let missing = read("/nonexistent/policy.json").unwrap_err();
        assert!(missing.contains("/nonexistent/policy.json: No such file"), "{missing}");
        let rule = r#"{"action": "allow", "target": "a.b", "ports": [80]}"#;
        assert!(parse(&format!(r#"{{"egress": [{rule}]}}"#)).is_ok());
        assert!(parse("{}").is_ok() && parse(r#"{"egress": null}"#).is_ok());
    }
}
