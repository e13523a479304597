//! Policies: what the parts of a decision say fits together, and no path is taken for another one.
#![no_main]

use http::HeaderMap;
use libfuzzer_sys::fuzz_target;
use osb_api::lifecycle::{NetworkAction, NetworkPolicy, NetworkRule};
use osb_egress::{Name, Operator, Policy, Readings, Verdict};

/// `allow a.test GET,PUT /x/*,/y 80,443`, with `-` for what is not said.
fn rule(line: &str) -> Option<NetworkRule> {
    let mut words = line.split(' ');
    let action = match words.next()? {
        "allow" => NetworkAction::Allow,
        "deny" => NetworkAction::Deny,
        _ => return None,
    };
    let target = words.next()?;
    let mut list = || {
        let word = words.next().filter(|word| *word != "-")?;
        Some(word.split(',').map(str::to_owned).collect::<Vec<_>>())
    };
    let (methods, paths) = (list(), list());
    let ports = list().map(|ports| ports.iter().map(|port| port.parse().ok()).collect());
    let ports: Option<Vec<u16>> = ports.map_or(Some(None), |ports: Option<Vec<u16>>| ports.map(Some))?;
    Some(NetworkRule { ports, methods, paths, ..NetworkRule::new(action, target) })
}

/// A path as a server has it that decodes `times` times, drops parameters, and then resolves it.
fn served(path: &str, times: usize) -> Vec<u8> {
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..times {
        bytes = decode(&bytes);
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in bytes.split(|byte| *byte == b'/') {
        let part = part.split(|byte| *byte == b';').next().unwrap_or_default();
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let end = if bytes.ends_with(b"/") && !parts.is_empty() { "/" } else { "" };
    [b"/", parts.join(&b'/').as_slice(), end.as_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|it| str::from_utf8(it).ok());
        let digits = digits.filter(|it| it.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.map(|it| u8::from_str_radix(it, 16)) {
            Some(Ok(byte)) if first == b'%' => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

fn fits(patterns: &[String], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| {
        let (text, is_prefix) = match pattern.strip_suffix('*') {
            Some(text) => (text, true),
            None => (pattern.as_str(), false),
        };
        [text.as_bytes().to_vec(), decode(text.as_bytes())].iter().any(|form| {
            if is_prefix { path.starts_with(form) } else { path == form }
        })
    })
}

fuzz_target!(|data: &[u8]| {
    // Lines of rules; the last one is the question: a name, a port, a method and a path.
    let Ok(text) = str::from_utf8(data) else { return };
    let Some((rules, question)) = text.trim_end_matches('\n').rsplit_once('\n') else { return };
    let (default, rules) = match rules.strip_prefix("open\n") {
        Some(rules) => (NetworkAction::Allow, rules),
        None => (NetworkAction::Deny, rules),
    };
    let egress: Vec<_> = rules.lines().filter_map(rule).collect();
    let wire = NetworkPolicy { default_action: Some(default), egress };
    let json = serde_json::to_string(&wire).expect("a policy is text");
    assert_eq!(serde_json::from_str::<NetworkPolicy>(&json).expect("the same"), wire);
    let Ok(policy) = Policy::compile(&wire, &Operator::default()) else { return };

    let mut words = question.splitn(4, ' ');
    let (Some(name), Some(port)) = (words.next(), words.next()) else { return };
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let (Ok(name), Ok(port)) = (Name::parse(name), port.parse::<u16>()) else { return };
    let request = Readings::new(method, path, &HeaderMap::new());
    let (connect, ask) = (policy.name_at(&name, port), policy.request(&name, port, &request));
    if ask.verdict == Verdict::Allow {
        assert_eq!(connect.verdict, Verdict::Allow, "asked where nobody may connect");
    }
    if connect.verdict == Verdict::Allow {
        assert_eq!(policy.name(&name).verdict, Verdict::Allow, "reached and not resolved");
    }
    if policy.looks_into(&name, port).is_none() {
        assert_eq!(ask, connect, "judged by what nobody looks at");
    }

    // Where only paths are allowed, no server comes to another one.
    let only_paths = wire.egress.iter().all(|rule| {
        rule.action == NetworkAction::Allow && rule.paths.is_some() && path.starts_with('/')
    });
    if default == NetworkAction::Deny && only_paths && ask.verdict == Verdict::Allow {
        for times in [1, 2, 9] {
            let path = served(path, times);
            let known = |rule: &NetworkRule| fits(rule.paths.as_deref().unwrap_or_default(), &path);
            assert!(wire.egress.iter().any(known), "served {:?}", String::from_utf8_lossy(&path));
        }
    }
    // What the first rule denies, no spelling of it passes.
    if let Some(NetworkRule { action: NetworkAction::Deny, methods: None, paths: Some(paths), .. }) =
        wire.egress.first()
        && wire.egress[0].target == name.as_str()
        && wire.egress[0].ports.as_ref().map_or(matches!(port, 80 | 443), |it| it.contains(&port))
        && fits(paths, &served(path, 1))
    {
        assert_eq!(ask.verdict, Verdict::Deny);
    }
});
