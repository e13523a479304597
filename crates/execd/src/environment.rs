use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use osb_sys::{
    fs::{self, PathError},
    identity::Identity,
    scope,
};

use crate::{accounts, env, env_file, expand};

/// What programs of the sandbox start with.
#[derive(Debug)]
pub(crate) struct Environment {
    base: BTreeMap<OsString, OsString>,
    workdir: PathBuf,
    /// As whom, unless they say otherwise; without one, as this process.
    user: Option<Identity>,
}

impl Environment {
    pub(crate) fn new(mut base: BTreeMap<OsString, OsString>, workdir: PathBuf) -> Self {
        base.entry(env::PATH.into()).or_insert_with(|| env::DEFAULT_PATH.into());
        Self { base, workdir, user: None }
    }

    /// The same for programs that run as this user, unless they say otherwise.
    pub(crate) fn of_user(self, user: Option<Identity>) -> Self {
        Self { user, ..self }
    }

    /// The variables of the entrypoint.
    pub(crate) fn base(&self) -> &BTreeMap<OsString, OsString> {
        &self.base
    }

    pub(crate) fn workdir(&self) -> &Path {
        &self.workdir
    }

    /// Whose a file is that is made, if not of this process.
    pub(crate) fn user(&self) -> Option<&Identity> {
        self.user.as_ref()
    }

    /// Who a program runs as, if not as this process: whoever is named, by number and perhaps with a group
    /// in place of the user's own.
    pub(crate) fn identity(&self, named: Option<(u32, Option<u32>)>) -> Option<Identity> {
        match named {
            Some((uid, gid)) => Some(accounts::identity(uid, gid)),
            None => self.user.clone(),
        }
    }

    /// Makes a directory and those on the way to it, which are then the user's. One that is there is success.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), PathError> {
        self.as_owner(|| fs::create_dir_all(path))
            .unwrap_or_else(|error| Err(PathError::new("create directory", path, error)))
    }

    /// Does work on files of which those that it makes are the user's.
    pub(crate) fn as_owner<T>(&self, work: impl FnOnce() -> T) -> std::io::Result<T> {
        match &self.user {
            Some(user) => scope::owning(user, work),
            None => Ok(work()),
        }
    }

    /// The variables of a command: the base, then those of the file, then its own.
    pub(crate) fn for_command(
        &self,
        own: &BTreeMap<String, String>,
    ) -> BTreeMap<OsString, OsString> {
        let mut variables = self.base.clone();
        let known = |name: &str| text(self.base.get(OsStr::new(name)));
        let assigned = known(env::ENV_FILE)
            .and_then(|file| self.as_owner(|| env_file::load(&self.path(&file), known)).ok())
            .unwrap_or_default();
        variables.extend(assigned.into_iter().map(|(name, value)| (name.into(), value.into())));
        variables.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
        variables
    }

    /// The absolute path that a caller means: variables and `~` replaced, from the working
    /// directory.
    pub(crate) fn path(&self, given: &str) -> PathBuf {
        self.path_with(given, &self.base)
    }

    /// As [`Environment::path`], with the variables of a command.
    pub(crate) fn path_with(
        &self,
        given: &str,
        variables: &BTreeMap<OsString, OsString>,
    ) -> PathBuf {
        let expanded = expand::variables(given, |name| text(variables.get(OsStr::new(name))));
        let home =
            self.base.get(OsStr::new(env::HOME)).map_or_else(|| Path::new("/root"), Path::new);
        self.workdir.join(expand::home(&expanded, home))
    }
}

fn text(value: Option<&OsString>) -> Option<String> {
    value.and_then(|value| value.to_str()).map(str::to_owned)
}
