//! Patterns for names of files.

use std::iter::Peekable;

/// The longest pattern, in characters.
const LONGEST: usize = 1024;

/// How deep groups may be in one another.
const DEEPEST: usize = 16;

/// How long all negations may be together: what is in them is tried from every place.
const LONGEST_NEGATION: usize = 128;

/// A pattern for the name of a file.
///
/// `*` and `**` stand for any characters, `?` for one, `[a-z]` for one of those, `[!a-z]` and
/// `[^a-z]` for one of the others, `{a,b}` for either, `!(a|b)` for anything but either. `\` takes
/// the meaning from what follows it, and `**/` at the beginning is for the directories that a name
/// does not have.
///
/// A match takes time in proportion to the pattern and the name, negations aside: the matcher
/// carries the set of all places in the name that it can have reached, and never goes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(char),
    One,
    Any,
    /// `**/`, which is nothing at the beginning of a name and nowhere else.
    Directories,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    Either(Vec<Vec<Piece>>),
    Not(Vec<Vec<Piece>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("it has more than {LONGEST} characters")]
    TooLong,
    #[error("its negations have more than {LONGEST_NEGATION} characters, or one is in another")]
    Negations,
    #[error("its groups are too deep in one another")]
    TooDeep,
    #[error("`{0}` is not closed")]
    Open(char),
    #[error("nothing follows its last `\\`")]
    Escape,
    #[error("a range in `[…]` ends before it begins")]
    Range,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        if text.chars().count() > LONGEST {
            return Err(PatternError::TooLong);
        }
        let mut parser = Parser { rest: text.chars().peekable(), depth: 0, negated: Some(0) };
        parser.sequence(&[]).map(Self)
    }

    /// Whether the whole name is as the pattern wants it.
    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let mut reached = vec![false; name.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        follow(&self.0, &name, reached).last().is_some_and(|&end| end)
    }
}

/// The places that can be reached from those in `reached` by what the pieces stand for.
fn follow(pieces: &[Piece], name: &[char], mut reached: Vec<bool>) -> Vec<bool> {
    for piece in pieces {
        if !reached.contains(&true) {
            break;
        }
        match piece {
            Piece::Literal(wanted) => step(name, &mut reached, |c| c == *wanted),
            Piece::One => step(name, &mut reached, |_| true),
            Piece::Class { negated, ranges } => step(name, &mut reached, |c| {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }),
            Piece::Any => {
                let first = reached.iter().position(|&place| place).unwrap_or(reached.len());
                reached.iter_mut().skip(first).for_each(|place| *place = true);
            }
            Piece::Directories => reached.iter_mut().skip(1).for_each(|place| *place = false),
            Piece::Either(choices) => reached = either(choices, name, &reached),
            Piece::Not(choices) => {
                let mut all = vec![false; reached.len()];
                for start in (0..reached.len()).filter(|&start| reached.get(start) == Some(&true)) {
                    let mut from = vec![false; reached.len()];
                    from.iter_mut().skip(start).take(1).for_each(|place| *place = true);
                    let refused = either(choices, name, &from);
                    let ends = all.iter_mut().zip(refused).skip(start);
                    ends.for_each(|(place, refused)| *place |= !refused);
                }
                reached = all;
            }
        }
    }
    reached
}

fn either(choices: &[Vec<Piece>], name: &[char], reached: &[bool]) -> Vec<bool> {
    let mut all = vec![false; reached.len()];
    for choice in choices {
        let ends = follow(choice, name, reached.to_vec());
        all.iter_mut().zip(ends).for_each(|(place, end)| *place |= end);
    }
    all
}

/// Moves each place by one character, if it is one that is wanted.
fn step(name: &[char], reached: &mut [bool], wanted: impl Fn(char) -> bool) {
    let mut before = false;
    for (at, place) in reached.iter_mut().enumerate() {
        let here = std::mem::replace(place, before);
        before = here && name.get(at).is_some_and(|&c| wanted(c));
    }
}

struct Parser<'a> {
    rest: Peekable<std::str::Chars<'a>>,
    depth: usize,
    /// How many characters were in negations; none within one.
    negated: Option<usize>,
}

impl Parser<'_> {
    /// Reads up to one of `ends`, which is left, or to the end of the pattern.
    fn sequence(&mut self, ends: &[char]) -> Result<Vec<Piece>, PatternError> {
        let mut pieces = Vec::new();
        while let Some(c) = self.rest.next_if(|c| !ends.contains(c)) {
            let piece = match c {
                '\\' => Piece::Literal(self.rest.next().ok_or(PatternError::Escape)?),
                '?' => Piece::One,
                '*' => self.any(pieces.is_empty()),
                '[' => self.class()?,
                '{' => Piece::Either(self.group(',', '}', '{')?),
                '!' if self.rest.next_if_eq(&'(').is_some() => Piece::Not(self.negation()?),
                other => Piece::Literal(other),
            };
            if piece != Piece::Any || pieces.last() != Some(&Piece::Any) {
                pieces.push(piece);
            }
        }
        Ok(pieces)
    }

    /// Reads the rest of a `*`.
    fn any(&mut self, first: bool) -> Piece {
        let mut stars = 1;
        while self.rest.next_if_eq(&'*').is_some() {
            stars += 1;
        }
        if first && stars == 2 && self.rest.next_if_eq(&'/').is_some() {
            return Piece::Directories;
        }
        Piece::Any
    }

    fn negation(&mut self) -> Result<Vec<Vec<Piece>>, PatternError> {
        let before = self.rest.clone().count();
        let negated = self.negated.take().ok_or(PatternError::Negations)?;
        let choices = self.group('|', ')', '(')?;
        let negated = negated + before - self.rest.clone().count();
        if negated > LONGEST_NEGATION {
            return Err(PatternError::Negations);
        }
        self.negated = Some(negated);
        Ok(choices)
    }

    fn group(
        &mut self,
        between: char,
        end: char,
        begin: char,
    ) -> Result<Vec<Vec<Piece>>, PatternError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(PatternError::TooDeep);
        }
        let mut choices = Vec::new();
        loop {
            choices.push(self.sequence(&[between, end])?);
            match self.rest.next() {
                Some(c) if c == end => break,
                Some(_) => {}
                None => return Err(PatternError::Open(begin)),
            }
        }
        self.depth -= 1;
        Ok(choices)
    }

    fn class(&mut self) -> Result<Piece, PatternError> {
        let negated = self.rest.next_if(|&c| c == '!' || c == '^').is_some();
        let mut ranges = Vec::new();
        loop {
            let first = match self.rest.next().ok_or(PatternError::Open('['))? {
                ']' if !ranges.is_empty() => return Ok(Piece::Class { negated, ranges }),
                c => self.unescaped(c)?,
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
            if !is_range {
                ranges.push((first, first));
                continue;
            }
            self.rest.next();
            let last = self.rest.next().ok_or(PatternError::Open('['))?;
            let last = self.unescaped(last)?;
            if last < first {
                return Err(PatternError::Range);
            }
            ranges.push((first, last));
        }
    }

    fn unescaped(&mut self, c: char) -> Result<char, PatternError> {
        if c == '\\' { self.rest.next().ok_or(PatternError::Escape) } else { Ok(c) }
    }
}

#[cfg(test)]
mod tests;
