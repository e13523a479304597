//! What the operator says about all sandboxes: the table `[egress]` of the configuration file.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use osb_core::{InvalidQuantity, Memory};
use serde::Deserialize;

use crate::{
    Guarded, Name, Verdict,
    guard::{self, Block, Host},
    policy::{
        BadTarget,
        range::Range,
        rules::{Rules, Scope},
        target::Target,
    },
    vault::RawVault,
};

/// The most rules that a policy has if the operator does not say.
const DEFAULT_MAX_RULES: usize = 4096;
/// The most that the operator may allow: every change reads and writes all of them.
const MOST_RULES: usize = 65_536;

/// The table `[egress]`, as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawOperator {
    /// What sandboxes without a policy reach: the `public` Internet if absent, or nothing with
    /// `deny`. Since 0.1.
    #[serde(default)]
    pub default: Reach,
    /// Names, `*.domain`s, addresses and ranges that every sandbox reaches, whatever its policy
    /// says. Since 0.1.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Those that none reaches, whatever its policy or `allow` says. Since 0.1.
    #[serde(default)]
    pub deny: Vec<String>,
    /// Names and `*.domain`s that may lead to private addresses, and private addresses and ranges
    /// that names may lead to. Since 0.1.
    #[serde(default)]
    pub allow_private: Vec<String>,
    /// The most rules of a policy; 4096 if absent. Since 0.1.
    pub max_rules: Option<usize>,
    /// Where names are resolved, `address` or `address:port`; where the host does if absent.
    /// Since 0.1.
    #[serde(default)]
    pub resolvers: Vec<String>,
    /// The most connections of one sandbox at the same time; 1024 if absent. Since 0.1.
    pub connections: Option<usize>,
    /// How many connections a sandbox may begin in a second; 500 if absent. Since 0.1.
    pub new_connections: Option<u32>,
    /// The bytes a second that a sandbox may send and receive, as a number or such as `10M`; as many
    /// as come if absent. Since 0.1.
    pub bandwidth: Option<Amount>,
    /// A file with the certificates of authorities, as PEM, that the server and all sandboxes trust
    /// beside those they know; none if absent. Since 0.1.
    pub extra_ca: Option<PathBuf>,
    /// The URL to which a JSON object is posted for everything that is denied; none if absent.
    /// Since 0.1.
    pub deny_webhook: Option<String>,
    /// What vaults may do. Since 0.1.
    #[serde(default)]
    pub vault: RawVault,
}

/// An amount of bytes, as people write it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "an amount of bytes such as 10000000 or \"10M\"")]
pub enum Amount {
    Bytes(u64),
    Text(String),
}

impl Amount {
    pub(crate) fn bytes(&self) -> Result<u64, OperatorError> {
        let text = match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Text(text) => text.clone(),
        };
        let amount: Result<Memory, InvalidQuantity> = text.parse();
        amount.map(Memory::bytes).map_err(OperatorError::Bandwidth)
    }
}

/// What a sandbox without a policy reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Public addresses, by name or not.
    #[default]
    Public,
    /// Nothing.
    Deny,
}

/// What the operator wrote, checked. Copies share it.
#[derive(Debug, Clone, Default)]
pub struct Operator(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    reach: Reach,
    /// The denials before the permissions.
    rules: Rules,
    /// What may lead to private addresses: rules whose names and domains count alone.
    opened: Rules,
    opened_ranges: Vec<Range>,
    max_rules: usize,
    host: Host,
}

/// Settings that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    #[error("egress.{key} cannot have {target:?}: {}", in_settings(key, problem))]
    Target { key: &'static str, target: String, problem: BadTarget },
    #[error("egress.resolvers cannot have {0:?}: write an address, with or without a port")]
    Resolver(String),
    #[error("egress.extra-ca cannot be {}: {problem}", path.display())]
    ExtraCa { path: PathBuf, problem: String },
    #[error("egress.deny-webhook must be a URL with http or https, and without a password")]
    Webhook,
    #[error("egress.bandwidth: {0}")]
    Bandwidth(InvalidQuantity),
    #[error("egress.{0} must be at least 1")]
    Nothing(&'static str),
    #[error("egress.max-rules must be 1 to {MOST_RULES}")]
    MaxRules,
}

impl Operator {
    pub fn new(raw: &RawOperator) -> Result<Self, OperatorError> {
        Self::on(raw, Host::default())
    }

    pub(crate) fn on(raw: &RawOperator, host: Host) -> Result<Self, OperatorError> {
        let max_rules = raw.max_rules.unwrap_or(DEFAULT_MAX_RULES);
        if !(1..=MOST_RULES).contains(&max_rules) {
            return Err(OperatorError::MaxRules);
        }
        let mut rules = Rules::default();
        for (key, verdict, list) in
            [("deny", Verdict::Deny, &raw.deny), ("allow", Verdict::Allow, &raw.allow)]
        {
            for text in list {
                let target = parse(key, text)?;
                rules.push(verdict, text, target, Scope::default());
            }
        }
        let (mut opened, mut opened_ranges) = (Rules::default(), Vec::new());
        for text in &raw.allow_private {
            match parse("allow-private", text)? {
                Target::Range(range) => {
                    if !guard::could_hold(range) {
                        return Err(wrong("allow-private", text, BadTarget::Public));
                    }
                    opened_ranges.push(range);
                }
                target @ (Target::Name(_) | Target::Below(_)) => {
                    opened.push(Verdict::Allow, text, target, Scope::default());
                }
            }
        }
        let reach = raw.default;
        Ok(Self(Arc::new(Parts { reach, rules, opened, opened_ranges, max_rules, host })))
    }

    /// What a sandbox without a policy reaches.
    pub fn reach(&self) -> Reach {
        self.0.reach
    }

    /// The rules for all sandboxes, in the order in which they are asked: whom they are about, as it
    /// was written.
    pub fn written(&self) -> impl Iterator<Item = (Verdict, &str)> {
        self.0.rules.written()
    }

    /// The addresses of the host and of metadata services that sandboxes without a policy reach, at
    /// all their ports, because they were written down.
    pub fn exposed(&self) -> Vec<String> {
        let ranges = self.0.opened_ranges.iter();
        let is_exposed = |range: &&Range| {
            let block = guard::block(range.first(), &self.0.host);
            block.is_some_and(|block| matches!(block.kind, Guarded::Host | Guarded::Metadata))
        };
        match self.0.reach {
            Reach::Public => ranges.filter(is_exposed).map(ToString::to_string).collect(),
            Reach::Deny => Vec::new(),
        }
    }

    pub(crate) fn max_rules(&self) -> usize {
        self.0.max_rules
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    pub(crate) fn host(&self) -> &Host {
        &self.0.host
    }

    /// Whether a name may lead to guarded addresses of this kind. The host itself and metadata must
    /// be written out as addresses.
    pub(crate) fn opens(&self, name: &Name, kind: Guarded) -> bool {
        match kind {
            Guarded::Private | Guarded::LinkLocal | Guarded::Special => {
                self.0.opened.name(name).is_some()
            }
            Guarded::Host | Guarded::Metadata => false,
        }
    }

    /// Whether an address is guarded no more, in any of its forms.
    pub(crate) fn opens_block(&self, forms: &[IpAddr], block: Block) -> bool {
        self.0.opened_ranges.iter().any(|range| {
            block.range.holds(*range) && forms.iter().any(|form| range.contains(*form))
        })
    }
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            reach: Reach::Public,
            rules: Rules::default(),
            opened: Rules::default(),
            opened_ranges: Vec::new(),
            max_rules: DEFAULT_MAX_RULES,
            host: Host::default(),
        }
    }
}

/// What is wrong with a target, where it is not one of a policy: in the words of settings.
fn in_settings(key: &str, problem: &BadTarget) -> String {
    match (problem, key) {
        (BadTarget::Everything, "allow-private") => {
            "name the domains that lead to private addresses, or ranges such as 10.0.0.0/8".into()
        }
        (BadTarget::Everything, _) => {
            r#"for everything there is egress.default, which is "public" or "deny""#.into()
        }
        (BadTarget::Port, _) => "settings are about all ports: write the host alone".into(),
        (problem, _) => problem.to_string(),
    }
}

fn parse(key: &'static str, text: &str) -> Result<Target, OperatorError> {
    Target::parse(text).map_err(|problem| wrong(key, text, problem))
}

fn wrong(key: &'static str, text: &str, problem: BadTarget) -> OperatorError {
    OperatorError::Target { key, target: text.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let raw: RawOperator = toml::from_str(text).unwrap();
        Operator::new(&raw).unwrap_err().to_string()
    }

    #[test]
    fn problems_are_told_in_the_words_of_settings() {
        for (text, part) in [
            (
                "allow = ['*']",
                r#"egress.allow cannot have "*": for everything there is egress.default"#,
            ),
            ("deny = ['*']", "egress.default"),
            ("allow-private = ['*']", "name the domains"),
            ("allow = ['pypi.org:443']", "about all ports: write the host alone"),
            ("allow = ['https://pypi.org']", "a host and not a URL"),
        ] {
            let problem = problem(text);
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn what_is_the_hosts_own_and_open_to_all_is_known() {
        let exposed = |text: &str| {
            let raw: RawOperator = toml::from_str(text).unwrap();
            Operator::on(&raw, Host::Known(Vec::new())).unwrap().exposed()
        };
        let both = "allow-private = ['127.0.0.1', '10.0.0.0/8', '169.254.169.254', '*.corp.test']";
        assert_eq!(exposed(both), ["127.0.0.1/32", "169.254.169.254/32"]);
        assert!(exposed(&format!("default = 'deny'\n{both}")).is_empty());
    }

    #[test]
    fn amounts_are_numbers_or_have_units() {
        let bandwidth = |text: &str| {
            let raw: Result<RawOperator, _> = toml::from_str(&format!("bandwidth = {text}"));
            raw.map_err(|error| error.to_string())
                .and_then(|raw| raw.bandwidth.unwrap().bytes().map_err(|error| error.to_string()))
        };
        assert_eq!(bandwidth("1000"), Ok(1000));
        assert_eq!(bandwidth("'10M'"), Ok(10_000_000));
        assert_eq!(bandwidth("'1.5Mi'"), Ok(3 << 19));
        let problem = bandwidth("'fast'").unwrap_err();
        assert!(
            problem.starts_with("egress.bandwidth: ") && problem.contains("512Mi"),
            "{problem}"
        );
        assert!(bandwidth("0").is_err() && bandwidth("true").unwrap_err().contains("\"10M\""));
    }
}
