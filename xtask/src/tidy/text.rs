//! Rules about what lines say.

use super::Finding;
use crate::checkout::Tracked;

/// Directories that exist on one person's machine only. Written in two halves, so that this file
/// passes its own rule.
const PLACES: [&str; 3] = [concat!("/ro", "ot/."), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
/// The same, except in code: there they are places inside a sandbox, which has them too.
const PLACES_IN_PROSE: [&str; 2] = [concat!("/ho", "me/"), concat!("/ro", "ot/")];
const PROMISES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const UNSAFE: &str = concat!("un", "safe");
const SKIPPED_TEST: &str = concat!("#[ign", "ore");

pub(crate) fn check(files: &[Tracked]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some(text) = file.text() else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(message) = complaint(file, line) {
                findings.push(Finding::at(&file.path, number + 1, message));
            }
        }
    }
    findings
}

fn complaint(file: &Tracked, line: &str) -> Option<String> {
    let rust = file.has_extension(&["rs"]);
    let in_prose = PLACES_IN_PROSE.iter().filter(|_| !rust);
    if let Some(place) = PLACES.iter().chain(in_prose).find(|place| names_place(line, place)) {
        return Some(format!("{place} is a place on one machine"));
    }
    if let Some(promise) = PROMISES.iter().find(|promise| lacks_issue(line, promise)) {
        return Some(format!("name the issue: {promise}(#123)"));
    }
    if file.has_extension(&["md", "toml", "yaml", "yml"]) && line.ends_with([' ', '\t']) {
        return Some("blanks at the end of the line".to_owned());
    }
    if rust && !file.path.starts_with("crates/sys/") && is_unsafe(line) {
        return Some(format!("`{UNSAFE}` lives in crates/sys alone"));
    }
    if rust && line.trim_start().starts_with(SKIPPED_TEST) {
        return Some("no test is skipped: let it say what it requires".to_owned());
    }
    None
}

/// Whether `line` has `place` as the beginning of a path, and not within a longer one.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || "_.-}>*~".contains(c))
    })
}

fn lacks_issue(line: &str, promise: &str) -> bool {
    line.match_indices(promise).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line.get(at + promise.len()..).unwrap_or_default();
        let within_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            || after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let issue = after
            .strip_prefix("(#")
            .and_then(|rest| rest.split_once(')'))
            .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        !within_word && !issue
    })
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let opens = code.match_indices(UNSAFE).any(|(at, _)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return false;
        }
        let after = code.get(at + UNSAFE.len()..).unwrap_or_default();
        let next = after.trim_start();
        let keyword = after.starts_with(' ')
            && ["{", "fn ", "impl", "trait ", "extern "].iter().any(|word| next.starts_with(word));
        keyword || after.starts_with('(')
    });
    let allowed = format!("{UNSAFE}_code");
    opens || (code.contains("#!") && code.contains(&allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, line: &str) -> usize {
        check(&[Tracked::new(path, format!("{line}\n"))]).len()
    }

    #[test]
    fn places_on_one_machine_fail() {
        for place in PLACES {
            assert_eq!(findings("a.md", &format!("see {place}x")), 1, "{place}");
            assert_eq!(findings("a.rs", &format!("let p = \"{place}x\";")), 1, "{place}");
            assert_eq!(findings("a.md", &format!("frame{place}x")), 0, "{place}");
        }
        for place in PLACES_IN_PROSE {
            assert_eq!(findings("a.md", &format!("see {place}x")), 1, "{place}");
            assert_eq!(findings("a.rs", &format!("let p = \"{place}x\";")), 0, "{place}");
        }
    }

    #[test]
    fn an_open_end_names_its_issue() {
        let [todo, fixme] = PROMISES;
        assert_eq!(findings("a.rs", &format!("// {todo}: later")), 1);
        assert_eq!(findings("a.py", &format!("# {fixme} (#x)")), 1);
        assert_eq!(findings("a.rs", &format!("// {todo}(#12): later")), 0);
        assert_eq!(findings("a.rs", &format!("let {todo}S = 1;")), 0);
    }

    #[test]
    fn blanks_at_the_end_of_prose_and_data_fail() {
        for path in ["a.md", "a.yaml", "a.toml"] {
            assert_eq!(findings(path, "x "), 1, "{path}");
        }
        assert_eq!(findings("a.txt", "x "), 0);
    }

    #[test]
    fn raw_code_outside_sys_fails() {
        let code = [
            format!("let x = {UNSAFE} {{ y() }};"),
            format!("{UNSAFE} fn f() {{}}"),
            format!("#[{UNSAFE}(no_mangle)]"),
            format!("#![expect({UNSAFE}_code, reason = \"\")]"),
        ];
        for line in &code {
            assert_eq!(findings("crates/a/src/lib.rs", line), 1, "{line}");
            assert_eq!(findings("crates/sys/src/lib.rs", line), 0, "{line}");
        }
        assert_eq!(findings("crates/a/src/lib.rs", &format!("// no {UNSAFE} {{}} here")), 0);
    }

    #[test]
    fn a_skipped_test_fails() {
        assert_eq!(findings("a.rs", &format!("    {SKIPPED_TEST}]")), 1);
    }
}
