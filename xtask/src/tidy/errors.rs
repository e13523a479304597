//! Every error code has a page that says what happened and what to try, and no page is left over.

use super::Finding;
use crate::checkout::Tracked;

const DIRECTORY: &str = "docs/errors/";

pub(crate) fn check(codes: &[&str], files: &[Tracked]) -> Vec<Finding> {
    let wanted: Vec<String> = codes.iter().map(|code| page(code)).collect();
    let missing = wanted
        .iter()
        .filter(|path| !files.iter().any(|file| file.path == **path))
        .map(|path| Finding::in_file(path, "this error code has no page"));
    let left_over = files
        .iter()
        .filter(|file| file.path.starts_with(DIRECTORY) && !file.path.ends_with("/README.md"))
        .filter(|file| !wanted.contains(&file.path))
        .map(|file| Finding::in_file(&file.path, "no error code has this page"));
    missing.chain(left_over).collect()
}

/// Where the page of a code is. File names have no colons: not every file system takes them.
fn page(code: &str) -> String {
    format!("{DIRECTORY}{}.md", code.replace("::", "--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_without_page_and_a_page_without_code_fail() {
        let files = [
            Tracked::new("docs/errors/README.md", "\n"),
            Tracked::new("docs/errors/SANDBOX--TOO_BUSY.md", "\n"),
            Tracked::new("docs/errors/OLD.md", "\n"),
        ];
        let found: Vec<_> = check(&["SANDBOX::TOO_BUSY", "UNKNOWN"], &files)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "docs/errors/UNKNOWN.md: this error code has no page",
                "docs/errors/OLD.md: no error code has this page",
            ]
        );
    }
}
