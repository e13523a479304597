use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use crate::{env, env_file, expand};

/// What programs of the sandbox start with.
#[derive(Debug)]
pub(crate) struct Environment {
    base: BTreeMap<OsString, OsString>,
    workdir: PathBuf,
}

impl Environment {
    pub(crate) fn new(mut base: BTreeMap<OsString, OsString>, workdir: PathBuf) -> Self {
        base.entry(env::PATH.into()).or_insert_with(|| env::DEFAULT_PATH.into());
        Self { base, workdir }
    }

    /// The variables of the entrypoint.
    pub(crate) fn base(&self) -> &BTreeMap<OsString, OsString> {
        &self.base
    }

    pub(crate) fn workdir(&self) -> &Path {
        &self.workdir
    }

    /// The variables of a command: the base, then those of the file, then its own.
    pub(crate) fn for_command(
        &self,
        own: &BTreeMap<String, String>,
    ) -> BTreeMap<OsString, OsString> {
        let mut variables = self.base.clone();
        let known = |name: &str| text(self.base.get(OsStr::new(name)));
        let assigned = known(env::ENV_FILE)
            .map(|file| env_file::load(&self.path(&file), known))
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
