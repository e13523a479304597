use std::fmt;

/// How much of a line is shown.
const SHOWN: usize = 160;

/// What is wrong with a Dockerfile: where, the line itself, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The name of the Dockerfile, or of the image whose trigger it is.
    pub file: String,
    /// Counted from one.
    pub line: usize,
    /// The line, as far as it can be shown.
    pub text: String,
    pub what: String,
}

impl Problem {
    pub(crate) fn new(file: &str, line: usize, text: &str, fault: &Fault) -> Self {
        Self { file: file.to_owned(), line, text: shown(text), what: fault.0.clone() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text, what } = self;
        write!(f, "{file}:{line}: {what}")?;
        if text.is_empty() { Ok(()) } else { write!(f, "\n{line:>4} | {text}") }
    }
}

/// Something that Docker takes and that is hardly meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub line: usize,
    pub what: String,
}

/// What is wrong, before anybody has said where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub(crate) String);

impl Fault {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// One line of somebody else's text, so that it can be printed: without what a terminal obeys, and
/// not at any length.
pub(crate) fn shown(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut shown: String = line
        .chars()
        .take(SHOWN)
        .map(|c| if c == '\t' { ' ' } else { c })
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if line.chars().count() > SHOWN {
        shown.push('…');
    }
    shown
}

/// The word among `known` that somebody may have meant by `word`.
pub(crate) fn meant<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let close = |candidate: &&&str| {
        let candidate = candidate.to_ascii_lowercase();
        distance(&word, &candidate) <= 1 + candidate.len() / 4
    };
    known
        .iter()
        .filter(close)
        .min_by_key(|candidate| distance(&word, &candidate.to_ascii_lowercase()))
        .copied()
}

/// How many letters have to be added, taken away, replaced or swapped with their neighbour. Beyond a
/// few it only says that they are many.
fn distance(one: &str, other: &str) -> usize {
    const MANY: usize = 16;
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > MANY {
        return MANY;
    }
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |row: usize, column: usize| {
                rows.get(row).and_then(|row| row.get(column)).copied().unwrap_or(MANY)
            };
            let mut best = at(i, j) + usize::from(a != b);
            best = best.min(at(i, j + 1) + 1).min(row.get(j).copied().unwrap_or(MANY) + 1);
            let swapped =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                best = best.min(at(i - 1, j - 1) + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(MANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_understood() {
        let known = ["ADD", "ARG", "COPY", "ENTRYPOINT", "HEALTHCHECK", "WORKDIR"];
        for (word, wanted) in [
            ("COPPY", "COPY"),
            ("cpoy", "COPY"),
            ("entrypont", "ENTRYPOINT"),
            ("WORKDRI", "WORKDIR"),
            ("HEALTCHEK", "HEALTHCHECK"),
        ] {
            assert_eq!(meant(word, &known), Some(wanted), "{word}");
        }
        assert_eq!(meant("INCLUDE", &known), None);
        assert_eq!(meant(&"x".repeat(10_000), &known), None);
    }

    #[test]
    fn a_line_that_is_shown_moves_no_cursor() {
        let line = shown("RUN \u{1b}[2J\techo\nsecond");
        assert_eq!(line, "RUN \u{fffd}[2J echo");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), SHOWN + 1);
    }
}
