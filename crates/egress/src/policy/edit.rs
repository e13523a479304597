//! Changes to a policy, as clients ask for them.

use std::{collections::HashSet, hash::Hash};

use osb_api::lifecycle::{NetworkPolicy, NetworkRule};

/// Puts `incoming` in front and drops earlier rules with the same targets. Of incoming rules that
/// say the same target twice, the first counts.
pub fn merge(policy: &NetworkPolicy, incoming: &[NetworkRule]) -> NetworkPolicy {
    let targets: HashSet<_> = incoming.iter().map(|rule| key(&rule.target)).collect();
    let mut said = HashSet::new();
    let fresh = incoming.iter().filter(|rule| {
        let target = key(&rule.target);
        let scope = (rule.ports.as_ref(), rule.methods.as_ref(), rule.paths.as_ref());
        !said.contains(&(target.clone(), (None, None, None))) && said.insert((target, scope))
    });
    let kept = policy.egress.iter().filter(|rule| !targets.contains(&key(&rule.target)));
    NetworkPolicy {
        default_action: policy.default_action,
        egress: fresh.chain(kept).cloned().collect(),
    }
}

/// Puts the rules of `incoming` in front and keeps the others, but for those that say something of
/// the very same. Its default, if it has one, takes the place of the other.
pub fn add(policy: &NetworkPolicy, incoming: NetworkPolicy) -> NetworkPolicy {
    fn scope(rule: &NetworkRule) -> impl Hash + Eq {
        (key(&rule.target), &rule.ports, &rule.methods, &rule.paths)
    }
    let said: HashSet<_> = incoming.egress.iter().map(scope).collect();
    let kept = policy.egress.iter().filter(|rule| !said.contains(&scope(rule)));
    let kept: Vec<_> = kept.cloned().collect();
    drop(said);
    NetworkPolicy {
        default_action: incoming.default_action.or(policy.default_action),
        egress: incoming.egress.into_iter().chain(kept).collect(),
    }
}

/// Drops the rules with these targets. `None` if there is none.
pub fn remove(policy: &NetworkPolicy, targets: &[String]) -> Option<NetworkPolicy> {
    let targets: HashSet<_> = targets.iter().map(|target| key(target)).collect();
    let kept = policy.egress.iter().filter(|rule| !targets.contains(&key(&rule.target)));
    let kept: Vec<_> = kept.cloned().collect();
    (kept.len() < policy.egress.len())
        .then_some(NetworkPolicy { default_action: policy.default_action, egress: kept })
}

/// What makes two targets the same: case, the space around them and a dot at the end do not count.
fn key(target: &str) -> String {
    let target = target.trim();
    target.strip_suffix('.').unwrap_or(target).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use osb_api::lifecycle::NetworkAction::Deny;
    use serde_json::{from_value, json};

    use super::*;

    fn policy(value: serde_json::Value) -> NetworkPolicy {
        from_value(value).unwrap()
    }

    fn rules(value: serde_json::Value) -> Vec<NetworkRule> {
        from_value(value).unwrap()
    }

    #[test]
    fn incoming_rules_come_first_and_replace_their_targets() {
        let before = policy(json!({"defaultAction": "allow", "egress": [
            {"action": "deny", "target": "A.example"},
            {"action": "allow", "target": "b.example"},
        ]}));
        let after = merge(
            &before,
            &rules(json!([
                {"action": "allow", "target": "c.example"},
                {"action": "allow", "target": " a.example. "},
                {"action": "deny", "target": "C.EXAMPLE"},
            ])),
        );
        let expected = policy(json!({"defaultAction": "allow", "egress": [
            {"action": "allow", "target": "c.example"},
            {"action": "allow", "target": " a.example. "},
            {"action": "allow", "target": "b.example"},
        ]}));
        assert_eq!(after, expected);
    }

    #[test]
    fn one_target_may_have_several_rules_for_different_ports() {
        let before = policy(json!({"egress": [{"action": "deny", "target": "db.example"}]}));
        let incoming = rules(json!([
            {"action": "allow", "target": "db.example", "ports": [5432]},
            {"action": "allow", "target": "db.example", "ports": [6379]},
            {"action": "deny", "target": "db.example", "ports": [6379]},
            {"action": "deny", "target": "db.example"},
            {"action": "allow", "target": "db.example", "ports": [80]},
        ]));
        let after = merge(&before, &incoming);
        let kept = [0, 1, 3].map(|kept: usize| incoming[kept].clone());
        assert_eq!(after.egress, kept);
    }

    #[test]
    fn one_target_may_have_several_rules_for_different_requests() {
        let before = policy(json!({"egress": [
            {"action": "allow", "target": "api.example", "paths": ["/old"]},
        ]}));
        let incoming = rules(json!([
            {"action": "allow", "target": "api.example", "methods": ["GET"]},
            {"action": "allow", "target": "api.example", "methods": ["POST"], "paths": ["/a"]},
            {"action": "deny", "target": "API.example", "methods": ["GET"]},
        ]));
        assert_eq!(merge(&before, &incoming).egress, incoming[..2]);
    }

    #[test]
    fn rules_are_added_beside_others_about_the_same_target() {
        let before = policy(json!({"defaultAction": "allow", "egress": [
            {"action": "deny", "target": "*.example"},
            {"action": "allow", "target": "a.example"},
            {"action": "allow", "target": "A.example", "methods": ["DELETE"]},
        ]}));
        let new = json!({"action": "deny", "target": "a.example", "methods": ["DELETE"]});
        let after = add(&before, policy(json!({"egress": [new]})));
        assert_eq!(after.egress, [&rules(json!([new]))[..], &before.egress[..2]].concat());
        assert_eq!(after.default_action, before.default_action);
        let denied = add(&before, policy(json!({"defaultAction": "deny"})));
        assert_eq!((denied.egress, denied.default_action), (before.egress, Some(Deny)));
    }

    #[test]
    fn deleting_what_is_not_there_changes_nothing() {
        let before = policy(json!({"egress": [
            {"action": "allow", "target": "a.example"},
            {"action": "allow", "target": "10.0.0.0/8"},
        ]}));
        assert_eq!(remove(&before, &["b.example".to_owned(), String::new()]), None);
        let after = remove(&before, &["A.example".to_owned(), "b.example".to_owned()]).unwrap();
        assert_eq!(after.egress, before.egress[1..]);
    }
}
