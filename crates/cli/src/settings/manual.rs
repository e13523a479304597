//! What `docs/settings.md` says of each setting, carried along.

/// The page, which has a table with a row for each setting.
const PAGE: &str = include_str!("../../../../docs/settings.md");

/// What the page says of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// As in [`super::shape::Shape::leaves`].
    pub(super) path: String,
    pub(super) meaning: String,
    /// What holds without it, in words.
    pub(super) without: String,
}

impl Entry {
    /// The value that is the same as none: a literal of TOML with which the words begin.
    pub(super) fn default(&self) -> Option<toml::Value> {
        let literal = self.without.strip_prefix('`')?.split('`').next()?;
        let table: toml::Table = format!("value = {literal}").parse().ok()?;
        table.get("value").cloned()
    }
}

/// Every setting that the page has.
pub(super) fn entries() -> Vec<Entry> {
    let mut table = String::new();
    let mut entries = Vec::new();
    for line in PAGE.lines().skip_while(|line| !line.starts_with("| table |")).skip(2) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [named, keys, meaning, without] = cells.as_slice() else { break };
        if let Some(name) = quoted(named).next() {
            table = path_of(name);
        }
        let mut add = |path: String| {
            entries.push(Entry { path, meaning: plain(meaning), without: (*without).to_owned() });
        };
        // A table whose keys are the operator's is a setting itself.
        if quoted(keys).next().is_none() {
            add(table.clone());
        }
        quoted(keys).for_each(|key| add(format!("{table}.{key}")));
    }
    entries
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// `[a.b]`, `[[a]]` and `[a."NAME"]` as paths.
fn path_of(table: &str) -> String {
    match table.strip_prefix("[[") {
        Some(list) => format!("{}[]", list.trim_end_matches(']')),
        None => table.trim_matches(['[', ']']).replace("\"NAME\"", "*"),
    }
}

/// Text without its links and quotes.
fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, label) = before.rsplit_once('[').unwrap_or((before, ""));
        text.push_str(before);
        text.push_str(label);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::shape::Shape;

    #[test]
    fn the_page_has_every_setting_and_no_other() {
        let mut told: Vec<_> = entries().into_iter().map(|entry| entry.path).collect();
        let mut known = Shape::of_file().leaves();
        told.sort();
        known.sort();
        assert_eq!(told, known, "docs/settings.md on the left, the types on the right");
    }

    #[test]
    fn cells_are_read_as_people_do() {
        assert_eq!(plain("a [link](x.md#y) and `code`, [two](z)"), "a link and code, two");
        let entry = |without: &str| Entry {
            path: String::new(),
            meaning: String::new(),
            without: without.to_owned(),
        };
        assert_eq!(entry("`86400`, a day").default(), Some(toml::Value::Integer(86_400)));
        assert_eq!(entry("`\"deny\"`").default(), Some(toml::Value::String("deny".to_owned())));
        assert_eq!(entry("none").default(), None);
        assert_eq!(entry("`/etc` for some").default(), None);
    }
}
