use osb_api::execd::languages;

use crate::error::ApiError;

/// A language in which a context can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    JavaScript,
    TypeScript,
    Java,
    Go,
    Bash,
}

impl Language {
    const ALL: [Self; 6] =
        [Self::Python, Self::JavaScript, Self::TypeScript, Self::Java, Self::Go, Self::Bash];

    /// The language of this name.
    pub(super) fn named(name: &str) -> Result<Self, ApiError> {
        let found = Self::ALL.into_iter().find(|language| language.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            let wrong = match name {
                "" => "`language` is missing".to_owned(),
                name => format!("there is no language {name:?}"),
            };
            ApiError::invalid(format!("{wrong}; there are: {known}"))
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => languages::PYTHON,
            Self::JavaScript => languages::JAVASCRIPT,
            Self::TypeScript => languages::TYPESCRIPT,
            Self::Java => languages::JAVA,
            Self::Go => languages::GO,
            Self::Bash => languages::BASH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_known_by_its_name_alone() {
        for language in Language::ALL {
            assert_eq!(Language::named(language.name()).unwrap(), language);
        }
        for name in ["", "Python", "sql", "ruby"] {
            assert!(Language::named(name).is_err(), "{name}");
        }
    }
}
