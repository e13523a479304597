//! `$NAME`, `${NAME}` and `~` in paths and variables.

use std::path::{Path, PathBuf};

/// Replaces `$NAME` and `${NAME}`. What `value` does not know stays as it is written.
pub(crate) fn variables(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, tail) = variable_name(after);
        if let Some(value) = name.and_then(&value) {
            out.push_str(&value);
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Splits `NAME…` or `{NAME}…` into the name and what follows.
fn variable_name(text: &str) -> (Option<&str>, &str) {
    if let Some((name, tail)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        return (is_name(name).then_some(name), tail);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, tail) = text.split_at(end);
    (is_name(name).then_some(name), tail)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Replaces a leading `~` by the home directory.
pub(crate) fn home(path: &str, home: &Path) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/root".to_owned()),
            "A_1" => Some("$HOME".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn known_variables_are_replaced_and_all_else_stays() {
        for (text, expected) in [
            ("$HOME/x", "/root/x"),
            ("${HOME}x", "/rootx"),
            ("a$A_1-b", "a$HOME-b"),
            ("$NOBODY/${NOBODY}", "$NOBODY/${NOBODY}"),
            ("price $5, $$, ${, $", "price $5, $$, ${, $"),
            ("${a b}", "${a b}"),
            ("", ""),
        ] {
            assert_eq!(variables(text, value), expected);
        }
    }

    #[test]
    fn only_a_leading_tilde_is_the_home() {
        let home = |path| home(path, Path::new("/root"));
        assert_eq!(home("~"), Path::new("/root"));
        assert_eq!(home("~/a"), Path::new("/root/a"));
        assert_eq!(home("~//a"), Path::new("/root/a"));
        assert_eq!(home("~other"), Path::new("~other"));
        assert_eq!(home("/a/~"), Path::new("/a/~"));
    }
}
