use std::time::Duration;

use osb_api::execd::RunCommand;

use crate::{daemon::Daemon, error::ApiError, program::Launch, request};

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
    let program = request::program(command, argv)?
        .ok_or_else(|| ApiError::invalid("`command` or `argv` is missing"))?;
    let timeout = u64::try_from(timeout.unwrap_or(0))
        .map_err(|_| ApiError::invalid("`timeout` is negative"))?;
    let identity = daemon.environment.identity(request::user(uid, gid)?);
    request::check_variables(&envs)?;
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
