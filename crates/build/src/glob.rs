//! Patterns for names of files: those of `COPY`, and those of `.dockerignore`.

use crate::problem::Fault;

/// A pattern for a whole path. `*`, `?` and classes such as `[a-z]` stay within one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    /// `?`
    AnyOne,
    /// `*`
    Any,
    /// `**` at the end: whatever is below.
    Everything,
    /// `**/`: any number of directories, or none.
    Directories,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// What two stars mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stars {
    /// The same as one.
    AsOne,
    /// Any number of directories.
    Deep,
}

impl Glob {
    pub(crate) fn new(pattern: &str, stars: Stars) -> Result<Self, Fault> {
        let wrong = |what: &str| Fault::new(format!("the pattern {pattern} {what}"));
        let mut parts = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if stars == Stars::Deep && chars.next_if_eq(&'*').is_some() => {
                    while chars.next_if_eq(&'*').is_some() {}
                    chars.next_if_eq(&'/');
                    if chars.peek().is_none() { Part::Everything } else { Part::Directories }
                }
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::AnyOne,
                '[' => {
                    class(&mut chars).ok_or_else(|| wrong("has a [ that is not closed by a ]"))?
                }
                '\\' => {
                    let c = chars.next().ok_or_else(|| wrong("ends with an escape of nothing"))?;
                    Part::One(c)
                }
                _ => Part::One(c),
            });
        }
        Ok(Self { parts })
    }

    /// Whether any part of it stands for more than itself.
    pub(crate) fn is_wild(pattern: &str) -> bool {
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match c {
                '*' | '?' | '[' => return true,
                '\\' => drop(chars.next()),
                _ => {}
            }
        }
        false
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        // All ways of matching at once: the parts that may come next.
        let mut open = vec![false; self.parts.len() + 1];
        self.open(&mut open, 0);
        for c in path.chars() {
            let mut next = vec![false; open.len()];
            for (at, part) in self.parts.iter().enumerate() {
                if open.get(at) != Some(&true) {
                    continue;
                }
                match part {
                    Part::One(wanted) if *wanted == c => self.open(&mut next, at + 1),
                    Part::AnyOne if c != '/' => self.open(&mut next, at + 1),
                    Part::Any if c != '/' => self.open(&mut next, at),
                    Part::Everything => self.open(&mut next, at),
                    // What follows begins after a slash.
                    Part::Directories => {
                        mark(&mut next, at);
                        if c == '/' {
                            self.open(&mut next, at + 1);
                        }
                    }
                    Part::Class { negated, ranges } if c != '/' => {
                        let is_in = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                        if is_in != *negated {
                            self.open(&mut next, at + 1);
                        }
                    }
                    Part::One(_) | Part::AnyOne | Part::Any | Part::Class { .. } => {}
                }
            }
            open = next;
        }
        open.last() == Some(&true)
    }

    /// Lets the part at `at` come next, and those after it too if it may stand for nothing.
    fn open(&self, open: &mut [bool], at: usize) {
        let mut at = at;
        loop {
            mark(open, at);
            match self.parts.get(at) {
                Some(Part::Any | Part::Everything | Part::Directories) => at += 1,
                _ => return,
            }
        }
    }
}

fn mark(open: &mut [bool], at: usize) {
    if let Some(place) = open.get_mut(at) {
        *place = true;
    }
}

/// The rest of a class, after its `[`.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Part> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let from = match chars.next()? {
            ']' if !ranges.is_empty() => return Some(Part::Class { negated, ranges }),
            '\\' => chars.next()?,
            c => c,
        };
        let to = if chars.next_if_eq(&'-').is_some() {
            match chars.next()? {
                '\\' => chars.next()?,
                ']' => return None,
                c => c,
            }
        } else {
            from
        };
        ranges.push((from, to));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::new(pattern, Stars::Deep).unwrap().matches(path)
    }

    #[test]
    fn stars_and_classes_stay_within_a_name() {
        for (pattern, yes, no) in [
            ("*.go", "a.go", "a/b.go"),
            ("a?c", "abc", "a/c"),
            ("[a-cx]*", "bz", "dz"),
            ("[^a]b", "cb", "ab"),
            ("a/*/c", "a/b/c", "a/b/b/c"),
            ("\\*", "*", "a"),
            ("[\\]]", "]", "a"),
            ("a.b", "a.b", "axb"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn two_stars_stand_for_directories() {
        for (pattern, yes, no) in [
            ("**/x", "x", "ax"),
            ("**/x", "a/b/x", "a/b/ax"),
            ("a/**", "a/b/c", "b/a"),
            ("a/**/b", "a/b", "ab"),
            ("a/**/b", "a/x/y/b", "a/xb"),
            ("**/**/x", "a/x", "xy"),
            ("**/*.md", "README.md", "README.txt"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
        let plain = Glob::new("a/**/b", Stars::AsOne).unwrap();
        assert!(plain.matches("a/x/b") && !plain.matches("a/x/y/b") && !plain.matches("a/b"));
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for pattern in ["[", "[]", "a[b", "a\\", "[a-]"] {
            assert!(Glob::new(pattern, Stars::Deep).is_err(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn a_path_matches_itself(path in "[a-z./]{0,20}") {
            prop_assert!(matches(&path, &path));
            prop_assert!(matches("**", &path));
        }

        #[test]
        fn nothing_takes_forever(pattern in "[ab*?/]{0,40}", path in "[ab/]{0,200}") {
            matches(&pattern, &path);
        }

        /// What the rules say, written down as they are said: slow, and simple enough to be believed.
        #[test]
        fn it_does_what_the_rules_say(pattern in "[ab*?/]{0,7}", path in "[ab/]{0,7}") {
            fn says(pattern: &[u8], path: &[u8]) -> bool {
                match pattern {
                    [] => path.is_empty(),
                    [b'*', b'*', rest @ ..] => {
                        let rest = &rest[rest.iter().take_while(|c| **c == b'*').count()..];
                        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                        if rest.is_empty() {
                            return true;
                        }
                        says(rest, path)
                            || (0..path.len()).any(|n| path[n] == b'/' && says(rest, &path[n + 1..]))
                    }
                    [b'*', rest @ ..] => {
                        let name = path.iter().take_while(|c| **c != b'/').count();
                        (0..=name).any(|n| says(rest, &path[n..]))
                    }
                    [b'?', rest @ ..] => path.first().is_some_and(|c| *c != b'/') && says(rest, &path[1..]),
                    [c, rest @ ..] => path.first() == Some(c) && says(rest, &path[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &path), says(pattern.as_bytes(), path.as_bytes()));
        }
    }
}
