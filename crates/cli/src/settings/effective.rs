//! What holds in the end, and where it comes from.

use std::collections::BTreeMap;

use toml::Value;

use super::{
    manual,
    shape::{Shape, join},
};

/// Settings that are not shown: secrets, and what may hold some.
const HIDDEN: [&str; 3] = ["server.api-key", "egress.deny-webhook", "pool[].env"];
/// What stands in their place.
const STARS: &str = "***";
/// What a reload puts in force. Certificates belong to it as long as there is TLS.
const RELOADED: [&str; 11] = [
    "server.api-key",
    "server.api-key-file",
    "server.max-sandbox-timeout-seconds",
    "server.tls.certificate",
    "server.tls.key",
    "log.level",
    "egress.default",
    "egress.allow",
    "egress.deny",
    "egress.allow-private",
    "egress.max-rules",
];

/// Every value that somebody gave, by its path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Effective(BTreeMap<String, Given>);

#[derive(Debug, Clone, PartialEq)]
struct Given {
    value: Value,
    origin: String,
}

impl Effective {
    /// What a file says, with the line of each setting.
    pub(super) fn of_file(values: &toml::Table, lines: &BTreeMap<String, usize>) -> Self {
        let mut all = Self::default();
        all.take(values, &Shape::of_file(), "", lines);
        all
    }

    fn take(
        &mut self,
        values: &toml::Table,
        shape: &Shape,
        path: &str,
        lines: &BTreeMap<String, usize>,
    ) {
        for (key, value) in values {
            let below = join(path, key);
            match (value, shape.field(key).map(|field| &field.shape)) {
                (Value::Table(table), Some(shape @ Shape::Table(_))) => {
                    self.take(table, shape, &below, lines);
                }
                (value, _) => {
                    let line = lines.get(&below).copied().unwrap_or_default();
                    self.set(&below, value.clone(), format!("line {line}"));
                }
            }
        }
    }

    /// Lets a value win that comes from elsewhere.
    pub(super) fn set(&mut self, path: &str, value: Value, origin: String) {
        self.0.insert(path.to_owned(), Given { value, origin });
    }

    /// Whether anybody gave it.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The settings that differ and that a running server cannot take over.
    pub(crate) fn kept_from(&self, next: &Self) -> Vec<String> {
        let value = |all: &Self, path: &str| all.0.get(path).map(|given| given.value.clone());
        let has_tls = |all: &Self| all.has("server.tls.certificate");
        let mut kept: Vec<String> = self
            .0
            .keys()
            .chain(next.0.keys().filter(|path| !self.has(path)))
            .filter(|path| !RELOADED.contains(&path.as_str()))
            .filter(|path| value(self, path) != value(next, path))
            .cloned()
            .collect();
        if has_tls(self) != has_tls(next) {
            kept.push("server.tls".to_owned());
        }
        kept.sort();
        kept
    }

    /// All settings as TOML, which has no secret: those that hold by default as well, and as comments
    /// those that have no value.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        self.print_table(&Shape::of_file(), "", &mut text);
        text
    }

    fn print_table(&self, shape: &Shape, path: &str, text: &mut String) {
        let (tables, leaves): (Vec<_>, Vec<_>) =
            shape.fields().iter().partition(|field| matches!(field.shape, Shape::Table(_)));
        if !path.is_empty() {
            let is_given = leaves.iter().any(|field| self.line_of(path, field.key).is_some());
            // An optional table that is not there must not be there as an empty one either.
            let comment = if is_given { "" } else { "# " };
            text.extend(["\n", comment, "[", path, "]\n"]);
        }
        for field in leaves {
            let line = self.line_of(path, field.key);
            text.push_str(&line.unwrap_or_else(|| {
                let without = without(&join(path, field.key));
                format!("# {}: {without}\n", field.key)
            }));
        }
        for field in tables {
            self.print_table(&field.shape, &join(path, field.key), text);
        }
    }

    fn line_of(&self, path: &str, key: &str) -> Option<String> {
        let path = join(path, key);
        if let Some(Given { value, origin }) = self.0.get(&path) {
            return Some(format!("{key} = {} # {origin}\n", shown(value, &path)));
        }
        let entry = manual::entries().into_iter().find(|entry| entry.path == path);
        Some(format!("{key} = {} # default\n", entry?.default()?))
    }
}

/// What holds without the setting, in words.
fn without(path: &str) -> String {
    let entry = manual::entries().into_iter().find(|entry| entry.path == path);
    entry.map_or_else(|| "none".to_owned(), |entry| entry.without.replace('`', ""))
}

fn shown(value: &Value, path: &str) -> Value {
    let is_hidden = |path: &str| HIDDEN.contains(&path);
    match value {
        _ if is_hidden(path) => stars(value),
        Value::Array(items) => {
            let item = |value| shown(value, &format!("{path}[]"));
            Value::Array(items.iter().map(item).collect())
        }
        Value::Table(table) => {
            let entry = |(key, value): (&String, _)| (key.clone(), shown(value, &join(path, key)));
            Value::Table(table.iter().map(entry).collect())
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => value.clone(),
    }
}

/// The names of variables are none of the secrets.
fn stars(value: &Value) -> Value {
    if let Value::Table(table) = value {
        Value::Table(table.iter().map(|(key, value)| (key.clone(), stars(value))).collect())
    } else {
        Value::String(STARS.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_like_a_secret_is_hidden() {
        // Names of files and of variables.
        let known = ["server.tls.key", "egress.vault.store.token-env"];
        for path in Shape::of_file().leaves() {
            let name = path.rsplit('.').next().unwrap_or_default();
            let is_secret = ["key", "token", "secret", "password", "webhook"]
                .iter()
                .any(|word| name.split('-').any(|part| part == *word));
            if is_secret && !name.ends_with("-file") && !known.contains(&path.as_str()) {
                assert!(HIDDEN.contains(&path.as_str()), "{path} is printed");
            }
        }
        let known = Shape::of_file().leaves();
        assert!(HIDDEN.iter().chain(&RELOADED).all(|path| known.iter().any(|leaf| leaf == path)));
    }
}
