//! Every sentence about security names a test that tries to make it false, and that test is there.

use super::Finding;
use crate::checkout::Tracked;

const PATH: &str = "SECURITY.md";

pub(crate) fn check(files: &[Tracked]) -> Vec<Finding> {
    let tests = files.iter().filter(|file| file.has_extension(&["py"])).filter_map(Tracked::text);
    let tests: Vec<&str> =
        tests.flat_map(str::lines).filter_map(|line| line.strip_prefix("def ")).collect();
    let is_there = |name: &str| {
        tests.iter().any(|test| test.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
    };
    let text = files.iter().find(|file| file.path == PATH).and_then(Tracked::text);
    let mut findings = Vec::new();
    for (number, line) in text.unwrap_or_default().lines().enumerate() {
        // What is between marks, which every second piece is.
        let named = line.split('`').skip(1).step_by(2).filter(|name| name.starts_with("test_"));
        let missing = named.filter(|name| !name.contains('.') && !is_there(name));
        findings.extend(
            missing.map(|name| Finding::at(PATH, number + 1, format!("there is no test {name}"))),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_whose_test_is_not_there_fails() {
        let files = [
            Tracked::new(PATH, "# Security\n| One. | `test_one` |\n| Two. | `test_two` |\n"),
            Tracked::new(
                "tests/test_it.py",
                "def test_one(sandbox):\n    pass\n\ndef test_two_more():\n",
            ),
        ];
        let found: Vec<_> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["SECURITY.md:3: there is no test test_two"]);
    }
}
