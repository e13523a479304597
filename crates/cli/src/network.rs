//! What a new sandbox may reach, as flags say it.

use std::{path::Path, str::FromStr};

use opensandbox::api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};

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

/// Ports that are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what follows the colon should be ports, such as 443 or 80,443")]
pub(crate) struct InvalidPorts;

impl Destination {
    pub(crate) fn rule(&self, action: NetworkAction) -> NetworkRule {
        NetworkRule { ports: self.ports.clone(), ..NetworkRule::new(action, &self.target) }
    }
}

impl FromStr for Destination {
    type Err = InvalidPorts;

    /// The server checks the target, which knows best. Addresses with colons of their own stand in
    /// brackets if ports follow.
    fn from_str(text: &str) -> Result<Self, InvalidPorts> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (target, ports) = match bracketed {
            Some((target, "")) => (target, None),
            Some((target, rest)) => (target, Some(rest.strip_prefix(':').ok_or(InvalidPorts)?)),
            None => match text.split_once(':') {
                Some((target, ports)) if !ports.contains(':') && !ports.starts_with("//") => {
                    (target, Some(ports))
                }
                _ => (text, None),
            },
        };
        let port = |port: &str| port.parse().ok().filter(|port| *port != 0).ok_or(InvalidPorts);
        let ports = ports.map(|ports| ports.split(',').map(port).collect()).transpose()?;
        Ok(Self { target: target.to_owned(), ports })
    }
}

/// Reads a policy from a file.
pub(crate) fn read(path: &str) -> Result<NetworkPolicy, String> {
    let text = osb_sys::fs::read_to_string(Path::new(path)).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("that is no policy: {error}"))
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
        for text in ["a.b:", "a.b:http", "a.b:0", "a.b:80,", "a.b:65536", "[::1]80"] {
            assert_eq!(text.parse::<Destination>(), Err(InvalidPorts), "{text}");
        }
    }
}
