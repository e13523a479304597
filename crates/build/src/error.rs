use std::{fmt, sync::Arc};

use crate::{Problem, WorkError, problem::shown};

/// How many of the last lines of a step an error shows.
pub(crate) const LAST_LINES: usize = 20;

/// Why there is no image.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BuildError {
    /// Whoever wrote the Dockerfile, or the files beside it, has to change something.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// A command of the Dockerfile failed.
    #[error(transparent)]
    Command(#[from] Box<Failed>),
    /// Something is wrong here.
    #[error("{file}:{line}: {doing}")]
    Work {
        file: String,
        line: usize,
        doing: String,
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// A command that failed, with the last that it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failed {
    pub file: String,
    pub line: usize,
    /// The instruction.
    pub text: String,
    /// How it ended: its exit code, or what killed it.
    pub how: How,
    pub last_lines: Vec<String>,
    /// What else explains it.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Code(i32),
    Killed(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, text, how, last_lines, notes } = self;
        write!(f, "{file}:{line}: ")?;
        match how {
            How::Code(127) => {
                f.write_str("the command ended with exit code 127: a program was not found")?;
            }
            How::Code(code) => write!(f, "the command ended with exit code {code}")?,
            How::Killed(how) => write!(f, "the command was killed: {how}")?,
        }
        write!(f, "\n{line:>4} | {}", shown(text))?;
        last_lines.iter().try_for_each(|line| write!(f, "\n     > {}", shown(line)))?;
        notes.iter().try_for_each(|note| write!(f, "\n{}", shown(note)))
    }
}

impl BuildError {
    /// What a workshop did not do for the instruction at `line`.
    pub(crate) fn work(file: &str, line: usize, text: &str, error: WorkError) -> Self {
        match error {
            WorkError::Refused(what) => {
                Self::Problem(Problem { file: file.to_owned(), line, text: shown(text), what })
            }
            WorkError::Failed { doing, source } => {
                Self::Work { file: file.to_owned(), line, doing, source: source.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_line_and_the_last_words() {
        let failed = Failed {
            file: "Dockerfile".to_owned(),
            line: 7,
            text: "RUN make".to_owned(),
            how: How::Code(2),
            last_lines: vec!["make: *** no rule".to_owned(), "\u{1b}[31mstop".to_owned()],
            notes: vec!["the network refused: a.test".to_owned()],
        };
        assert_eq!(
            failed.to_string(),
            "Dockerfile:7: the command ended with exit code 2\n   7 | RUN make\n     \
             > make: *** no rule\n     > \u{fffd}[31mstop\nthe network refused: a.test"
        );
    }
}
