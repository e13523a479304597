//! Rules about files as a whole: how long, what name, how they end.

use std::fmt;

use super::Finding;
use crate::checkout::Tracked;

const LONGEST: usize = 800;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["common", "helpers", "manager", "misc", "utils"];

pub(crate) fn check(files: &[Tracked]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.has_extension(&["rs"]) {
            check_length(file, &mut findings);
            check_name(file, &mut findings);
        }
        if file.text().is_some() && !file.content.is_empty() && !file.content.ends_with(b"\n") {
            findings.push(Finding::in_file(&file.path, "the last line has no end"));
        }
    }
    findings
}

fn check_length(file: &Tracked, findings: &mut Vec<Finding>) {
    let lines = lines(file);
    if lines > LONGEST {
        findings.push(Finding::in_file(
            &file.path,
            format!("{lines} lines; split it by noun or verb, at most {LONGEST}"),
        ));
    }
}

fn check_name(file: &Tracked, findings: &mut Vec<Finding>) {
    let mut parts: Vec<&str> = file.path.split('/').collect();
    let stem = parts.pop().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    if stem == "mod" && !file.path.starts_with("tests/") {
        findings.push(Finding::in_file(&file.path, "use foo.rs beside foo/ instead of mod.rs"));
    }
    let in_api = file.path.starts_with("crates/api/");
    for name in parts.into_iter().chain([stem]) {
        if EMPTY_NAMES.contains(&name) || (name == "types" && !in_api) {
            findings.push(Finding::in_file(
                &file.path,
                format!("`{name}` says nothing: name the module after what it holds"),
            ));
        }
    }
}

fn lines(file: &Tracked) -> usize {
    file.text().map_or(0, |text| text.lines().count())
}

/// How long the Rust files are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    files: usize,
    median: usize,
    ninth_decile: usize,
    longest: usize,
}

impl Sizes {
    pub(crate) fn of(files: &[Tracked]) -> Self {
        let mut sizes: Vec<usize> =
            files.iter().filter(|file| file.has_extension(&["rs"])).map(lines).collect();
        sizes.sort_unstable();
        let at = |tenths: usize| {
            sizes.get(sizes.len().saturating_sub(1) * tenths / 10).copied().unwrap_or_default()
        };
        Self { files: sizes.len(), median: at(5), ninth_decile: at(9), longest: at(10) }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, median, ninth_decile, longest } = self;
        write!(
            f,
            "{files} Rust files: median {median} lines, nine in ten up to {ninth_decile}, \
             longest {longest}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, content: &str) -> Vec<String> {
        check(&[Tracked::new(path, content)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_of_the_greatest_length_passes_and_one_line_more_fails() {
        assert!(findings("crates/a/src/lib.rs", &"\n".repeat(LONGEST)).is_empty());
        let long = findings("crates/a/src/lib.rs", &"\n".repeat(LONGEST + 1));
        assert!(long[0].contains("801 lines"), "{long:?}");
        assert!(findings("notes.md", &"\n".repeat(5000)).is_empty());
    }

    #[test]
    fn names_that_say_nothing_fail() {
        for path in [
            "crates/a/src/mod.rs",
            "crates/a/src/utils.rs",
            "crates/a/src/helpers/path.rs",
            "crates/a/src/types.rs",
        ] {
            assert_eq!(findings(path, "\n").len(), 1, "{path}");
        }
        assert!(findings("crates/api/src/lifecycle/types.rs", "\n").is_empty());
        assert!(findings("crates/a/src/lease.rs", "\n").is_empty());
    }

    #[test]
    fn a_last_line_without_end_fails() {
        assert_eq!(findings("README.md", "text").len(), 1);
        assert!(findings("README.md", "text\n").is_empty());
        assert!(findings("empty", "").is_empty());
        assert!(findings("picture.png", "\0\u{1}").is_empty());
    }

    #[test]
    fn sizes_are_those_of_rust_files() {
        let files: Vec<_> = (1..=10)
            .map(|n| Tracked::new(&format!("{n}.rs"), "\n".repeat(n)))
            .chain([Tracked::new("long.md", "\n".repeat(9999))])
            .collect();
        let sizes = Sizes { files: 10, median: 5, ninth_decile: 9, longest: 10 };
        assert_eq!(Sizes::of(&files), sizes);
    }
}
