use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use osb_sys::identity::Identity;
use rustix::fs::{Access, access};

use crate::env;

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
