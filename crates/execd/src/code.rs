//! Code that remembers: contexts of several languages, each with a process that runs one cell after
//! the other.
//!
//! A bash context is a session (`session`) whose output is not cut into lines. In the others an
//! interpreter of the image (`interpreter`) executes a program that execd carries (`driver`), which
//! takes cells from a socket and says there what came of them (`said`), or a Jupyter kernel of the
//! image does (`kernel`).

mod ahead;
mod cell;
mod contexts;
mod door;
mod driver;
mod interpreter;
mod kernel;
mod language;
mod runner;
mod said;
mod shapes;

use std::{ffi::OsStr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::Response,
    routing::{get, post},
};
use http::Uri;
use osb_api::execd::{CodeContext, CreateContext, RunCode, RunCommand};

#[cfg(feature = "fuzzing")]
pub(crate) use kernel::fuzz;

pub(crate) use ahead::Ahead;
pub(crate) use contexts::Contexts;
pub(crate) use door::Door;
use language::Language;

use crate::{
    command, daemon::Daemon, env, environment::Environment, error::ApiError, events, reply,
    request as body, request::Parameters,
};

/// What code without a language, or with one of these, is: a command.
const COMMANDS: [&str; 2] = ["", "command"];
const BACKGROUND: &str = "background-command";

/// How long a context may have nothing to do before its interpreter is ended, unless [`env::CODE_IDLE`]
/// says otherwise.
const IDLE: Duration = Duration::from_hours(6);

/// How long it may in this sandbox, if there is an end to it.
pub(crate) fn idle_limit(environment: &Environment) -> Option<Duration> {
    let said = environment.base().get(OsStr::new(env::CODE_IDLE));
    let said = said.and_then(|seconds| seconds.to_str()?.parse().ok());
    Some(said.map_or(IDLE, Duration::from_secs)).filter(|limit| !limit.is_zero())
}

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/code", post(run).delete(command::interrupt))
        .route("/code/context", post(create))
        .route("/code/contexts", get(list).delete(remove_all))
        .route("/code/contexts/{id}", get(describe).delete(remove))
}

/// `POST /code`.
async fn run(State(daemon): State<Arc<Daemon>>, request: Body) -> Result<Response, ApiError> {
    let RunCode { code, context, language, timeout } = body::json(request).await?;
    if code.is_empty() {
        return Err(ApiError::invalid("`code` is empty"));
    }
    let timeout = u64::try_from(timeout.unwrap_or(0))
        .map_err(|_| ApiError::invalid("`timeout` is negative"))?;
    let context = context.unwrap_or_default();
    let id = context.id.filter(|id| !id.is_empty());
    let language = match language.filter(|language| !language.is_empty()) {
        Some(language) if !["", &language].contains(&context.language.as_str()) => {
            let of = context.language;
            let message = format!("`language` is {language:?}, and that of the context {of:?}");
            return Err(ApiError::invalid(message));
        }
        language => language.unwrap_or(context.language),
    };
    let language = language.as_str();
    if id.is_none() && (COMMANDS.contains(&language) || language == BACKGROUND) {
        let timeout = (timeout > 0).then(|| i64::try_from(timeout).unwrap_or(i64::MAX));
        let is_background = language == BACKGROUND;
        let asked = RunCommand {
            command: Some(code),
            timeout,
            background: Some(is_background),
            ..RunCommand::default()
        };
        return command::execute(daemon, asked).await;
    }
    let context = match id {
        Some(id) => {
            let context = daemon.contexts.get(&id)?;
            if !language.is_empty() && Language::named(language)? != context.language {
                let of = context.language.name();
                return Err(ApiError::invalid(format!(
                    "the context {id} is of {of}, not {language}"
                )));
            }
            context
        }
        None => daemon.contexts.default_of(&daemon, Language::named(language)?).await?,
    };
    if context.language == Language::Bash && code.contains('\0') {
        return Err(ApiError::invalid("bash cannot read the character NUL"));
    }
    let (client, stream) = events::begin(&context.id);
    let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
    context.order(&daemon, code, timeout, client)?;
    Ok(reply::events(stream))
}

/// `POST /code/context`.
async fn create(State(daemon): State<Arc<Daemon>>, request: Body) -> Result<Response, ApiError> {
    let CreateContext { language, cwd, kind } = body::json(request).await?;
    let language = Language::named(&language)?;
    let cwd = cwd.filter(|cwd| !cwd.is_empty());
    let context = daemon.contexts.create(&daemon, language, cwd, kind).await?;
    Ok(reply::json(&context.describe()))
}

/// `GET /code/contexts`.
async fn list(State(daemon): State<Arc<Daemon>>, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let language = parameters.one("language").filter(|name| !name.is_empty());
    let language = language.map(Language::named).transpose()?;
    let contexts = daemon.contexts.list(language);
    let all: Vec<CodeContext> = contexts.iter().map(|context| context.describe()).collect();
    Ok(reply::json(&all))
}

/// `GET /code/contexts/{id}`.
async fn describe(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(reply::json(&daemon.contexts.get(&id)?.describe()))
}

/// `DELETE /code/contexts/{id}`.
async fn remove(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    daemon.contexts.remove(&id).await?;
    Ok(reply::empty())
}

/// `DELETE /code/contexts`.
async fn remove_all(State(daemon): State<Arc<Daemon>>, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let language = parameters.one("language").filter(|name| !name.is_empty());
    let language = language.ok_or_else(|| ApiError::missing_query("language"))?;
    for context in daemon.contexts.list(Some(Language::named(language)?)) {
        // Somebody else may have been faster.
        daemon.contexts.remove(&context.id).await.ok();
    }
    Ok(reply::empty())
}
