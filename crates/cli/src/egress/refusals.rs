use std::collections::HashSet;

use opensandbox::api::{
    egress::{Decision, ReasonKind},
    lifecycle::NetworkAction,
};

use super::{learn::guarded, log};
use crate::{output::Output, table::clean};

/// What the network refused a sandbox, each once.
#[derive(Debug)]
pub(crate) struct Refusals(Vec<Refusal>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Refusal {
    place: String,
    why: String,
    /// Whether all that is missing is a rule that allows it.
    lacks_rule: bool,
}

impl Refusals {
    /// More would bury what the command itself said.
    const MOST: usize = 10;

    pub(crate) fn of(decisions: &[Decision]) -> Self {
        let mut said = HashSet::new();
        let refused = decisions.iter().filter_map(|decision| {
            let lacks_rule = decision.action == NetworkAction::Deny
                && decision.reason.reason == ReasonKind::Default;
            Some(Refusal { place: log::place(decision), why: reason(decision)?, lacks_rule })
        });
        Self(refused.filter(|refusal| said.insert(refusal.clone())).collect())
    }

    /// Those that a policy allows which was learnt: of the others it is said that they are left out.
    pub(crate) fn learnt(mut self) -> Self {
        self.0.retain(|refusal| refusal.lacks_rule);
        self
    }

    /// Whether a policy that was learnt would allow any of it.
    pub(crate) fn can_be_learnt(&self) -> bool {
        self.0.iter().any(|refusal| refusal.lacks_rule)
    }

    pub(crate) fn tell(&self, output: &mut Output<'_>) {
        for Refusal { place, why, .. } in self.0.iter().take(Self::MOST) {
            output.say(&clean(&format!("the network refused: {place} ({why})")));
        }
        let more = self.0.len().saturating_sub(Self::MOST);
        if more > 0 {
            output.say(&format!("the network refused: {more} more"));
        }
    }
}

/// Why it was refused, before or in the middle, if it was.
fn reason(decision: &Decision) -> Option<String> {
    let cut_by = decision.end.as_ref().and_then(|end| end.cut_by.as_ref());
    match (decision.action, decision.reason.reason, cut_by) {
        (NetworkAction::Deny, ReasonKind::Default, _) => Some("no rule allows it".to_owned()),
        (NetworkAction::Deny, ReasonKind::Guard, _) => Some(guarded(decision)),
        (NetworkAction::Deny, _, _) => Some(log::why(&decision.reason)),
        (NetworkAction::Allow, _, cut_by) => cut_by.map(log::why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(decisions: &[String]) -> String {
        let decisions = format!("[{}]", decisions.join(","));
        let decisions: Vec<Decision> = serde_json::from_str(&decisions).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        Refusals::of(&decisions).tell(&mut Output::new(&mut out, &mut err));
        assert!(out.is_empty());
        String::from_utf8(err).unwrap()
    }

    fn decision(protocol: &str, rest: &str) -> String {
        format!(
            r#"{{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"{protocol}","port":443,"times":1,{rest}}}"#
        )
    }

    #[test]
    fn each_target_is_named_once_with_the_reason() {
        let denied = r#""name":"a.test","action":"deny","reason":"default""#;
        let log = [
            decision("dns", denied),
            decision("dns", denied),
            decision("tcp", r#""name":"fine.test","action":"allow","reason":"default""#),
            decision(
                "tcp",
                r#""name":"in.test","address":"10.0.0.7","action":"deny","reason":"guard","guarded":"private""#,
            ),
            decision(
                "tcp",
                r#""address":"2001:db8::7","action":"deny","reason":"rule","rule":"::/0""#,
            ),
            decision(
                "http",
                r#""name":"b.test","method":"PUT","path":"/\u001b[1mx","action":"deny","reason":"default""#,
            ),
            decision(
                "tcp",
                r#""name":"c.test","action":"allow","reason":"default","end":{"outcome":"cut","cutBy":{"reason":"mismatch"},"sentBytes":0,"receivedBytes":0,"durationMs":1}"#,
            ),
        ];
        assert_eq!(
            told(&log),
            "osb: the network refused: a.test (no rule allows it)\n\
             osb: the network refused: in.test:443 (it leads to 10.0.0.7, a private address: the \
             operator may name it in allow-private, or a rule may allow the address)\n\
             osb: the network refused: [2001:db8::7]:443 (rule ::/0)\n\
             osb: the network refused: PUT b.test:443/ [1mx (no rule allows it)\n\
             osb: the network refused: c.test:443 (what was sent is for another host)\n"
        );
    }

    #[test]
    fn a_flood_is_a_number() {
        let name = |n: i32| format!(r#""name":"{n}.test","action":"deny","reason":"default""#);
        let log: Vec<_> = (0..200).map(|n| decision("dns", &name(n))).collect();
        let told = told(&log);
        assert_eq!(told.lines().count(), 11);
        assert!(told.ends_with("osb: the network refused: 190 more\n"), "{told}");
        assert!(!Refusals::of(&[]).can_be_learnt());
    }
}
