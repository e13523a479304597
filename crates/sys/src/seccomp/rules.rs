//! The language in which the lists of system calls are written; `sandbox.calls` explains it.

use std::{collections::BTreeMap, io};

use super::calls;

/// What becomes of each call that is named.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules(pub(super) BTreeMap<u32, Verdict>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// Allowed if the test of an argument holds, and otherwise refused.
    If(u8, Test),
    /// Allowed if one of the arguments has none of the bits, and otherwise refused.
    IfOneLacks([(u8, u32); 2]),
    /// Fails with an error of the system.
    Fail(u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    Is(Vec<u32>),
    IsNot(Vec<u32>),
    Lacks(u32),
}

impl Rules {
    /// Reads a list on top of those that were read before.
    pub(super) fn read(mut self, list: &str) -> io::Result<Self> {
        for line in list.lines() {
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_whitespace().collect();
            self.line(&words).ok_or_else(|| {
                io::Error::other(format!("a list of system calls has the line `{line}`"))
            })?;
        }
        Ok(self)
    }

    fn line(&mut self, words: &[&str]) -> Option<()> {
        let words = match words {
            ["on", architecture, rest @ ..] if *architecture == std::env::consts::ARCH => rest,
            [] | ["on", _, ..] => return Some(()),
            words => words,
        };
        let (verb, names) = words.split_first()?;
        let end = names.iter().position(|word| *word == "if").unwrap_or(names.len());
        let (names, condition) = names.split_at_checked(end)?;
        let verdict = match (*verb, condition) {
            ("allow", []) => Verdict::Allow,
            ("refuse", []) => Verdict::Fail(EPERM),
            ("absent", []) => Verdict::Fail(ENOSYS),
            ("allow", ["if", one, "lacks", bits, "or", other, "lacks", others]) => {
                Verdict::IfOneLacks([
                    (read_argument(one)?, value(bits)?),
                    (read_argument(other)?, value(others)?),
                ])
            }
            ("allow", ["if", argument, test @ ..]) => {
                Verdict::If(read_argument(argument)?, read_test(test)?)
            }
            _ => return None,
        };
        for name in names {
            self.0.insert(calls::number(name)?, verdict.clone());
        }
        Some(())
    }
}

/// How many arguments a call has.
const ARGUMENTS: u8 = 6;

#[expect(clippy::cast_possible_truncation, reason = "the kernel's errors are small numbers")]
pub(super) const EPERM: u16 = libc::EPERM as u16;
#[expect(clippy::cast_possible_truncation, reason = "the kernel's errors are small numbers")]
pub(super) const ENOSYS: u16 = libc::ENOSYS as u16;

fn read_argument(word: &str) -> Option<u8> {
    word.parse().ok().filter(|argument| *argument < ARGUMENTS)
}

fn read_test(words: &[&str]) -> Option<Test> {
    let values = |words: &[&str]| words.iter().map(|word| value(word)).collect::<Option<Vec<_>>>();
    match words {
        ["is", "not", excluded @ ..] => Some(Test::IsNot(values(excluded)?)),
        ["is", wanted @ ..] => Some(Test::Is(values(wanted)?)),
        ["lacks", bits] => Some(Test::Lacks(value(bits)?)),
        _ => None,
    }
}

fn value(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_what_becomes_of_each_call() {
        let list = "allow read write # usual\n\nrefuse bpf\nallow write if 2 is not 0x10 7\n\
                    on riscv64 allow nothing-known-here\nallow socket if 0 lacks 3\n";
        let rules = Rules::default().read(list).unwrap();
        let verdict = |name| rules.0.get(&calls::number(name).unwrap()).cloned();
        assert_eq!(verdict("read"), Some(Verdict::Allow));
        assert_eq!(verdict("write"), Some(Verdict::If(2, Test::IsNot(vec![16, 7]))));
        assert_eq!(verdict("socket"), Some(Verdict::If(0, Test::Lacks(3))));
        assert_eq!(verdict("bpf"), Some(Verdict::Fail(EPERM)));
        assert_eq!(verdict("mount"), None);
    }

    #[test]
    fn a_line_that_means_nothing_is_an_error() {
        for line in [
            "allow reed",
            "permit read",
            "allow read if",
            "allow read if 6 is 0",
            "allow read if 0 is x",
            "allow read if 0 lacks 1 2",
            "refuse read if 0 is 0",
            "absent read if 0 is 0",
            "allow read if 0 lacks 1 or",
            "allow read if 0 lacks 1 or 6 lacks 1",
            "allow read if 0 is 1 or 1 lacks 1",
        ] {
            assert!(Rules::default().read(line).is_err(), "{line}");
        }
    }
}
