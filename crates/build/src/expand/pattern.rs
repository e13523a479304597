//! Patterns within substitutions: `*` for anything, `?` for one character.

use crate::problem::Fault;

/// How much work one substitution may be: a pattern of many stars against a long value is the
/// product of both.
const MOST_STEPS: usize = 20_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    One(char),
    AnyOne,
    Any,
}

impl Pattern {
    pub(super) fn new(text: &str, escape: char) -> Result<Self, Fault> {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::AnyOne,
                _ if c == escape => Part::One(chars.next().ok_or_else(|| {
                    Fault::new(format!("the pattern {text} ends with an escape of nothing"))
                })?),
                _ => Part::One(c),
            });
        }
        Ok(Self(parts))
    }

    pub(super) fn without_prefix<'v>(
        &self,
        value: &'v str,
        longest: bool,
    ) -> Result<&'v str, Fault> {
        let mut steps = 0;
        let ends = value.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
        let cut = matched(&self.0, ends, longest, &mut steps)?;
        Ok(cut.and_then(|cut| value.get(cut..)).unwrap_or(value))
    }

    pub(super) fn without_suffix<'v>(
        &self,
        value: &'v str,
        longest: bool,
    ) -> Result<&'v str, Fault> {
        let backwards: Vec<Part> = self.0.iter().rev().copied().collect();
        let mut steps = 0;
        let length = value.len();
        let ends = value.char_indices().rev().map(|(at, c)| (length - at, c));
        let cut = matched(&backwards, ends, longest, &mut steps)?;
        Ok(cut.and_then(|cut| value.get(..length - cut)).unwrap_or(value))
    }

    /// Replaces the first part that matches, or all of them; each is taken as long as it can be.
    pub(super) fn replace(&self, value: &str, with: &str, all: bool) -> Result<String, Fault> {
        let mut replaced = String::new();
        let mut rest = value;
        let mut steps = 0;
        let mut is_done = self.0.is_empty();
        while let Some(first) = rest.chars().next() {
            let ends = rest.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
            let found = if is_done { None } else { matched(&self.0, ends, true, &mut steps)? };
            if let Some(length) = found.filter(|length| *length > 0) {
                replaced.push_str(with);
                if replaced.len() > super::LONGEST {
                    break;
                }
                rest = rest.get(length..).unwrap_or_default();
                is_done = !all;
            } else {
                replaced.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
        Ok(replaced)
    }
}

/// How much of a text, from its beginning, the parts match: as much or as little as they can. Each
/// character comes with the length of the text up to its end.
fn matched(
    parts: &[Part],
    ends: impl Iterator<Item = (usize, char)>,
    longest: bool,
    steps: &mut usize,
) -> Result<Option<usize>, Fault> {
    // Which parts may come next, all ways of matching at once.
    let mut open = vec![false; parts.len() + 1];
    open_at(parts, &mut open, 0);
    let is_whole = |open: &[bool]| open.last().copied().unwrap_or_default();
    let mut found = is_whole(&open).then_some(0);
    if found.is_some() && !longest {
        return Ok(found);
    }
    for (end, c) in ends {
        *steps += parts.len() + 1;
        if *steps > MOST_STEPS {
            return Err(Fault::new("a pattern takes too long to be matched: make it simpler"));
        }
        let mut next = vec![false; parts.len() + 1];
        for (at, part) in parts.iter().enumerate().filter(|(at, _)| open.get(*at) == Some(&true)) {
            match part {
                Part::Any => open_at(parts, &mut next, at),
                Part::AnyOne => open_at(parts, &mut next, at + 1),
                Part::One(wanted) if *wanted == c => open_at(parts, &mut next, at + 1),
                Part::One(_) => {}
            }
        }
        if !next.contains(&true) {
            break;
        }
        open = next;
        if is_whole(&open) {
            found = Some(end);
            if !longest {
                break;
            }
        }
    }
    Ok(found)
}

fn open_at(parts: &[Part], open: &mut [bool], at: usize) {
    if let Some(place) = open.get_mut(at) {
        *place = true;
    }
    // What stands for anything also stands for nothing. There are never two in a row.
    if parts.get(at) == Some(&Part::Any)
        && let Some(place) = open.get_mut(at + 1)
    {
        *place = true;
    }
}
