//! `--chmod`: rights as a number, or as changes such as `u=rwX,go-w`.

use crate::problem::Fault;

/// What becomes of the rights of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chmod {
    To(u32),
    By(Vec<Change>),
}

/// One change, for some of user, group and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// The bits that it is about: 0o700, 0o070, 0o007 and those of the same people further up.
    whom: u32,
    sign: char,
    /// Bits that everybody named gets.
    bits: u32,
    /// `X`: to search directories, and to run what somebody may run already.
    search: bool,
}

impl Chmod {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::new(format!("{text} are no rights: write --chmod=755 or --chmod=u=rwX,go=rX"))
        };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
            return mode.map(Self::To).ok_or_else(wrong);
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            clause_of(clause, &mut changes).ok_or_else(wrong)?;
        }
        Ok(Self::By(changes))
    }

    /// The rights of a file or directory that had `mode`.
    pub(crate) fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        match self {
            Self::To(mode) => *mode,
            Self::By(changes) => changes.iter().fold(mode, |mode, change| {
                let searches = change.search && (is_directory || mode & 0o111 != 0);
                let bits = (change.bits | if searches { 0o111 } else { 0 }) & change.whom;
                match change.sign {
                    '+' => mode | bits,
                    '-' => mode & !bits,
                    _ => (mode & !change.whom) | bits,
                }
            }),
        }
    }
}

fn clause_of(clause: &str, changes: &mut Vec<Change>) -> Option<()> {
    let begin = clause.find(['+', '-', '='])?;
    let (people, mut rest) = clause.split_at_checked(begin)?;
    let mut whom = 0;
    for person in people.chars() {
        whom |= match person {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let whom = if people.is_empty() { 0o7777 } else { whom };
    while !rest.is_empty() {
        let mut chars = rest.chars();
        let sign = chars.next().filter(|sign| "+-=".contains(*sign))?;
        let rights: String = chars.take_while(|c| !"+-=".contains(*c)).collect();
        let mut change = Change { whom, sign, bits: 0, search: false };
        for right in rights.chars() {
            match right {
                'r' => change.bits |= 0o444,
                'w' => change.bits |= 0o222,
                'x' => change.bits |= 0o111,
                'X' => change.search = true,
                's' => change.bits |= 0o6000,
                't' => change.bits |= 0o1000,
                _ => return None,
            }
        }
        // The sticky bit is nobody's in particular.
        if change.bits & 0o1000 != 0 {
            change.whom |= 0o1000;
        }
        changes.push(change);
        rest = rest.get(1 + rights.len()..)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_set_or_changed() {
        for (text, mode, file, directory) in [
            ("755", 0o600, 0o755, 0o755),
            ("0640", 0o777, 0o640, 0o640),
            ("u=rwX,go=rX", 0o600, 0o644, 0o755),
            ("u=rwX,go=rX", 0o700, 0o755, 0o755),
            ("a+x", 0o644, 0o755, 0o755),
            ("+x,g-w", 0o664, 0o755, 0o755),
            ("go-rwx", 0o777, 0o700, 0o700),
            ("u+s", 0o755, 0o4755, 0o4755),
            ("+t", 0o755, 0o1755, 0o1755),
            ("u+r-w", 0o200, 0o400, 0o400),
        ] {
            let chmod = Chmod::parse(text).unwrap();
            assert_eq!(chmod.apply(mode, false), file, "{text} of {mode:o}");
            assert_eq!(chmod.apply(mode, true), directory, "{text} of {mode:o}");
        }
    }

    #[test]
    fn what_are_no_rights_is_refused() {
        for text in ["", "8", "10000", "u", "u=q", "x=r", "u=r,", "777777777777"] {
            assert!(Chmod::parse(text).is_err(), "{text}");
        }
    }
}
