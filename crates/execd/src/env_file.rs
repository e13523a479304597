//! The file of assignments that is added to the environment of every command.

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::Path,
};

use osb_sys::{beneath, fs};

use crate::{env, expand};

/// How much may come in place of all `$NAME` together. A short name may have a long value, and with
/// many of them a small file would fill the memory; the kernel takes no more than this anyway.
const ROOM: usize = 2 << 20;

/// Reads the file. One that is not there is made, so that commands can add to it; one that cannot
/// be read or made has no assignments, because commands must run all the same.
pub(crate) fn load(
    path: &Path,
    value: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    match fs::read_small(path) {
        Ok(content) => parse(&String::from_utf8_lossy(&content), value),
        Err(error) => {
            if error.kind() == ErrorKind::NotFound {
                // A file system that is read-only has no such file, and needs none.
                drop(make(path));
            }
            BTreeMap::new()
        }
    }
}

fn make(path: &Path) -> io::Result<()> {
    if path == Path::new(env::DEFAULT_ENV_FILE) {
        // Nobody has asked for it there: neither a link of the image nor a volume gets it.
        return beneath::make_file(Path::new("/"), path);
    }
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, b"")).map_err(io::Error::other)
}

/// Reads `NAME=value` lines. Values may be quoted, and quoted values may span lines: in double
/// quotes with escapes, in single quotes literally. `$NAME` is replaced except in single quotes, as
/// long as there is [`ROOM`].
/// Comments and lines that are not assignments are skipped; the last assignment of a name wins.
pub(crate) fn parse(
    text: &str,
    value: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let room = Cell::new(ROOM);
    let replacement = |name: &str| {
        let value = value(name).unwrap_or_default();
        room.set(room.get().checked_sub(value.len())?);
        Some(value)
    };
    let expanded = |text: &str| expand::variables(text, replacement);
    let mut assigned = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let assignment = line.trim_start();
        let Some((name, _)) = assignment.split_once('=').filter(|_| !assignment.starts_with('#'))
        else {
            rest = after;
            continue;
        };
        let name = name.trim();
        let name = name.strip_prefix("export ").map_or(name, str::trim_start);
        // From the equals sign to the end of the file: a quoted value may go on.
        let from_value = rest.split_once('=').map_or("", |(_, value)| value);
        let from_value = from_value.trim_start_matches([' ', '\t']);
        let quoted = from_value
            .strip_prefix('\'')
            .and_then(|inner| inner.split_once('\''))
            .map(|(literal, after)| (literal.to_owned(), after))
            .or_else(|| {
                let (inner, after) = from_value.strip_prefix('"').and_then(double_quoted)?;
                Some((unescaped(inner, expanded), after))
            });
        let plain = || {
            let value = line.split_once('=').map_or("", |(_, value)| value);
            (expanded(value.trim()), after)
        };
        let (value, tail) = match quoted {
            Some((value, after)) => {
                (value, after.split_once('\n').map_or("", |(_, following)| following))
            }
            None => plain(),
        };
        rest = tail;
        if !name.is_empty() && !name.contains('\0') && !value.contains('\0') {
            assigned.insert(name.to_owned(), value);
        }
    }
    assigned
}

/// Splits at the first quote that is not escaped.
fn double_quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.find(|c| match c {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        c => c == '"',
    })?;
    let (inner, quote) = text.split_at(end);
    Some((inner, quote.strip_prefix('"')?))
}

/// Replaces the escapes, and the variables between them; an escaped character starts no variable.
fn unescaped(text: &str, expanded: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(&expanded(before));
        let mut chars = after.chars();
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(c @ ('\\' | '"' | '$' | '`')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
        rest = chars.as_str();
    }
    out.push_str(&expanded(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let value = |name: &str| (name == "BASE").then(|| "/base".to_owned());
        let expected = expected.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        assert_eq!(parse(text, value), expected, "{text:?}");
    }

    #[test]
    fn plain_values_are_trimmed_and_expanded() {
        check("A=1\n\n# A=2\nnothing\n B = x y \n", &[("A", "1"), ("B", "x y")]);
        check("A=$BASE/bin:${NOBODY}x", &[("A", "/base/bin:x")]);
        check("A=\nA=2", &[("A", "2")]);
        check("A=a=b\r\n", &[("A", "a=b")]);
    }

    #[test]
    fn double_quotes_have_escapes_and_span_lines() {
        check(
            "A=\"a\\n\\t\\\"b\\\" \\\\ $BASE\"\nB=1",
            &[("A", "a\n\t\"b\" \\ /base"), ("B", "1")],
        );
        check("A=\"one\ntwo\"\nB=1", &[("A", "one\ntwo"), ("B", "1")]);
        check("A=\"\\$BASE\"", &[("A", "$BASE")]);
    }

    #[test]
    fn single_quotes_are_literal_and_span_lines() {
        check("A='$BASE \\n\n\"x\"' # why\nB=1", &[("A", "$BASE \\n\n\"x\""), ("B", "1")]);
    }

    #[test]
    fn a_small_file_does_not_grow_without_end() {
        let long = "x".repeat(100_000);
        let size = |text: &str| {
            parse(text, |_| Some(long.clone())).values().map(String::len).sum::<usize>()
        };
        for text in [
            format!("A={}", "$L".repeat(10_000)),
            format!("A=\"{}\"", "$L\\n".repeat(10_000)),
            (0..10_000).map(|n| format!("A{n}=$L")).collect::<Vec<_>>().join("\n"),
        ] {
            let grown = size(&text);
            assert!((ROOM - long.len()..ROOM + text.len()).contains(&grown), "{grown}");
        }
    }

    #[test]
    fn a_quote_that_never_closes_is_plain_text() {
        check("A='x\nB=\"y\nC=z", &[("A", "'x"), ("B", "\"y"), ("C", "z")]);
    }
}
