use std::net::IpAddr;

use osb_api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};
use proptest::prelude::*;
use serde_json::{from_value, json};

use super::{range::Range, *};
use crate::{RawOperator, guard::Host};

const OWN: [&str; 2] = ["93.184.216.34", "10.0.0.5"];

fn operator(text: &str) -> Operator {
    let host = Host::Known(OWN.iter().map(|text| text.parse().unwrap()).collect());
    Operator::on(&toml::from_str(text).unwrap(), host).unwrap()
}

fn policy(wire: serde_json::Value) -> Policy {
    policy_under("", wire)
}

fn policy_under(settings: &str, wire: serde_json::Value) -> Policy {
    Policy::compile(&from_value(wire).unwrap(), &operator(settings)).unwrap()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn allows(ruling: &Ruling) -> bool {
    ruling.verdict == Verdict::Allow
}

#[test]
fn the_first_rule_wins_whether_it_is_a_name_or_a_domain() {
    let policy = policy(json!({"egress": [
        {"action": "deny", "target": "*.Evil.example"},
        {"action": "allow", "target": "good.evil.example"},
        {"action": "allow", "target": "evil.example"},
        {"action": "allow", "target": "api.example"},
        {"action": "deny", "target": "api.example"},
        {"action": "allow", "target": "*.api.example"},
    ]}));
    for (text, expected) in [
        ("good.evil.example", false),
        ("a.b.evil.example", false),
        ("evil.example", true),
        ("API.example", true),
        ("v1.api.example", true),
        ("other.example", false),
        ("notevil.example", false),
    ] {
        assert_eq!(allows(&policy.name(&name(text))), expected, "{text}");
        assert_eq!(allows(&policy.name_at(&name(text), 443)), expected, "{text}");
    }
    assert_eq!(policy.name(&name("x.evil.example")).by, By::Rule("*.Evil.example".into()));
    assert_eq!(policy.name(&name("other.example")).by, By::Default);
}

#[test]
fn a_rule_is_told_of_with_its_ports() {
    let policy = policy(json!({"egress": [
        {"action": "allow", "target": "db.example", "ports": [5432, 6379]},
        {"action": "deny", "target": "2001:db8::/32", "ports": [22]},
        {"action": "allow", "target": "api.example", "ports": [8443], "methods": ["get"], "paths": ["/a"]},
    ]}));
    let by = |name_text: &str, port| policy.name_at(&name(name_text), port).by;
    assert_eq!(by("db.example", 6379), By::Rule("db.example:5432,6379".into()));
    assert_eq!(by("api.example", 8443), By::Rule("GET api.example:8443/a".into()));
    let denied = policy.address(ip("2001:db8::7"), 22);
    assert_eq!(denied.by, By::Rule("[2001:db8::/32]:22".into()));
}

#[test]
fn a_policy_that_says_nothing_denies() {
    for wire in [json!({}), json!({"defaultAction": ""}), json!({"egress": null})] {
        let policy = policy(wire.clone());
        assert!(!allows(&policy.name(&name("example.com"))), "{wire}");
        assert!(!allows(&policy.address(ip("1.1.1.1"), 443)), "{wire}");
    }
}

#[test]
fn the_operator_speaks_first() {
    let settings = "deny = ['*.bad.example', '1.1.1.0/24']\nallow = ['ok.example', 'x.bad.example', '9.9.9.9']";
    let policy = policy_under(
        settings,
        json!({"egress": [
            {"action": "allow", "target": "*.bad.example"},
            {"action": "deny", "target": "ok.example"},
            {"action": "deny", "target": "9.9.9.0/24"},
            {"action": "allow", "target": "1.1.1.1"},
        ]}),
    );
    assert_eq!(policy.name(&name("x.bad.example")).by, By::Operator("*.bad.example".into()));
    assert!(!allows(&policy.name(&name("x.bad.example"))));
    assert!(allows(&policy.name(&name("ok.example"))));
    assert!(allows(&policy.address(ip("9.9.9.9"), 53)));
    assert!(!allows(&policy.address(ip("9.9.9.8"), 53)));
    assert!(!allows(&policy.address(ip("1.1.1.1"), 53)));
}

#[test]
fn without_a_policy_the_public_internet_is_reached_and_nothing_else() {
    let open = Policy::open(&operator(""));
    assert!(allows(&open.name(&name("example.com"))));
    assert!(allows(&open.resolved(&name("example.com"), ip("1.1.1.1"), 443)));
    assert!(allows(&open.address(ip("1.1.1.1"), 443)));
    assert!(!allows(&open.datagram(ip("1.1.1.1"), 443)));
    for (text, kind) in [
        ("10.1.1.1", Guarded::Private),
        ("169.254.169.254", Guarded::Metadata),
        ("93.184.216.34", Guarded::Host),
        ("::ffff:127.0.0.1", Guarded::Host),
        ("198.18.7.7", Guarded::Special),
        ("fe80::1", Guarded::LinkLocal),
    ] {
        assert_eq!(open.address(ip(text), 80), deny(By::Guard(kind)), "{text}");
        let resolved = open.resolved(&name("rebound.example"), ip(text), 80);
        assert_eq!(resolved, deny(By::Guard(kind)), "{text}");
    }
    let shut = Policy::open(&operator("default = 'deny'\nallow = ['a.example']"));
    assert!(!allows(&shut.name(&name("example.com"))));
    assert!(!allows(&shut.address(ip("1.1.1.1"), 443)));
    assert!(allows(&shut.name(&name("a.example"))));
}

#[test]
fn a_guarded_address_must_be_named_and_a_wide_range_names_none() {
    let wide = policy(json!({"egress": [
        {"action": "allow", "target": "0.0.0.0/0"},
        {"action": "allow", "target": "::/0"},
        {"action": "allow", "target": "a.example"},
    ]}));
    assert!(allows(&wide.address(ip("1.1.1.1"), 443)));
    assert!(allows(&wide.datagram(ip("1.1.1.1"), 443)));
    for text in ["10.1.1.1", "169.254.169.254", "93.184.216.34", "fd00::1", "64:ff9b::a00:1"] {
        assert!(!allows(&wide.address(ip(text), 443)), "{text}");
        assert!(!allows(&wide.datagram(ip(text), 443)), "{text}");
        assert!(!allows(&wide.resolved(&name("a.example"), ip(text), 443)), "{text}");
    }
    let named = policy(json!({"egress": [
        {"action": "deny", "target": "10.9.0.0/16"},
        {"action": "allow", "target": "10.0.0.0/8"},
        {"action": "allow", "target": "169.254.0.0/16"},
        {"action": "allow", "target": "93.184.216.34"},
        {"action": "allow", "target": "a.example"},
    ]}));
    for (text, expected) in [
        ("10.1.1.1", true),
        ("64:ff9b::a01:101", true),
        ("10.9.1.1", false),
        ("10.0.0.5", false), // The host itself is in the range, and not named.
        ("93.184.216.34", true),
        ("169.254.1.1", true),
        ("169.254.169.254", false),
        ("192.168.1.1", false),
    ] {
        assert_eq!(allows(&named.address(ip(text), 443)), expected, "{text}");
        assert_eq!(allows(&named.datagram(ip(text), 443)), expected, "{text}");
        let resolved = named.resolved(&name("a.example"), ip(text), 443);
        assert_eq!(allows(&resolved), expected, "{text}");
    }
}

#[test]
fn a_denied_address_is_not_reached_by_any_name() {
    let policy = policy(json!({"defaultAction": "allow", "egress": [
        {"action": "allow", "target": "a.example"},
        {"action": "deny", "target": "1.2.3.0/24"},
    ]}));
    assert_eq!(
        policy.resolved(&name("a.example"), ip("1.2.3.4"), 443),
        deny(By::Rule("1.2.3.0/24".into()))
    );
    assert!(!allows(&policy.resolved(&name("a.example"), ip("64:ff9b::102:304"), 443)));
    assert!(allows(&policy.resolved(&name("a.example"), ip("1.2.4.4"), 443)));
}

#[test]
fn the_operator_opens_private_names_and_ranges() {
    let settings =
        "allow-private = ['*.corp.example', 'registry.local', '172.16.0.0/12', '127.0.0.1']";
    let open = Policy::open(&operator(settings));
    for (text, address, expected) in [
        ("git.corp.example", "10.1.1.1", true),
        ("corp.example", "10.1.1.1", false),
        ("registry.local", "192.168.1.1", true),
        ("registry.local", "169.254.169.254", false),
        ("registry.local", "10.0.0.5", false),
        ("other.example", "10.1.1.1", false),
        ("other.example", "172.20.1.1", true),
        ("other.example", "127.0.0.1", true),
        ("other.example", "127.0.0.2", false),
    ] {
        let ruling = open.resolved(&name(text), ip(address), 443);
        assert_eq!(allows(&ruling), expected, "{text} at {address}");
    }
    assert!(allows(&open.address(ip("172.20.1.1"), 443)));
    let shut =
        policy_under(settings, json!({"egress": [{"action": "allow", "target": "0.0.0.0/0"}]}));
    assert!(allows(&shut.address(ip("172.20.1.1"), 443)));
    assert!(!allows(&shut.name(&name("git.corp.example"))), "opened is not allowed");
}

#[test]
fn rules_with_ports_speak_of_those_ports() {
    let policy = policy(json!({"egress": [
        {"action": "allow", "target": "db.example", "ports": [5432, 6432]},
        {"action": "deny", "target": "mail.example", "ports": [25]},
        {"action": "allow", "target": "*.example", "ports": [443]},
        {"action": "deny", "target": "none.test", "ports": [80]},
        {"action": "allow", "target": "none.test", "ports": [80]},
        {"action": "allow", "target": "1.1.1.1", "ports": [53]},
    ]}));
    for (text, port, expected) in [
        ("db.example", 5432, true),
        ("db.example", 443, true),
        ("db.example", 22, false),
        ("mail.example", 25, false),
        ("mail.example", 443, true),
    ] {
        assert_eq!(allows(&policy.name_at(&name(text), port)), expected, "{text}:{port}");
        let resolved = policy.resolved(&name(text), ip("1.2.3.4"), port);
        assert_eq!(allows(&resolved), expected, "{text}:{port}");
        assert!(allows(&policy.name(&name(text))), "{text} is reached at some port");
    }
    assert!(!allows(&policy.name(&name("none.test"))), "denied at the only port");
    assert!(allows(&policy.address(ip("1.1.1.1"), 53)));
    assert!(allows(&policy.datagram(ip("1.1.1.1"), 53)));
    assert!(!allows(&policy.address(ip("1.1.1.1"), 443)));
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let compile = |wire: serde_json::Value| {
        Policy::compile(&from_value(wire).unwrap(), &operator("max-rules = 2")).unwrap_err()
    };
    let rule = |target: &str| json!({"action": "allow", "target": target});
    let error = compile(json!({"egress": [rule("a.example"), rule("http://x")]}));
    assert_eq!(
        error.to_string(),
        "rule 2 cannot be about \"http://x\": a target is a host and not a URL: write `example.com`"
    );
    for target in ["127.0.0.1", "127.0.0.0/8", "::1", "198.18.3.0/24", "fd53:0:0:1::/64"] {
        assert!(matches!(compile(json!({"egress": [rule(target)]})), PolicyError::Rule { .. }));
    }
    for ports in [json!([]), json!([0]), json!(vec![1; 65])] {
        let rule = json!({"action": "allow", "target": "a.example", "ports": ports});
        assert!(matches!(
            compile(json!({"egress": [rule]})),
            PolicyError::Rule { problem: BadTarget::Ports, .. }
        ));
    }
    let three = json!({"egress": [rule("a.example"), rule("b.example"), rule("c.example")]});
    assert_eq!(compile(three), PolicyError::TooMany(2));
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    for text in [
        "allow = ['http://x']",
        "deny = ['*']",
        "allow-private = ['1.1.1.0/24']",
        "allow-private = ['0.0.0.0/0']",
        "max-rules = 0",
    ] {
        let raw: RawOperator = toml::from_str(text).unwrap();
        assert!(Operator::new(&raw).is_err(), "{text}");
    }
    assert!(toml::from_str::<RawOperator>("default = 'open'").is_err());
    assert!(toml::from_str::<RawOperator>("allow-privat = []").is_err());
}

/// The same rules, one after the other.
fn naive_name(wire: &NetworkPolicy, name: &Name, port: u16) -> bool {
    let matches = |rule: &&NetworkRule| {
        let about = match Target::parse(&rule.target).unwrap() {
            Target::Name(own) => own == *name,
            Target::Below(domain) => name.as_str().ends_with(&format!(".{domain}")),
            Target::Range(_) => false,
        };
        about && rule.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    };
    let rule = wire.egress.iter().find(matches).map(|rule| rule.action);
    rule.or(wire.default_action).unwrap_or(NetworkAction::Deny) == NetworkAction::Allow
}

fn naive_address(wire: &NetworkPolicy, address: IpAddr, port: u16) -> bool {
    let block = guard::block(address, operator("").host());
    let matches = |rule: &&NetworkRule| {
        let Target::Range(range) = Target::parse(&rule.target).unwrap() else { return false };
        let named = block.is_none_or(|block| block.range.holds(range));
        range.contains(address)
            && rule.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            && (rule.action == NetworkAction::Deny || named)
    };
    match (wire.egress.iter().find(matches), block) {
        (Some(rule), _) => rule.action == NetworkAction::Allow,
        (None, Some(_)) => false,
        (None, None) => wire.default_action == Some(NetworkAction::Allow),
    }
}

fn some_name() -> impl Strategy<Value = String> {
    "([ab]\\.){0,3}[ab]"
}

fn some_address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![Just(1), Just(10), Just(93)].prop_flat_map(|a: u8| {
        (Just(a), 0..2_u8, 0..2_u8, 4..7_u8).prop_map(|(a, b, c, d)| IpAddr::from([a, b, c, d]))
    });
    let v6 = (prop_oneof![Just(0x2606_u16), Just(0xfd00)], 0..4_u16)
        .prop_map(|(a, h)| IpAddr::from([a, 0, 0, 0, 0, 0, 0, h]));
    prop_oneof![v4, v6]
}

fn some_rule() -> impl Strategy<Value = NetworkRule> {
    let target = prop_oneof![
        some_name(),
        some_name().prop_map(|name| format!("*.{name}")),
        (some_address(), 0..=128_u8).prop_map(|(address, length)| {
            let length = if address.is_ipv4() { length / 4 } else { length };
            Range::new(address, length).unwrap().to_string()
        }),
    ];
    let action = prop_oneof![Just(NetworkAction::Allow), Just(NetworkAction::Deny)];
    let ports = proptest::option::weighted(0.3, proptest::collection::vec(1..4_u16, 1..3));
    (action, target, ports).prop_map(|(action, target, ports)| NetworkRule {
        ports,
        ..NetworkRule::new(action, target)
    })
}

fn some_policy() -> impl Strategy<Value = NetworkPolicy> {
    let default = prop_oneof![Just(NetworkAction::Allow), Just(NetworkAction::Deny)];
    (proptest::option::of(default), proptest::collection::vec(some_rule(), 0..12))
        .prop_map(|(default_action, egress)| NetworkPolicy { default_action, egress })
}

proptest! {
    #[test]
    fn names_are_judged_as_one_rule_after_the_other_would(
        wire in some_policy(), text in some_name(), port in 1..4_u16,
    ) {
        let policy = Policy::compile(&wire, &operator("")).unwrap();
        let name = name(&text);
        prop_assert_eq!(allows(&policy.name_at(&name, port)), naive_name(&wire, &name, port));
        // Port 4 is in no rule: it stands for all others.
        let somewhere = (1..=4).any(|port| naive_name(&wire, &name, port));
        prop_assert_eq!(allows(&policy.name(&name)), somewhere);
    }

    #[test]
    fn addresses_are_judged_as_one_rule_after_the_other_would(
        wire in some_policy(), address in some_address(), port in 1..4_u16,
    ) {
        let policy = Policy::compile(&wire, &operator("")).unwrap();
        let expected = naive_address(&wire, address, port);
        prop_assert_eq!(allows(&policy.address(address, port)), expected);
        if allows(&policy.datagram(address, port)) {
            prop_assert!(expected, "datagrams reach no more than streams");
        }
    }

    #[test]
    fn a_merged_policy_says_what_came_in_and_otherwise_what_was(
        wire in some_policy(), incoming in proptest::collection::vec(some_rule(), 1..4),
        text in some_name(), port in 1..4_u16,
    ) {
        let merged = merge(&wire, &incoming);
        let name = name(&text);
        let only = NetworkPolicy { egress: incoming, ..wire.clone() };
        let ordered = NetworkPolicy { egress: merged.egress.clone(), ..wire.clone() };
        let incoming_speaks =
            naive_name(&NetworkPolicy { default_action: Some(NetworkAction::Allow), ..only.clone() }, &name, port)
                == naive_name(&NetworkPolicy { default_action: Some(NetworkAction::Deny), ..only.clone() }, &name, port);
        if incoming_speaks {
            prop_assert_eq!(naive_name(&ordered, &name, port), naive_name(&only, &name, port));
        }
    }

    #[test]
    fn no_text_makes_the_reading_of_targets_fail(text in ".*") {
        drop(Target::parse(&text));
    }
}

#[test]
fn many_rules_are_judged_as_quickly_as_few() {
    let rules: Vec<_> = (0..2048)
        .flat_map(|n| {
            let target = [format!("host-{n}.example"), format!("20.{}.{}.0/24", n / 256, n % 256)];
            target.map(|target| NetworkRule::new(NetworkAction::Allow, target))
        })
        .collect();
    let policy =
        Policy::compile(&NetworkPolicy { default_action: None, egress: rules }, &operator(""))
            .unwrap();
    assert!(allows(&policy.name(&name("host-2047.example"))));
    assert!(!allows(&policy.name(&name("host-2048.example"))));
    assert!(allows(&policy.resolved(&name("host-3.example"), ip("20.7.255.9"), 443)));
    assert!(allows(&policy.address(ip("20.7.255.9"), 443)));
    assert!(!allows(&policy.address(ip("20.8.0.9"), 443)));
}

#[test]
fn rules_about_requests_open_their_ports_and_nothing_else() {
    let policy = policy(json!({"egress": [
        {"action": "deny", "target": "api.example", "methods": ["DELETE"]},
        {"action": "allow", "target": "api.example", "methods": ["GET", "DELETE"], "paths": ["/a/*"]},
        {"action": "allow", "target": "api.example", "ports": [8080], "methods": ["POST"]},
        {"action": "allow", "target": "*.plain.example"},
        {"action": "deny", "target": "x.plain.example", "methods": ["GET"]},
    ]}));
    let api = name("api.example");
    assert!(allows(&policy.name(&api)));
    for (port, open) in [(443, true), (80, true), (8080, true), (22, false), (8443, false)] {
        assert_eq!(allows(&policy.name_at(&api, port)), open, "{port}");
        assert_eq!(policy.looks_into(&api, port).is_some(), open, "{port}");
    }
    for (port, method, path, expected) in [
        (443, "GET", "/a/b", true),
        (443, "GET", "/b", false),
        (443, "DELETE", "/a/b", false),
        (443, "POST", "/a/b", false),
        (8080, "POST", "/b", true),
        (8080, "GET", "/a/b", false),
    ] {
        let request = Readings::new(method, path, &http::HeaderMap::new());
        let ruling = policy.request(&api, port, &request);
        assert_eq!(allows(&ruling), expected, "{method} {path} at {port}");
    }
    // What a rule before them has decided is passed on unseen.
    let plain = name("x.plain.example");
    assert_eq!(policy.looks_into(&plain, 443), None);
    assert!(allows(&policy.name_at(&plain, 443)));
}

#[test]
fn rules_that_deny_some_requests_leave_the_others_to_the_rest() {
    let wire = json!({"defaultAction": "allow", "egress": [
        {"action": "deny", "target": "api.example", "methods": ["POST"]},
    ]});
    let open = policy(wire.clone());
    let api = name("api.example");
    assert!(allows(&open.name(&api)) && allows(&open.name_at(&api, 443)));
    assert_eq!(&*open.looks_into(&api, 443).unwrap(), "POST api.example");
    assert_eq!(open.looks_into(&api, 22), None);
    let allowed_by_all = policy_under("allow = ['api.example']", wire);
    assert_eq!(allowed_by_all.looks_into(&api, 443), None);
    let closed = policy(json!({"egress": [
        {"action": "deny", "target": "api.example", "methods": ["POST"]},
    ]}));
    assert!(!allows(&closed.name(&api)) && !allows(&closed.name_at(&api, 443)));
}

#[test]
fn rules_about_requests_are_about_names() {
    let wire = json!({"egress": [{"action": "allow", "target": "1.1.1.1", "methods": ["GET"]}]});
    let refused = Policy::compile(&from_value(wire).unwrap(), &operator(""));
    assert!(matches!(refused, Err(PolicyError::Rule { problem: BadTarget::Nameless, .. })));
}

#[test]
fn a_path_that_takes_long_to_read_or_is_none_is_doubtful() {
    let is_doubtful =
        |path: &str| Readings::new("GET", path, &http::HeaderMap::new()).is_ambiguous();
    let layers = |count: usize| format!("/%{}41", "25".repeat(count));
    assert!(!is_doubtful(&layers(3)) && !is_doubtful(&format!("/{}", "a".repeat(8000))));
    assert!(is_doubtful(&layers(6)) && is_doubtful(&layers(4000)));
    assert!(is_doubtful(&format!("/{}", "a".repeat(9000))));
    assert!(is_doubtful("*") && is_doubtful("a") && is_doubtful("a.test:443"));
    // Short enough, but not in all the ways in which it can be read.
    assert!(is_doubtful(&format!("/{}", "%252541;b. //".repeat(600))));
}
