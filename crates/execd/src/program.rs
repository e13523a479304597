use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use osb_core::Chain;
use osb_sys::{
    identity::Identity,
    spawn::{self, SpawnError},
};
use rustix::fs::{Access, access};

use crate::env;

/// The most of a command that is remembered to tell what was asked.
const CONTENT: usize = 4 << 10;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Program {
    /// Text for bash, or for sh where there is no bash.
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
    /// Finds the program and prepares it: in a process group of its own, with nothing to read.
    pub(crate) fn command(self) -> io::Result<Command> {
        let mut command = self.ungrouped_command()?;
        command.process_group(0);
        Ok(command)
    }

    /// As [`Launch::command`], still in our own process group: the leader of a session must not be
    /// the leader of a group before.
    pub(crate) fn ungrouped_command(self) -> io::Result<Command> {
        let Self { program, cwd, env, identity } = self;
        let path = env.get(OsStr::new(env::PATH)).cloned();
        let path = path.unwrap_or_else(|| env::DEFAULT_PATH.into());
        let find = |name: &str| find(OsStr::new(name), &path, &cwd);
        let mut command = match &program {
            Program::Shell(text) => {
                let mut shell = osb_sys::command::command(find("bash").or_else(|_| find("sh"))?);
                shell.arg("-c").arg(text);
                shell
            }
            Program::Argv(argv) => {
                let (name, arguments) = argv
                    .split_first()
                    .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
                let mut command = osb_sys::command::command(find(name)?);
                command.arg0(name).args(arguments);
                command
            }
        };
        command.current_dir(cwd).envs(env).stdin(Stdio::null());
        if let Some(identity) = identity {
            identity.apply(&mut command);
        }
        Ok(command)
    }
}

impl Launch {
    /// As [`Launch::command`], for [`Reaper::start`](crate::reaper::Reaper::start): the leader of
    /// a session, for which nothing is looked at before it is executed.
    pub(crate) fn program(self) -> io::Result<spawn::Program> {
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
        let variable = |(name, value): (OsString, OsString)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend_from_slice(value.as_bytes());
            CString::new(variable)
        };
        Ok(spawn::Program {
            candidates,
            arguments,
            variables: env.into_iter().map(variable).collect::<Result<_, _>>()?,
            directory: CString::new(cwd.into_os_string().into_vec())?,
            identity,
        })
    }
}

impl Program {
    /// What to tell whoever asked for this program and did not get it.
    pub(crate) fn explain(&self, error: &SpawnError) -> String {
        let SpawnError::Execute(source) = error else { return Chain(error).to_string() };
        let missing = source.kind() == io::ErrorKind::NotFound;
        match self {
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
        }
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
        Ok(spawn::Candidate {
            path: CString::new(path.into_os_string().into_vec())?,
            name: CString::new(name.as_str())?,
        })
    })
}

/// A name with a slash is a path from `cwd`; any other is looked for in the absolute directories
/// of `path`.
fn find(name: &OsStr, path: &OsStr, cwd: &Path) -> io::Result<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Ok(cwd.join(name));
    }
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
        .ok_or_else(|| {
            let message = format!("{}: executable file not found in $PATH", name.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_directories_are_searched() {
        let found = find(OsStr::new("sh"), OsStr::new("/nowhere:/bin"), Path::new("/")).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        for path in ["", ".", "bin", "/nowhere"] {
            let error = find(OsStr::new("sh"), OsStr::new(path), Path::new("/")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_path_starts_from_the_working_directory() {
        let found = |name| find(OsStr::new(name), OsStr::new("/bin"), Path::new("/srv")).unwrap();
        assert_eq!(found("./run"), Path::new("/srv/./run"));
        assert_eq!(found("/bin/run"), Path::new("/bin/run"));
    }
}
