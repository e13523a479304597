//! Interpreters that are started before anybody has a cell for them.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

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

/// Variables by which whoever asks chooses among the versions of an image.
const VERSIONS: [&str; 4] = ["GO_VERSION", "JAVA_VERSION", "NODE_VERSION", "PYTHON_VERSION"];

/// Variables that are never there before an interpreter is, and that none of those reads that are
/// not told of them: which sandbox it is in, and what the entry point of an image makes of a version.
const LATER: [&str; 2] = ["JAVA_HOME", "OPENSANDBOX_ID"];

/// What is known of an interpreter that was started ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) language: Language,
    pub(super) kind: ContextKind,
    /// As it says itself.
    pub(super) version: Option<&'a str>,
}

impl Known<'_> {
    /// Whether it was started with what is as good as `wanted`, or can be told the difference, so that
    /// it is as if it had been started with it. This looks at files.
    pub(super) fn suits(&self, had: &Birth, wanted: &Birth) -> bool {
        let (own, programs): (&[&str], &[&str]) = match (self.language, self.kind) {
            (Language::Python, _) => (&READ_BY_PYTHON, &["python3", "python"]),
            (Language::JavaScript | Language::TypeScript, ContextKind::Builtin) => {
                (&READ_BY_NODE, &["node"])
            }
            // Nobody can tell them anything.
            _ => return had.cwd == wanted.cwd && self.makes_do(had, wanted),
        };
        let is_read =
            |name: &str| READ_BY_ALL.iter().chain(own).any(|begin| name.starts_with(begin));
        differing(had, wanted).all(|name| match name.to_str() {
            Some(env::PATH) => {
                let place = |birth: &Birth| programs.iter().find_map(|name| on_path(name, birth));
                place(had) == place(wanted)
            }
            Some(name) if VERSIONS.contains(&name) => self.is_of(name, wanted),
            Some(name) => LATER.contains(&name) || !is_read(name),
            None => true,
        })
    }

    /// Whether what differs is nothing that those who ask have chosen.
    fn makes_do(&self, had: &Birth, wanted: &Birth) -> bool {
        differing(had, wanted).all(|name| match name.to_str() {
            Some(env::PATH) => goes_on(had.env.get(name), wanted.env.get(name)),
            Some(name) if VERSIONS.contains(&name) => self.is_of(name, wanted),
            Some(name) => LATER.contains(&name),
            None => false,
        })
    }

    /// Whether it is of the version that a variable asks for, if that is its own.
    fn is_of(&self, variable: &str, wanted: &Birth) -> bool {
        let own = match self.language {
            Language::Python => "PYTHON_VERSION",
            Language::JavaScript | Language::TypeScript => "NODE_VERSION",
            Language::Java => "JAVA_VERSION",
            Language::Go => "GO_VERSION",
            Language::Bash => return true,
        };
        // Those that execd starts itself are found by `PATH`.
        if variable != own || self.kind == ContextKind::Builtin {
            return true;
        }
        let asked = wanted.env.get(OsStr::new(variable)).and_then(|asked| asked.to_str());
        let (Some(asked), Some(version)) = (asked, self.version) else { return false };
        let asked = asked.trim_start_matches('v').trim_end_matches(".x");
        let version = version.trim_start_matches("go").trim_start_matches('v');
        let rest = version.strip_prefix(asked);
        !asked.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The names of variables that are not the same in both.
fn differing<'a>(had: &'a Birth, wanted: &'a Birth) -> impl Iterator<Item = &'a OsString> {
    let names = had.env.keys().chain(wanted.env.keys());
    names.filter(|name| had.env.get(*name) != wanted.env.get(*name))
}

/// Where a program is that is started by its name.
fn on_path(name: &str, birth: &Birth) -> Option<PathBuf> {
    let path = birth.env.get(OsStr::new(env::PATH))?;
    let places = std::env::split_paths(path).map(|place| place.join(name));
    places.into_iter().find(|place| place.is_absolute() && place.is_file())
}

/// Whether programs that are found on one path are found in the same place on the other, which then
/// only goes on where the first ends.
fn goes_on(had: Option<&OsString>, wanted: Option<&OsString>) -> bool {
    let (Some(had), Some(wanted)) = (had, wanted) else { return false };
    let rest = wanted.as_encoded_bytes().strip_prefix(had.as_encoded_bytes());
    rest.is_some_and(|rest| rest.starts_with(b":"))
}

#[cfg(test)]
mod tests {
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

    fn known(language: Language, kind: ContextKind) -> Known<'static> {
        Known { language, kind, version: Some("3.11.2") }
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
                ("OPENSANDBOX_ID", "x", true),
                ("NODE_VERSION", "20", true),
                ("PATH", "/usr/bin:/opt/bin", true),
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
                let suits = known(language, ContextKind::Builtin).suits(&had, &with(name, value));
                assert_eq!(suits, suiting, "{language:?} {name}={value}");
            }
        }
        let python = known(Language::Python, ContextKind::Jupyter);
        assert!(python.suits(&had, &birth(&[("PATH", "/usr/bin"), ("HOME", "/root")])));
        for (name, value, suiting) in [
            ("OPENSANDBOX_ID", "x", true),
            ("JAVA_HOME", "/opt/java", true),
            ("PATH", "/usr/bin:/home/me/bin", true),
            ("PATH", "/home/me/bin:/usr/bin", false),
            ("PYTHON_VERSION", "3.12", true),
            ("B", "1", false),
        ] {
            for language in [Language::Go, Language::Java, Language::TypeScript] {
                let suits = known(language, ContextKind::Jupyter).suits(&had, &with(name, value));
                assert_eq!(suits, suiting, "{language:?} {name}={value}");
            }
        }
    }

    #[test]
    fn a_version_that_is_asked_for_is_the_one_that_is_there() {
        let had = birth(&[]);
        let suits = |version, asked| {
            let (language, kind) = (Language::Python, ContextKind::Jupyter);
            Known { language, kind, version }.suits(&had, &birth(&[("PYTHON_VERSION", asked)]))
        };
        for asked in ["3", "3.11", "3.11.2", "3.x"] {
            assert!(suits(Some("3.11.2"), asked), "{asked}");
        }
        for asked in ["", "3.1", "3.12", "3.11.20", "2"] {
            assert!(!suits(Some("3.11.2"), asked), "{asked}");
        }
        assert!(!suits(None, "3.11"));
        let go = Known { version: Some("go1.24.3"), ..known(Language::Go, ContextKind::Jupyter) };
        assert!(go.suits(&had, &birth(&[("GO_VERSION", "1.24")])));
    }

    /// Another language's programs before the others do not make it another interpreter.
    #[test]
    fn a_path_is_the_same_if_the_interpreter_is() {
        let place = tempfile::tempdir().unwrap();
        let bin = |name: &str| place.path().join(name).display().to_string();
        for (directory, program) in [("one", "python3"), ("two", "python3"), ("java", "java")] {
            osb_sys::fs::create_dir_all(bin(directory)).unwrap();
            osb_sys::fs::write(place.path().join(directory).join(program), "").unwrap();
        }
        let (one, two, java) = (bin("one"), bin("two"), bin("java"));
        let suits = |wanted: &str| {
            let had = birth(&[("PATH", &one)]);
            known(Language::Python, ContextKind::Builtin).suits(&had, &birth(&[("PATH", wanted)]))
        };
        assert!(suits(&format!("{java}:{one}")) && suits(&format!("{one}:{two}")));
        assert!(!suits(&format!("{two}:{one}")) && !suits(&java));
    }
}
