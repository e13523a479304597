//! The programs that make interpreters of an image execute cells.

use super::language::Language;

/// Compiles the rest under a name by which its frames are known.
const PYTHON: &str = "import sys; exec(compile(sys.argv[1], '<execd>', 'exec'))";

/// How an interpreter is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Python,
    Node { typescript: bool },
}

impl Driver {
    /// The one for a language, if there is one.
    pub(super) fn of(language: Language) -> Option<Self> {
        match language {
            Language::Python => Some(Self::Python),
            Language::JavaScript => Some(Self::Node { typescript: false }),
            Language::TypeScript => Some(Self::Node { typescript: true }),
            Language::Java | Language::Go | Language::Bash => None,
        }
    }

    pub(super) fn language(self) -> Language {
        match self {
            Self::Python => Language::Python,
            Self::Node { typescript: false } => Language::JavaScript,
            Self::Node { typescript: true } => Language::TypeScript,
        }
    }

    /// Whether it waits until something that it shows has been passed on.
    pub(super) fn waits(self) -> bool {
        self == Self::Python
    }

    /// What to start, in order of preference.
    pub(super) fn commands(self) -> Vec<Vec<String>> {
        let command = |program: &str| {
            let arguments: &[&str] = match self {
                Self::Python => &[
                    "-c",
                    PYTHON,
                    include_str!("driver/python.py"),
                    include_str!("driver/python_rich.py"),
                ],
                Self::Node { typescript: false } => {
                    &["-e", include_str!("driver/node.js"), "javascript"]
                }
                Self::Node { typescript: true } => {
                    &["-e", include_str!("driver/node.js"), "typescript"]
                }
            };
            [program].iter().chain(arguments).map(|word| (*word).to_owned()).collect()
        };
        self.programs().iter().map(|program| command(program)).collect()
    }

    /// The names of the program that it needs.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["python3", "python"],
            Self::Node { .. } => &["node", "nodejs"],
        }
    }
}
