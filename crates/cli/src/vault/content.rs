//! Files that go into a vault, and what is wrong with those that cannot. No secret is repeated.

use opensandbox::api::egress::{Binding, CreateVaultRequest, Credential, PatchVaultRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What makes a vault.
pub(crate) fn create(text: &str) -> Result<CreateVaultRequest, String> {
    let value = object(text)?;
    if is_patch(&value) {
        return Err("it is a patch, which `osb vault patch` reads".to_owned());
    }
    check(&value, &VAULT)?;
    items::<Credential>("credential", at(&value, "credentials"), credential)?;
    items::<Binding>("binding", at(&value, "bindings"), binding)?;
    read(value)
}

/// What changes one.
pub(crate) fn patch(text: &str) -> Result<PatchVaultRequest, String> {
    let value = object(text)?;
    if at(&value, "credentials").is_array() || at(&value, "bindings").is_array() {
        return Err("a patch has lists to `add`, to `replace` and of names to `delete`, as in \
                    {\"credentials\": {\"replace\": [{\"name\": …, \"source\": …}]}}"
            .to_owned());
    }
    check(&value, &PATCH)?;
    for (what, list) in [("credential", "credentials"), ("binding", "bindings")] {
        let changes = at(&value, list);
        if changes.is_null() {
            continue;
        }
        check(changes, &CHANGES).map_err(|problem| format!("`{list}`: {problem}"))?;
        for list in [at(changes, "add"), at(changes, "replace")] {
            if what == "credential" {
                items::<Credential>(what, list, credential)?;
            } else {
                items::<Binding>(what, list, binding)?;
            }
        }
    }
    read(value)
}

fn object(text: &str) -> Result<Value, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if value.is_object() {
        return Ok(value);
    }
    Err("a vault is an object with credentials and bindings".to_owned())
}

/// A field of an object, which is null if it is not there.
fn at<'a>(value: &'a Value, field: &str) -> &'a Value {
    value.get(field).unwrap_or(&Value::Null)
}

fn is_patch(value: &Value) -> bool {
    ["credentials", "bindings"].iter().any(|list| at(value, list).is_object())
        || !at(value, "expectedRevision").is_null()
}

fn credential(credential: &Value) -> Result<(), String> {
    check(credential, &CREDENTIAL)?;
    let source = at(credential, "source");
    check(source, &SOURCE).map_err(|problem| format!("`source`: {problem}"))?;
    one_of(at(source, "type"), "type", &["inline", "env", "file", "vault", ""])
        .map_err(|problem| format!("`source`: {problem}"))
}

fn binding(binding: &Value) -> Result<(), String> {
    check(binding, &BINDING)?;
    let (requests, auth) = (at(binding, "match"), at(binding, "auth"));
    check(requests, &MATCH).map_err(|problem| format!("`match`: {problem}"))?;
    check_auth(auth).map_err(|problem| format!("`auth`: {problem}"))
}

fn check_auth(auth: &Value) -> Result<(), String> {
    check(auth, &AUTH)?;
    let kinds = ["bearer", "basic", "apiKey", "customHeaders", "passthrough"];
    one_of(at(auth, "type"), "type", &kinds)?;
    for substitution in at(auth, "substitutions").as_array().into_iter().flatten() {
        check(substitution, &SUBSTITUTION)
            .and_then(|()| {
                let mut places = at(substitution, "in").as_array().into_iter().flatten();
                let words = ["path", "query", "header", "body"];
                places.try_for_each(|place| one_of(place, "in", &words))
            })
            .map_err(|problem| format!("`substitutions`: {problem}"))?;
    }
    Ok(())
}

/// Says of every item of a list that cannot be used which one it is, by its name if it has one.
fn items<T: DeserializeOwned>(
    what: &str,
    list: &Value,
    check: impl Fn(&Value) -> Result<(), String>,
) -> Result<(), String> {
    for (number, item) in (1..).zip(list.as_array().into_iter().flatten()) {
        let which = match at(item, "name").as_str() {
            Some(name) => format!("{what} {name:?}"),
            None => format!("{what} {number}"),
        };
        let is_object = if item.is_object() { Ok(()) } else { Err("it is no object".to_owned()) };
        is_object
            .and_then(|()| check(item))
            .and_then(|()| read::<T>(item.clone()).map(drop))
            .map_err(|problem| format!("{which}: {problem}"))?;
    }
    Ok(())
}

fn one_of(value: &Value, field: &str, words: &[&str]) -> Result<(), String> {
    if value.is_null() || value.as_str().is_some_and(|word| words.contains(&word)) {
        return Ok(());
    }
    let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).copied().collect();
    Err(format!("`{field}` is one of {}", words.join(", ")))
}

/// What is left to say after the checks, such as what is missing.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| {
        let problem = error.to_string();
        match problem.strip_prefix("missing field ") {
            Some(field) => format!("{field} is missing"),
            None => unquoted(&problem),
        }
    })
}

/// The problem without the text that it is about, which may be a secret in the wrong place.
fn unquoted(problem: &str) -> String {
    match (problem.find('"'), problem.rfind('"')) {
        (Some(from), Some(to)) if from < to => {
            let (before, after) = (problem.get(..from), problem.get(to + 1..));
            format!("{}…{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => problem.to_owned(),
    }
}

/// A field, of what kind its value is, and an example of it.
type Field = (&'static str, Kind, &'static str);

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Number,
    Object,
    Texts,
    Numbers,
    Objects,
}

impl Kind {
    fn is_that_of(self, value: &Value) -> bool {
        let all = |is: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(is));
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_u64(),
            Self::Object => value.is_object(),
            Self::Texts => all(Value::is_string),
            Self::Numbers => all(Value::is_u64),
            Self::Objects => all(Value::is_object),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "a number",
            Self::Object => "an object",
            Self::Texts => "a list of text",
            Self::Numbers => "a list of numbers",
            Self::Objects => "a list of objects",
        }
    }
}

/// Whether an object has no field that it cannot have, and each of them the right kind.
fn check(value: &Value, fields: &[Field]) -> Result<(), String> {
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some((_, kind, example)) = fields.iter().find(|(field, ..)| field == name) else {
            let known: Vec<_> = fields.iter().map(|(field, ..)| format!("`{field}`")).collect();
            let name: String = name.chars().take(64).collect();
            return Err(format!("there is no field {name:?}, only {}", known.join(", ")));
        };
        if !value.is_null() && !kind.is_that_of(value) {
            return Err(format!("`{name}` is {}, such as {example}", kind.words()));
        }
    }
    Ok(())
}

const VAULT: [Field; 2] = [
    ("credentials", Kind::Objects, r#"[{"name": "github", "source": {"value": "…"}}]"#),
    ("bindings", Kind::Objects, r#"[{"name": …, "match": …, "auth": …}]"#),
];
const PATCH: [Field; 3] = [
    ("expectedRevision", Kind::Number, "1"),
    ("credentials", Kind::Object, r#"{"delete": ["github"]}"#),
    ("bindings", Kind::Object, r#"{"delete": ["github-api"]}"#),
];
const CHANGES: [Field; 3] = [
    ("add", Kind::Objects, r#"[{"name": …}]"#),
    ("replace", Kind::Objects, r#"[{"name": …}]"#),
    ("delete", Kind::Texts, r#"["github"]"#),
];
const CREDENTIAL: [Field; 2] = [
    ("name", Kind::Text, r#""github""#),
    ("source", Kind::Object, r#"{"value": "…"} or {"type": "env", "name": "GITHUB_TOKEN"}"#),
];
const SOURCE: [Field; 5] = [
    ("type", Kind::Text, r#""env""#),
    ("value", Kind::Text, r#""…""#),
    ("name", Kind::Text, r#""GITHUB_TOKEN""#),
    ("path", Kind::Text, r#""secret/data/github""#),
    ("field", Kind::Text, r#""token""#),
];
const BINDING: [Field; 3] = [
    ("name", Kind::Text, r#""github-api""#),
    ("match", Kind::Object, r#"{"hosts": ["api.github.com"]}"#),
    ("auth", Kind::Object, r#"{"type": "bearer", "credential": "github"}"#),
];
const MATCH: [Field; 5] = [
    ("hosts", Kind::Texts, r#"["api.github.com"]"#),
    ("schemes", Kind::Texts, r#"["https"]"#),
    ("methods", Kind::Texts, r#"["GET"]"#),
    ("paths", Kind::Texts, r#"["/repos/*"]"#),
    ("ports", Kind::Numbers, "[443]"),
];
const AUTH: [Field; 5] = [
    ("type", Kind::Text, r#""bearer""#),
    ("credential", Kind::Text, r#""github""#),
    ("name", Kind::Text, r#""X-Api-Key""#),
    ("headers", Kind::Objects, r#"[{"name": "X-Api-Key", "credential": "github"}]"#),
    (
        "substitutions",
        Kind::Objects,
        r#"[{"credential": "github", "placeholder": "__TOKEN__", "in": ["query"]}]"#,
    ),
];
const SUBSTITUTION: [Field; 3] = [
    ("credential", Kind::Text, r#""github""#),
    ("placeholder", Kind::Text, r#""__TOKEN__""#),
    ("in", Kind::Texts, r#"["query"]"#),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_makes_no_vault_says_why() {
        let with = |credential: &str, auth: &str| {
            format!(
                r#"{{"credentials": [{{"name": "gh", "source": {credential}}}], "bindings":
                [{{"name": "api", "match": {{"hosts": ["a.test"]}}, "auth": {auth}}}]}}"#
            )
        };
        let source = r#"{"value": "hunter2"}"#;
        let bearer = r#"{"type": "bearer", "credential": "gh"}"#;
        let substitution = r#"{"type": "passthrough", "substitutions":
            [{"credential": "gh", "placeholder": "hunter2", "in": "query"}]}"#;
        for (text, part) in [
            ("[]".to_owned(), "a vault is an object"),
            ("{'".to_owned(), "it is not JSON"),
            (r#"{"secrets": []}"#.to_owned(), "there is no field \"secrets\", only `credentials`"),
            (r#"{"credentials": {"add": []}}"#.to_owned(), "`osb vault patch` reads"),
            (r#"{"credentials": ["gh"]}"#.to_owned(), "`credentials` is a list of objects"),
            (r#"{"credentials": [{"name": "gh"}]}"#.to_owned(), "\"gh\": `source` is missing"),
            (r#"{"bindings": [{"match": {}}]}"#.to_owned(), "binding 1: `hosts` is missing"),
            (with("\"hunter2\"", bearer), "credential \"gh\": `source` is an object, such as {\"v"),
            (with(r#"{"type": "keychain"}"#, bearer), "`type` is one of inline, env, file, vault"),
            (with(source, r#"{"type": "oauth"}"#), "\"api\": `auth`: `type` is one of bearer, b"),
            (with(source, r#"{"type": "bearer"}"#), "binding \"api\": `credential` is missing"),
            (with(source, substitution), "`in` is a list of text, such as [\"query\"]"),
            (with(source, &substitution.replace("\"query\"", "[\"cookie\"]")), "`in` is one of p"),
        ] {
            let problem = create(&text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        assert!(create("{}").is_ok() && create(&with(source, bearer)).is_ok());
        assert!(create(&with(source, &substitution.replace("\"query\"", "[\"query\"]"))).is_ok());
    }

    #[test]
    fn a_file_that_is_no_patch_says_what_one_has() {
        for (text, part) in [
            (r#"{"credentials": []}"#, "lists to `add`, to `replace`"),
            (r#"{"credentials": {"drop": []}}"#, "`credentials`: there is no field \"drop\""),
            (r#"{"bindings": {"add": [{"name": "x"}]}}"#, "binding \"x\": `match` is missing"),
            (r#"{"expectedRevision": "1"}"#, "`expectedRevision` is a number"),
        ] {
            let problem = patch(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        assert!(patch(r#"{"expectedRevision": 1, "bindings": {"delete": ["a"]}}"#).is_ok());
    }
}
