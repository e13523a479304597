use std::time::Duration;

use osb_api::execd::RunCommand;

use crate::{
    accounts::Accounts,
    daemon::Daemon,
    error::ApiError,
    program::{Launch, Program},
};

/// A command that may be started.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) launch: Launch,
    pub(super) background: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) stdin: Option<String>,
    pub(super) output_limit: Option<u64>,
}

/// Checks a request. This looks at files, so it is for a thread that may wait.
pub(super) fn validate(daemon: &Daemon, asked: RunCommand) -> Result<Order, ApiError> {
    let RunCommand { command, argv, cwd, background, timeout, uid, gid, envs, stdin, output_limit } =
        asked;
    let program = program(command, argv)?;
    let timeout = u64::try_from(timeout.unwrap_or(0))
        .map_err(|_| ApiError::invalid("`timeout` is negative"))?;
    let identity = match (uid, gid) {
        (None, None) => None,
        (None, Some(_)) => return Err(ApiError::invalid("`gid` needs `uid`")),
        (Some(uid), gid) => Some(Accounts::load().identity(uid, gid)),
    };
    for (name, value) in &envs {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ApiError::invalid(format!("{name:?} cannot be a variable")));
        }
    }
    let env = daemon.environment.for_command(&envs);
    let cwd = match cwd.filter(|cwd| !cwd.is_empty()) {
        None => daemon.environment.workdir().to_owned(),
        Some(given) => {
            let cwd = daemon.environment.path_with(&given, &env);
            if given.contains('\0') || !cwd.is_dir() {
                return Err(ApiError::invalid(format!("`cwd` {given:?} is not a directory")));
            }
            cwd
        }
    };
    Ok(Order {
        launch: Launch { program, cwd, env, identity },
        background: background == Some(true),
        timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
        stdin,
        output_limit,
    })
}

fn program(command: Option<String>, argv: Option<Vec<String>>) -> Result<Program, ApiError> {
    let command = command.filter(|command| !command.is_empty());
    let argv = argv.filter(|argv| !argv.is_empty());
    let program = match (command, argv) {
        (Some(command), None) => Program::Shell(command),
        (None, Some(argv)) => Program::Argv(argv),
        (None, None) => return Err(ApiError::invalid("`command` or `argv` is missing")),
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("`command` and `argv` exclude each other"));
        }
    };
    let has_nul = match &program {
        Program::Shell(text) => text.contains('\0'),
        Program::Argv(argv) => argv.iter().any(|argument| argument.contains('\0')),
    };
    if has_nul {
        return Err(ApiError::invalid("a command cannot contain the character NUL"));
    }
    if matches!(&program, Program::Argv(argv) if argv.first().is_none_or(String::is_empty)) {
        return Err(ApiError::invalid("the first element of `argv` is empty"));
    }
    Ok(program)
}
