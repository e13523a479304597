//! Interpreters that are started before anybody has a cell for them.

use std::ffi::{OsStr, OsString};

use osb_api::execd::ContextKind;
use osb_core::agent::CodeAhead;

use super::language::Language;
use crate::{driven::Birth, env, environment::Environment};

/// What is started ahead. What cannot be is left to whoever asks for it, and told to them.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(super) languages: Vec<Language>,
    /// Modules of Python.
    pub(super) imports: Vec<String>,
}

impl Ahead {
    /// What the runtime asks for.
    pub(crate) fn asked(code: &CodeAhead) -> Self {
        Self::of(code.languages.iter().map(String::as_str), code.imports.iter().map(String::as_str))
    }

    /// What the variables of the sandbox ask for.
    pub(crate) fn said_in(environment: &Environment) -> Self {
        let said = |name| {
            let value = environment.base().get(OsStr::new(name));
            value.and_then(|value| value.to_str()).unwrap_or_default()
        };
        Self::of(said(env::CODE_AHEAD).split(','), said(env::CODE_IMPORTS).split(','))
    }

    fn of<'a>(
        languages: impl Iterator<Item = &'a str>,
        imports: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut known: Vec<Language> = Vec::new();
        for language in languages.filter_map(|name| Language::named(name.trim()).ok()) {
            // A shell is there in a moment.
            if language != Language::Bash && !known.contains(&language) {
                known.push(language);
            }
        }
        let imports = imports.map(str::trim).filter(|name| !name.is_empty());
        Self { languages: known, imports: imports.map(str::to_owned).collect() }
    }
}

/// Variables that are read when a program starts, by how their names begin: by the C library, or by
/// execd for it.
const READ_BY_ALL: [&str; 12] = [
    env::CODE_KIND,
    env::ON_DISCONNECT,
    "CONDA_",
    "GLIBC_",
    "HOME",
    "JUPYTER",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "VIRTUAL_ENV",
    "XDG_",
];

/// Those that Python reads, or modules when they are imported.
const READ_BY_PYTHON: [&str; 10] =
    ["BLIS_", "IPYTHON", "MKL_", "MPL", "NUMEXPR_", "OMP_", "OPENBLAS_", "PYTHON", "TZ", "VECLIB_"];

/// Those that Node reads.
const READ_BY_NODE: [&str; 4] = ["NODE", "SSL_", "TZ", "UV_"];

/// Whether an interpreter that was started with `had` can be told that it has `wanted`, so that it is
/// as if it had been started with it.
pub(super) fn suits(language: Language, kind: ContextKind, had: &Birth, wanted: &Birth) -> bool {
    let own: &[&str] = match (language, kind) {
        (Language::Python, _) => &READ_BY_PYTHON,
        (Language::JavaScript | Language::TypeScript, ContextKind::Builtin) => &READ_BY_NODE,
        // Nobody can tell them.
        _ => return had == wanted,
    };
    let is_read = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        READ_BY_ALL.iter().chain(own).any(|begin| name.starts_with(begin.as_bytes()))
    };
    let names = had.env.keys().chain(wanted.env.keys());
    let mut differing = names.filter(|name| had.env.get(*name) != wanted.env.get(*name));
    differing.all(|name| match name.to_str() {
        Some(env::PATH) => finds_the_same(had.env.get(name), wanted.env.get(name)),
        _ => !is_read(name),
    })
}

/// Whether programs that are found on one path are found in the same place on the other, which then
/// only goes on where the first ends.
fn finds_the_same(had: Option<&OsString>, wanted: Option<&OsString>) -> bool {
    let (Some(had), Some(wanted)) = (had, wanted) else { return false };
    let rest = wanted.as_encoded_bytes().strip_prefix(had.as_encoded_bytes());
    rest.is_some_and(|rest| rest.starts_with(b":"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn birth(variables: &[(&str, &str)]) -> Birth {
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Birth { cwd: PathBuf::from("/"), env }
    }

    #[test]
    fn languages_are_named_once_and_the_unknown_ignored() {
        let ahead =
            Ahead::of("python, typescript,sql,,bash,python".split(','), "numpy, ".split(','));
        assert_eq!(ahead.languages, [Language::Python, Language::TypeScript]);
        assert_eq!(ahead.imports, ["numpy"]);
    }

    #[test]
    fn what_is_read_at_the_start_cannot_be_told_later() {
        let had = birth(&[("PATH", "/usr/bin"), ("HOME", "/root"), ("A", "1")]);
        let with = |name: &str, value: &str| {
            let mut wanted = had.clone();
            wanted.env.insert(name.into(), value.into());
            wanted
        };
        for language in [Language::Python, Language::JavaScript, Language::TypeScript] {
            for (name, value, suiting) in [
                ("A", "2", true),
                ("B", "1", true),
                ("PATH", "/usr/bin:/opt/bin", true),
                ("PATH", "/opt/bin:/usr/bin", false),
                ("PATH", "/usr/bin2", false),
                ("HOME", "/srv", false),
                ("HOME", "/root", true),
                ("LD_PRELOAD", "/x.so", false),
                ("LC_ALL", "C", false),
                ("EXECD_ON_DISCONNECT", "continue", false),
                ("EXECD_CODE_AHEAD", "python", true),
                ("PYTHONPATH", "/x", language != Language::Python),
                ("NODE_OPTIONS", "--x", language == Language::Python),
                ("NODE_EXTRA_CA_CERTS", "/x", language == Language::Python),
            ] {
                let wanted = with(name, value);
                assert_eq!(
                    suits(language, ContextKind::Builtin, &had, &wanted),
                    suiting,
                    "{language:?} {name}={value}"
                );
            }
        }
        let suits_kernel = |language, wanted| suits(language, ContextKind::Jupyter, &had, &wanted);
        let python = Language::Python;
        assert!(suits_kernel(python, birth(&[("PATH", "/usr/bin"), ("HOME", "/root")])));
        assert!(!suits_kernel(python, birth(&[("A", "1"), ("HOME", "/root")])));
        for language in [Language::Go, Language::TypeScript] {
            assert!(suits_kernel(language, had.clone()) && !suits_kernel(language, with("B", "1")));
        }
    }
}
