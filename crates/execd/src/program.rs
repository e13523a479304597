mod plain;

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    io,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use osb_core::Chain;
use osb_sys::{
    identity::Identity,
    spawn::{self, SpawnError, Streams},
};
use rustix::{
    fs::{Mode, OFlags, open},
    process::Pid,
};

use crate::{
    env,
    reaper::{Exited, Reaper},
};
use plain::Plain;

/// The most of a command that is remembered to tell what was asked.
const CONTENT: usize = 4 << 10;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Program {
    /// Text for bash, or for sh where there is no bash; what is [`plain`] needs neither.
    Shell(String),
    /// A program and its arguments.
    Argv(Vec<String>),
}

/// A program and what it starts with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: Program,
    pub(crate) cwd: PathBuf,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) identity: Option<Identity>,
}

impl Launch {
    /// Starts the program as the leader of a session. This waits for it to be read, so it is for a
    /// thread that may wait.
    pub(crate) fn start(
        self,
        reaper: &Reaper,
        streams: Streams<'_>,
    ) -> Result<(Pid, Exited), NotStarted> {
        let asked = self.program.clone();
        if let Some(program) = self.without_shell()? {
            match reaper.start(&program, streams) {
                // The shell knows what to do with it, or what to say.
                Err(SpawnError::Execute(_)) => {}
                started => return started.map_err(|error| asked.explain(&error)),
            }
        }
        let program = self.prepare()?;
        reaper.start(&program, streams).map_err(|error| asked.explain(&error))
    }

    /// What a shell would become, if it is certain what that is.
    fn without_shell(&self) -> io::Result<Option<spawn::Program>> {
        let Program::Shell(text) = &self.program else { return Ok(None) };
        let Some(plain) = Plain::of(text, &self.env, &self.cwd) else { return Ok(None) };
        let mut env = self.env.clone();
        env.extend(plain.variables());
        let mut words = plain.words.into_iter().map(CString::new);
        let name = words.next().ok_or(io::ErrorKind::InvalidInput)??;
        Ok(Some(spawn::Program {
            candidates: vec![spawn::Candidate { path: c_path(plain.path)?, name }],
            arguments: words.collect::<Result<_, _>>()?,
            variables: variables(env)?,
            directory: c_path(plain.directory)?,
            identity: self.identity.clone(),
        }))
    }

    /// Nothing is looked at here before it is executed.
    fn prepare(self) -> io::Result<spawn::Program> {
        let Self { program, cwd, env, identity } = self;
        let path = env.get(OsStr::new(env::PATH)).map(OsString::as_os_str);
        let path = path.unwrap_or_else(|| OsStr::new(env::DEFAULT_PATH));
        let (candidates, arguments) = match program {
            Program::Shell(text) => {
                let shells = ["bash", "sh"].iter();
                let places = shells.flat_map(|name| candidates(name, path, &cwd));
                (places.collect::<io::Result<_>>()?, vec![c"-c".to_owned(), CString::new(text)?])
            }
            Program::Argv(argv) => {
                let mut arguments = argv.into_iter();
                let name = arguments.next().ok_or(io::ErrorKind::InvalidInput)?;
                let places = candidates(&name, path, &cwd).collect::<io::Result<_>>()?;
                (places, arguments.map(CString::new).collect::<Result<_, _>>()?)
            }
        };
        Ok(spawn::Program {
            candidates,
            arguments,
            variables: variables(env)?,
            directory: c_path(cwd)?,
            identity,
        })
    }
}

/// As the kernel takes them.
fn variables(env: BTreeMap<OsString, OsString>) -> io::Result<Vec<CString>> {
    let variable = |(name, value): (OsString, OsString)| {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend_from_slice(value.as_bytes());
        Ok(CString::new(variable)?)
    };
    env.into_iter().map(variable).collect()
}

fn c_path(path: PathBuf) -> io::Result<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}

/// Why a program did not start, in words for whoever asked for it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NotStarted {
    message: String,
    pub(crate) kind: io::ErrorKind,
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self { message: error.to_string(), kind: error.kind() }
    }
}

impl Program {
    fn explain(&self, error: &SpawnError) -> NotStarted {
        let SpawnError::Execute(source) = error else {
            return NotStarted { message: Chain(error).to_string(), kind: error.kind() };
        };
        let missing = source.kind() == io::ErrorKind::NotFound;
        let message = match self {
            Self::Shell(_) if missing => "there is neither bash nor sh in $PATH: \
                send `argv` to run a program without a shell"
                .to_owned(),
            Self::Shell(_) => format!("cannot execute the shell: {source}"),
            Self::Argv(argv) => {
                let name = argv.first().map(String::as_str).unwrap_or_default();
                if missing && !name.contains('/') {
                    format!("{name}: executable file not found in $PATH")
                } else {
                    format!("{name}: {source}")
                }
            }
        };
        NotStarted { message, kind: source.kind() }
    }

    /// The program as a person would type it, at most [`CONTENT`] bytes of it.
    pub(crate) fn content(&self) -> String {
        let mut content = match self {
            Self::Shell(text) => text.clone(),
            Self::Argv(argv) => argv.join(" "),
        };
        if content.len() > CONTENT {
            content.truncate(content.floor_char_boundary(CONTENT));
            content.push('…');
        }
        content
    }
}

/// Where a program of this name may be: a name with a slash is a path from `cwd`; any other is in
/// one of the absolute directories of `path`.
fn candidates(
    name: &str,
    path: &OsStr,
    cwd: &Path,
) -> impl Iterator<Item = io::Result<spawn::Candidate>> {
    let own = name.contains('/').then(|| cwd.join(name));
    let directories = std::env::split_paths(if own.is_some() { OsStr::new("") } else { path });
    let found = directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .collect::<Vec<_>>();
    let name = name.to_owned();
    own.into_iter().chain(found).map(move |path| {
        Ok(spawn::Candidate { path: c_path(path)?, name: CString::new(name.as_str())? })
    })
}

/// What a program reads from that is to read nothing.
pub(crate) fn nothing() -> io::Result<OwnedFd> {
    // Not waiting for anybody, should somebody have put a pipe in its place.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = open("/dev/null", flags, Mode::empty());
    // Where there is no such device, a pipe without a writer is as empty.
    device.or_else(|_| io::pipe().map(|(reader, _)| reader.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(name: &str, path: &str, cwd: &str) -> Vec<String> {
        let places = candidates(name, OsStr::new(path), Path::new(cwd));
        places.map(|place| place.unwrap().path.into_string().unwrap()).collect()
    }

    #[test]
    fn only_absolute_directories_are_searched() {
        assert_eq!(places("sh", "/nowhere:bin:.::/bin", "/"), ["/nowhere/sh", "/bin/sh"]);
        assert!(places("sh", "", "/").is_empty());
    }

    #[test]
    fn a_path_starts_from_the_working_directory() {
        assert_eq!(places("./run", "/bin", "/srv"), ["/srv/./run"]);
        assert_eq!(places("/bin/run", "/bin", "/srv"), ["/bin/run"]);
    }
}
