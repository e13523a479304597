//! What the network refused a step that failed, which it may not have said itself.

use std::collections::HashSet;

use osb_egress::{By, Decision, Guarded, Protocol, Verdict};

/// More would bury what the command itself said.
const MOST: usize = 10;
/// How to allow what lacks nothing but a rule.
const HELP: &str = "allow it with --allow HOST, or in the networkPolicy of the build";

/// What was refused, each once, and what to do about it.
pub(super) fn notes(decisions: &[Decision]) -> Vec<String> {
    let mut said = HashSet::new();
    let refused = decisions.iter().filter(|decision| decision.ruling.verdict == Verdict::Deny);
    let lacks_rule = refused.clone().any(|decision| decision.ruling.by == By::Default);
    let mut notes: Vec<String> = refused
        .map(|decision| format!("the network refused: {} ({})", place(decision), why(decision)))
        .filter(|note| said.insert(note.clone()))
        .collect();
    let more = notes.len().saturating_sub(MOST);
    if more > 0 {
        notes.truncate(MOST);
        notes.push(format!("the network refused: {more} more"));
    }
    if lacks_rule {
        notes.push(HELP.to_owned());
    }
    notes
}

/// Where it was to go, without what was asked of it: a path may be long, and say more than it should.
fn place(decision: &Decision) -> String {
    let what = &decision.what;
    let host = match (&what.name, what.address) {
        (Some(name), _) => name.to_string(),
        (None, Some(address)) if address.is_ipv6() => format!("[{address}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => "?".to_owned(),
    };
    match what.protocol {
        Protocol::Dns => host,
        Protocol::Tcp | Protocol::Udp | Protocol::Http | Protocol::Credential => {
            format!("{host}:{}", what.port)
        }
    }
}

fn why(decision: &Decision) -> String {
    match &decision.ruling.by {
        By::Rule(rule) => format!("a rule denies {rule}"),
        By::Operator(_) => "the operator denies it".to_owned(),
        By::Default => "no rule allows it".to_owned(),
        By::Guard(Guarded::Private) => {
            "it is a private address: only a rule that names it allows it".to_owned()
        }
        By::Guard(Guarded::Host | Guarded::Metadata | Guarded::LinkLocal | Guarded::Special) => {
            "it is an address that sandboxes do not reach".to_owned()
        }
        By::Mismatch => "what was sent is for another host".to_owned(),
        By::Limit => "there were too many of them".to_owned(),
        By::Binding(name) => format!("the credential {name} is not for it"),
    }
}

#[cfg(test)]
mod tests {
    use osb_api::SandboxId;
    use osb_core::{Clock as _, SystemClock};
    use osb_egress::{Attempt, Name, Ruling};

    use super::*;

    fn decision(protocol: Protocol, host: &str, verdict: Verdict, by: By) -> Decision {
        let address = host.parse().ok();
        let name = if address.is_some() { None } else { Name::parse(host).ok() };
        Decision {
            number: 1,
            sandbox: SandboxId::random(),
            at: SystemClock.now(),
            what: Attempt { protocol, name, address, port: 443, request: None },
            ruling: Ruling { verdict, by },
            times: 1,
            end: None,
        }
    }

    #[test]
    fn what_was_refused_is_named_once_with_what_to_do() {
        let denied = |host: &str, by| decision(Protocol::Dns, host, Verdict::Deny, by);
        let found = [
            denied("a.test", By::Default),
            decision(Protocol::Tcp, "fine.test", Verdict::Allow, By::Default),
            denied("a.test", By::Default),
            decision(Protocol::Tcp, "2001:db8::7", Verdict::Deny, By::Rule("::/0".into())),
        ];
        let notes = notes(&found);
        assert_eq!(
            notes,
            [
                "the network refused: a.test (no rule allows it)",
                "the network refused: [2001:db8::7]:443 (a rule denies ::/0)",
                HELP,
            ]
        );
    }

    #[test]
    fn a_flood_is_a_number_and_nothing_is_nothing() {
        let name = |n: i32| format!("{n}.test");
        let denied = |n| decision(Protocol::Dns, &name(n), Verdict::Deny, By::Limit);
        let found: Vec<_> = (0..200).map(denied).collect();
        let told = notes(&found);
        assert_eq!(
            (told.len(), told.last().unwrap().as_str()),
            (11, "the network refused: 190 more")
        );
        assert!(notes(&[]).is_empty());
    }
}
