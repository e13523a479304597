//! `.dockerignore`: which files of a directory are not part of the build.

use crate::{
    glob::{Glob, Stars},
    problem::{Fault, Problem},
};

/// The most that is read of such a file.
const MOST_BYTES: usize = 1 << 20;
const MOST_RULES: usize = 10_000;

/// Rules about paths. The last one that speaks of a path, or of a directory above it, decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    glob: Glob,
    /// `!`: part of the build after all.
    takes_back: bool,
}

impl Ignore {
    /// Reads the content of a file that is called `name`.
    pub fn parse(name: &str, content: &[u8]) -> Result<Self, Problem> {
        let problem = |line, text: &str, what: &str| {
            Problem::new(name, line, text, &Fault::new(what.to_owned()))
        };
        if content.len() > MOST_BYTES {
            return Err(problem(1, "", &format!("it has more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8_lossy(content);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut ignore = Self::default();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            if let Some(rule) =
                rule(line.trim()).map_err(|fault| Problem::new(name, number + 1, line, &fault))?
            {
                ignore.rules.push(rule);
            }
            if ignore.rules.len() > MOST_RULES {
                return Err(problem(
                    number + 1,
                    line,
                    &format!("it has more than {MOST_RULES} rules"),
                ));
            }
        }
        Ok(ignore)
    }

    /// Rules from patterns that stand elsewhere, such as `COPY --exclude`.
    pub(crate) fn of(patterns: &[String]) -> Result<Self, Fault> {
        let mut ignore = Self::default();
        for pattern in patterns {
            ignore.rules.extend(rule(pattern.trim())?);
        }
        Ok(ignore)
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the file or directory at `path`, relative and with slashes, is left out.
    pub fn excludes(&self, path: &str) -> bool {
        let path = path.trim_matches('/');
        if path.is_empty() {
            return false;
        }
        let mut is_out = false;
        for rule in &self.rules {
            // Only a rule that would change something is asked.
            if rule.takes_back == is_out && rule.speaks_of(path) {
                is_out = !rule.takes_back;
            }
        }
        is_out
    }

    /// Whether something in a directory that is left out may be part of the build after all.
    pub fn may_take_back(&self) -> bool {
        self.rules.iter().any(|rule| rule.takes_back)
    }
}

impl Rule {
    fn speaks_of(&self, path: &str) -> bool {
        let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        self.glob.matches(path) || above.into_iter().any(|above| self.glob.matches(above))
    }
}

fn rule(line: &str) -> Result<Option<Rule>, Fault> {
    let (takes_back, pattern) = match line.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, line),
    };
    if pattern.is_empty() {
        let wrong = Fault::new("a ! takes nothing back: write the pattern after it");
        return if takes_back { Err(wrong) } else { Ok(None) };
    }
    let clean = clean(pattern);
    // It would be everything. That it means nothing is how it always was.
    if clean == "." || clean.is_empty() {
        return Ok(None);
    }
    Ok(Some(Rule { glob: Glob::new(&clean, Stars::Deep)?, takes_back }))
}

/// A path without empty parts, `.` and `..`, relative to the context.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ignore(text: &str) -> Ignore {
        Ignore::parse(".dockerignore", text.as_bytes()).unwrap()
    }

    fn check(text: &str, out: &[&str], part: &[&str]) {
        let ignore = ignore(text);
        for path in out {
            assert!(ignore.excludes(path), "{path} should be left out by {text:?}");
        }
        for path in part {
            assert!(!ignore.excludes(path), "{path} should be part of it by {text:?}");
        }
    }

    #[test]
    fn the_last_rule_that_speaks_of_a_path_decides() {
        check("*.md\n!README.md", &["a.md"], &["README.md", "a/b.md"]);
        check("!README.md\n*.md", &["README.md"], &[]);
        check("*.md\n!README*.md\nREADME-secret.md", &["x.md", "README-secret.md"], &["README.md"]);
        check("a\n!a/b", &["a", "a/c", "a/c/b"], &["a/b", "a/b/c"]);
    }

    #[test]
    fn a_rule_about_a_directory_is_about_what_is_in_it() {
        check("a", &["a", "a/b/c"], &["ab", "b/a"]);
        check("/a/", &["a/b"], &["b/a/c"]);
        check("*/temp*", &["x/temporary", "x/temp/y"], &["temp", "x/y/temp"]);
        check("**/node_modules", &["node_modules/x", "a/b/node_modules/c"], &["a/modules"]);
        check("**", &["a", "a/b"], &[]);
    }

    #[test]
    fn comments_blanks_and_odd_ways_of_writing_do_no_harm() {
        check("# a\n\n  b  \r\n./c//d/../e\n", &["b", "c/e"], &["a", "c/d"]);
        check("\u{feff}a", &["a"], &["b"]);
        check(".\n/\n", &[], &["a"]);
        check("*\n! keep", &["a"], &["keep"]);
        assert!(Ignore::parse("i", b"a\n!\n").unwrap_err().to_string().starts_with("i:2: "));
        assert!(Ignore::parse("i", b"[a\n").is_err());
    }

    proptest! {
        #[test]
        fn everything_may_be_left_out_and_taken_back(path in "[a-c]{1,3}(/[a-c]{1,3}){0,3}") {
            prop_assert!(ignore("**").excludes(&path));
            prop_assert!(ignore("*").excludes(&path));
            let taken_back = format!("*\n!{path}");
            prop_assert!(!ignore(&taken_back).excludes(&path));
        }

        /// A rule that is written again at the end has the last word; one about other names has none.
        #[test]
        fn later_rules_win(
            rules in proptest::collection::vec("!?[ab*]{1,3}(/[ab*]{1,2})?", 0..6),
            path in "[ab]{1,3}(/[ab]{1,3}){0,2}",
        ) {
            let text = rules.join("\n");
            let out = format!("{text}\n{path}");
            prop_assert!(ignore(&out).excludes(&path));
            let back = format!("{text}\n!{path}");
            prop_assert!(!ignore(&back).excludes(&path));
            let other = format!("{text}\nzzz\n!yyy");
            prop_assert_eq!(ignore(&other).excludes(&path), ignore(&text).excludes(&path));
        }

        #[test]
        fn what_is_below_goes_with_its_directory(path in "[ab]{1,2}", below in "[ab]{1,2}(/[ab]){0,2}") {
            let ignore = ignore(&path);
            let inner = format!("{path}/{below}");
            prop_assert!(ignore.excludes(&inner));
        }
    }
}
