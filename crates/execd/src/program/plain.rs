//! Command lines that mean the same without a shell.
//!
//! Bash executes a command of plain words in its own place, and needs longer to come to that than
//! many a program to do its work. So such a command is started as bash would start it. Whatever is not
//! certain to come to the same is left to bash, with what it says about mistakes.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use crate::env;

/// The kernel takes no text that is much longer as one argument of a shell.
const LONGEST: usize = 64 << 10;

/// Where an image has its own bash, and where programs are what their names say.
const ORDINARY: [&str; 2] = ["/usr/bin", "/bin"];

/// Commands of bash that do what the programs of these names do, if there are no options.
const ALIKE: [&str; 3] = ["echo", "false", "true"];

/// What bash does not look for among the programs, as far as it can be written in plain characters.
const OWN: &str = ". : alias bg bind break builtin caller case cd command compgen complete compopt \
    continue coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi \
    for function getopts hash help history if in jobs kill let local logout mapfile popd printf \
    pushd pwd read readarray readonly return select set shift shopt source suspend test then time \
    times trap type typeset ulimit umask unalias unset until wait while";

/// Variables that bash obeys, sets anew, or does not pass on as they are.
const OBEYED: &str = "_ DIRSTACK ENV EUID EXECIGNORE FUNCNAME FUNCNEST GLOBIGNORE GROUPS HOSTTYPE IFS \
    LINENO MACHTYPE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS PPID PS0 PS1 PS2 PS4 PWD RANDOM \
    SECONDS SHELLOPTS SHLVL SRANDOM SSH2_CLIENT SSH_CLIENT TMOUT UID";

/// How the names of others begin, and of those about which the loader and the C library may have
/// something to say for each program that starts, bash included.
const OBEYED_KINDS: &str = "BASH COMP EPOCH GLIBC_ HIST LD_ MALLOC_ POSIX READLINE_";

/// A program that bash would become.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain<'text> {
    /// How bash would name it to the kernel: absolute, or from the directory.
    pub(super) path: PathBuf,
    /// Its name and its arguments.
    pub(super) words: Vec<&'text str>,
    /// The working directory, without links.
    pub(super) directory: PathBuf,
}

impl<'text> Plain<'text> {
    /// What bash would become with this text, if that is certain. This looks at files.
    pub(super) fn of(
        text: &'text str,
        variables: &BTreeMap<OsString, OsString>,
        cwd: &Path,
    ) -> Option<Self> {
        let words = words(text)?;
        let name = *words.first()?;
        if variables.iter().any(|(name, value)| is_obeyed(name.as_bytes(), value.as_bytes())) {
            return None;
        }
        let places = variables.get(OsStr::new(env::PATH))?;
        find("bash", places).filter(|bash| is_ordinary(bash))?;
        let path = if name.contains('/') {
            is_program(&cwd.join(name)).ok()?.then(|| PathBuf::from(name))
        } else {
            find(name, places).filter(|path| !ALIKE.contains(&name) || is_ordinary(path))
        };
        Some(Self { path: path?, words, directory: cwd.canonicalize().ok()? })
    }

    /// The variables that bash would add.
    pub(super) fn variables(&self) -> [(OsString, OsString); 3] {
        [
            ("PWD".into(), self.directory.clone().into()),
            // One deeper for bash, and one less for what it becomes.
            ("SHLVL".into(), "0".into()),
            ("_".into(), self.path.clone().into()),
        ]
    }
}

/// The words of a text in which no character and no word means anything to bash.
fn words(text: &str) -> Option<Vec<&str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:,@%+=- \t".contains(&byte);
    if text.len() > LONGEST || !text.bytes().all(is_plain) {
        return None;
    }
    let words: Vec<_> = text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    let (name, arguments) = words.split_first()?;
    // In order: an assignment, options of bash itself, a job.
    let means_something = name.contains('=') || name.starts_with(['-', '+', '%']);
    let is_own = OWN.split(' ').any(|own| own == *name)
        || (ALIKE.contains(name) && arguments.iter().any(|word| word.starts_with('-')));
    (!means_something && !is_own).then_some(words)
}

/// Whether bash might do something because of this variable, or to it.
fn is_obeyed(name: &[u8], value: &[u8]) -> bool {
    OBEYED.split(' ').any(|obeyed| obeyed.as_bytes() == name)
        || OBEYED_KINDS.split(' ').any(|kind| name.starts_with(kind.as_bytes()))
        // It complains about a language that is not there, and of these alone it is certain.
        || (name == b"LC_ALL" && ![&b""[..], b"C", b"POSIX"].contains(&value))
        // Old ones take it for a function.
        || value.starts_with(b"()")
}

/// The first file of this name in the directories that `places` lists, if bash would find the same.
fn find(name: &str, places: &OsStr) -> Option<PathBuf> {
    for directory in std::env::split_paths(places) {
        if !directory.is_absolute() {
            return None;
        }
        let path = directory.join(name);
        match is_program(&path) {
            Ok(is_program) => return is_program.then_some(path),
            Err(error) if is_absent(&error) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Whether everybody may execute it. For whom that is not enough, the kernel decides later.
fn is_program(path: &Path) -> io::Result<bool> {
    path.metadata().map(|found| found.is_file() && found.mode() & 0o111 == 0o111)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_ordinary(path: &Path) -> bool {
    ORDINARY.iter().any(|place| path.parent() == Some(Path::new(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/nowhere:/usr/bin:/bin";

    fn with<'text>(text: &'text str, name: &str, value: &str) -> Option<Plain<'text>> {
        let variables = [(env::PATH, PATH), (name, value)];
        let variables = variables.map(|(name, value)| (name.into(), value.into())).into();
        Plain::of(text, &variables, Path::new("/usr/bin/.."))
    }

    fn is_plain(text: &str) -> bool {
        with(text, "HOME", "/root").is_some()
    }

    #[test]
    fn words_are_what_stands_between_blanks() {
        assert_eq!(words("ls"), Some(vec!["ls"]));
        assert_eq!(
            words("\t ls  -l\t/a:b,c@d%e+f=g_1.h "),
            Some(vec!["ls", "-l", "/a:b,c@d%e+f=g_1.h"])
        );
        assert_eq!(words("echo a=b"), Some(vec!["echo", "a=b"]));
    }

    #[test]
    fn whatever_means_something_to_a_shell_is_left_to_it() {
        for text in
            ["", " ", "a=b", "a=b ls", "a+=b", "-l ls", "+x", "%1", "ls\n", "ls\r", "é", "\0"]
        {
            assert_eq!(words(text), None, "{text:?}");
        }
        for byte in "!\"#$&'()*;<>?[\\]^`{|}~\n\x7f".chars() {
            for text in [format!("ls {byte}"), format!("ls a{byte}b"), format!("{byte} ls")] {
                assert_eq!(words(&text), None, "{text:?}");
            }
        }
        assert_eq!(words(&"a".repeat(LONGEST + 1)), None);
    }

    #[test]
    fn commands_of_the_shell_are_left_to_it() {
        for name in OWN.split(' ') {
            assert_eq!(words(&format!("{name} a")), None, "{name}");
        }
        assert_eq!(words("echo -n a"), None);
        assert_eq!(words("true --help"), None);
        assert_eq!(words("echo a"), Some(vec!["echo", "a"]));
    }

    #[test]
    fn a_program_is_named_as_bash_would() {
        let found = with("env a", "HOME", "/root").unwrap();
        assert_eq!((found.path, found.directory), ("/usr/bin/env".into(), "/usr".into()));
        let found = with("bin/env a", "HOME", "/root").unwrap();
        assert_eq!((found.path, found.words), ("bin/env".into(), vec!["bin/env", "a"]));
    }

    #[test]
    fn what_is_no_program_is_left_to_the_shell() {
        for text in ["no-such-program-here", "/etc/passwd", "/usr", "./bin", "/etc/passwd/x"] {
            assert!(!is_plain(text), "{text}");
        }
    }

    #[test]
    fn variables_that_bash_knows_are_left_to_it() {
        assert!(with("env", "LC_ALL", "C").is_some());
        assert!(with("env", "LC_CTYPE", "C.UTF-8").is_some());
        let kinds = OBEYED_KINDS.split(' ').map(|kind| format!("{kind}X"));
        for name in OBEYED.split(' ').map(str::to_owned).chain(kinds) {
            assert_eq!(with("env", &name, "1"), None, "{name}");
        }
        assert_eq!(with("env", "LC_ALL", "xx_YY"), None);
        assert_eq!(with("env", "X", "() { :; }"), None);
    }

    #[test]
    fn a_path_that_is_not_absolute_throughout_is_left_to_the_shell() {
        for path in ["", "bin:/usr/bin:/bin", ":/usr/bin:/bin", "~/bin:/usr/bin", "/nowhere"] {
            assert_eq!(with("env", env::PATH, path), None, "{path}");
        }
        assert!(with("env", env::PATH, "/usr/bin/").is_some());
    }
}
