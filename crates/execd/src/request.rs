//! What callers send, read without trusting its size or form.

use std::collections::BTreeMap;

use axum::{body::Body, extract::Query};
use http::Uri;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::{error::ApiError, program::Program};

/// Larger than any command line that the kernel takes.
const JSON_LIMIT: usize = 8 << 20;

/// Reads the first JSON value of the body. The content type does not matter.
pub(crate) async fn json<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    optional_json(body).await?.ok_or_else(|| ApiError::invalid("the body is empty"))
}

/// As [`json`]; a body that is empty is no value.
pub(crate) async fn optional_json<T: DeserializeOwned>(body: Body) -> Result<Option<T>, ApiError> {
    let body = Limited::new(body, JSON_LIMIT).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            ApiError::body_too_large(JSON_LIMIT)
        } else {
            ApiError::invalid(format!("the body broke off: {error}"))
        }
    })?;
    let bytes = body.to_bytes();
    let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(error)) => Err(ApiError::invalid(format!("the body is not as expected: {error}"))),
        None => Ok(None),
    }
}

/// The program that a caller asks for, if it asks for one.
pub(crate) fn program(
    command: Option<String>,
    argv: Option<Vec<String>>,
) -> Result<Option<Program>, ApiError> {
    let command = command.filter(|command| !command.is_empty());
    let argv = argv.filter(|argv| !argv.is_empty());
    if argv.iter().flatten().chain(&command).any(|word| word.contains('\0')) {
        return Err(ApiError::invalid("a command cannot contain the character NUL"));
    }
    match (command, argv) {
        (Some(_), Some(_)) => Err(ApiError::invalid("`command` and `argv` exclude each other")),
        (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
            Err(ApiError::invalid("the first element of `argv` is empty"))
        }
        (None, Some(argv)) => Ok(Some(Program::Argv(argv))),
        (command, None) => Ok(command.map(Program::Shell)),
    }
}

/// The user whom a caller names, perhaps with a group in place of the user's own.
pub(crate) fn user(
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<Option<(u32, Option<u32>)>, ApiError> {
    match (uid, gid) {
        (None, Some(_)) => Err(ApiError::invalid("`gid` needs `uid`")),
        (uid, gid) => Ok(uid.map(|uid| (uid, gid))),
    }
}

/// Whether these can be the variables of a program.
pub(crate) fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), ApiError> {
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ApiError::invalid(format!("{name:?} cannot be a variable")));
        }
    }
    Ok(())
}

/// The parameters of a query, in order and with repetitions.
#[derive(Debug)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        let Query(pairs) = Query::try_from_uri(uri)
            .map_err(|error| ApiError::invalid(format!("the query cannot be read: {error}")))?;
        Ok(Self(pairs))
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter that is there and not empty.
    pub(crate) fn one<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).find(|value| !value.is_empty())
    }
}
