use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use osb_api::execd::CreatePty;
use osb_sys::{identity::Identity, spawn::Streams, terminal::Size};
use rustix::process::Pid;

use crate::{
    daemon::Daemon,
    env,
    error::ApiError,
    program::{Launch, NotStarted, Program},
    reaper::Exited,
    request,
};

/// What programs are told of the terminal unless the caller knows better: what most clients are.
const TERM: &str = "xterm-256color";
const SIZE: Size = Size { cols: 80, rows: 24 };

/// What a terminal runs, each time that it is started.
#[derive(Debug)]
pub(super) struct Order {
    /// Without one it is an interactive shell.
    program: Option<Program>,
    pub(super) cwd: PathBuf,
    envs: BTreeMap<String, String>,
    identity: Option<(u32, Option<u32>)>,
    pub(super) size: Size,
}

impl Order {
    /// Checks a request. This looks at files, so it is for a thread that may wait.
    pub(super) fn new(daemon: &Daemon, asked: CreatePty) -> Result<Self, ApiError> {
        let CreatePty { cwd, command, argv, uid, gid, mut envs, term, cols, rows } = asked;
        let program = request::program(command, argv)?;
        let identity = request::user(uid, gid)?;
        envs.extend(term.filter(|term| !term.is_empty()).map(|term| (env::TERM.to_owned(), term)));
        request::check_variables(&envs)?;
        let size = Size { cols: cols.unwrap_or(SIZE.cols), rows: rows.unwrap_or(SIZE.rows) };
        if size.cols == 0 || size.rows == 0 {
            return Err(ApiError::invalid("a terminal has at least one column and one row"));
        }
        let cwd = match cwd.filter(|cwd| !cwd.is_empty()) {
            None => daemon.environment.workdir().to_owned(),
            Some(given) if given.contains('\0') => {
                return Err(ApiError::invalid(format!("`cwd` {given:?} is not a directory")));
            }
            Some(given) => {
                daemon.environment.path_with(&given, &daemon.environment.for_command(&envs))
            }
        };
        Ok(Self { program, cwd, envs, identity, size })
    }

    /// Whether it is an interactive shell.
    pub(super) fn is_shell(&self) -> bool {
        self.program.is_none()
    }

    /// Who the program runs as, if not as execd itself.
    pub(super) fn identity(&self, daemon: &Daemon) -> Option<Identity> {
        daemon.environment.identity(self.identity)
    }

    /// Starts the program. This waits for it to be read, so it is for a thread that may wait.
    pub(super) fn start(
        &self,
        daemon: &Daemon,
        identity: Option<&Identity>,
        streams: Streams<'_>,
    ) -> Result<(Pid, Exited), NotStarted> {
        let mut env = daemon.environment.for_command(&self.envs);
        env.entry(env::TERM.into()).or_insert_with(|| TERM.into());
        let start = |argv: Vec<String>, env: BTreeMap<OsString, OsString>| {
            let (cwd, identity) = (self.cwd.clone(), identity.cloned());
            let launch = Launch { program: Program::Argv(argv), cwd, env, identity };
            launch.start(&daemon.reaper, streams)
        };
        let text = match &self.program {
            Some(Program::Argv(argv)) => return start(argv.clone(), env),
            Some(Program::Shell(text)) => Some(text.as_str()),
            None => None,
        };
        let shell = |words: &[&str]| {
            let text = text.map(|text| ["-c", text]).into_iter().flatten();
            words.iter().copied().chain(text).map(str::to_owned).collect()
        };
        start(shell(&["bash", "--norc", "--noprofile"]), env.clone())
            .or_else(|_| start(shell(&["sh"]), env))
    }
}
