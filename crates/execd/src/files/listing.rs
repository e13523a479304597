use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures_util::stream;
use http::{Uri, header};
use osb_core::Accounts;
use osb_sys::fs::PathError;
use rustix::fs::{CWD, FileType, Statx};

use super::{
    pattern::Pattern,
    scope::Scope,
    status,
    walk::{self, Step, Walk, below},
};
use crate::{accounts, error::ApiError, reply, request::Parameters};

/// How much is sent at once, and so the most that is held for a slow client.
const CHUNK: usize = 64 << 10;

/// How long entries are looked at before others get their turn, and it is seen whether the client
/// still waits.
const TURN: Duration = Duration::from_millis(50);

/// `GET /directories/list`: what is in a directory, and in those in it as deep as asked.
pub(super) async fn list(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let path = asked_path(&scope, &parameters)?;
    let depth = parameters.one("depth").map_or(Ok(1), str::parse);
    let depth = depth.map_err(|_| ApiError::invalid("`depth` must be a number from 0"))?;
    let listing = scope.run(move || {
        if walk::kind(&found(&path)?) != FileType::Directory {
            return Err(ApiError::form(format!("{} is not a directory", path.display())));
        }
        Listing::new(path, depth, None)
    });
    Ok(stream(scope.clone(), listing.await?))
}

/// `GET /files/search`: all files below a directory whose names match a pattern.
pub(super) async fn search(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let path = asked_path(&scope, &parameters)?;
    let pattern = Pattern::parse(parameters.one("pattern").unwrap_or("**"))
        .map_err(|error| ApiError::invalid(format!("the pattern cannot be used: {error}")))?;
    let root = path.clone();
    let found = scope.run(move || {
        let status = found(&path)?;
        if walk::kind(&status) == FileType::Directory {
            let listing = Listing::new(path, usize::MAX, Some(pattern))?;
            return Ok(Found::Tree(Box::new(listing)));
        }
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        Ok(if pattern.matches(&name) { Found::File(Box::new(status)) } else { Found::Nothing })
    });
    match found.await? {
        Found::Tree(listing) => Ok(stream(scope, *listing)),
        Found::File(status) => {
            let info = move || Ok(status::describe(&root, &status, &accounts::load()));
            Ok(reply::json(&[scope.run(info).await?]))
        }
        Found::Nothing => Ok(reply::json(&[(); 0])),
    }
}

enum Found {
    Tree(Box<Listing>),
    /// What was asked for is a file itself.
    File(Box<Statx>),
    Nothing,
}

fn asked_path(scope: &Scope, parameters: &Parameters) -> Result<PathBuf, ApiError> {
    scope.path(parameters.one("path").ok_or_else(|| ApiError::missing_query("path"))?)
}

fn found(path: &Path) -> Result<Statx, PathError> {
    walk::status(CWD, path).map_err(|error| PathError::new("look at", path, error.into()))
}

/// A JSON array that is written as a directory is walked, so that its length does not matter.
#[derive(Debug)]
struct Listing {
    root: PathBuf,
    walk: Walk,
    /// With one, only files whose names match.
    pattern: Option<Pattern>,
    accounts: Accounts,
    any: bool,
}

impl Listing {
    fn new(root: PathBuf, depth: usize, pattern: Option<Pattern>) -> Result<Self, ApiError> {
        let walk =
            Walk::new(&root, depth).map_err(|error| PathError::new("list", &root, error.into()))?;
        Ok(Self { root, walk, pattern, accounts: accounts::load(), any: false })
    }

    /// Writes some more, and says whether there may be more still.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        let began = Instant::now();
        while out.len() < CHUNK && began.elapsed() < TURN {
            let entry = match self.walk.next() {
                None => {
                    out.extend_from_slice(if self.any { b"]" } else { b"[]" });
                    return false;
                }
                Some(Step::Left) => continue,
                Some(Step::Entry(entry)) => entry,
            };
            let wanted = self.pattern.as_ref().is_none_or(|pattern| {
                entry.kind() != FileType::Directory
                    && pattern.matches(&entry.name.to_string_lossy())
            });
            if wanted {
                let path = below(&self.root, &entry.path());
                let info = status::describe(&path, entry.status, &self.accounts);
                out.push(if std::mem::replace(&mut self.any, true) { b',' } else { b'[' });
                serde_json::to_writer(&mut *out, &info)
                    .expect("invariant: a description is always JSON");
            }
        }
        true
    }
}

/// The answer has begun, so it can only break off.
fn broken_off(_: ApiError) -> io::Error {
    io::Error::other("the directory cannot be listed any further")
}

fn stream(scope: Scope, listing: Listing) -> Response {
    let chunks = stream::try_unfold(Some((scope, listing)), |state| async move {
        let Some((scope, mut listing)) = state else { return Ok::<_, io::Error>(None) };
        loop {
            let step = move || {
                let mut out = Vec::new();
                let more = listing.write(&mut out);
                Ok((out, listing, more))
            };
            let (out, same, more) = scope.run(step).await.map_err(broken_off)?;
            listing = same;
            if !out.is_empty() {
                return Ok(Some((Bytes::from(out), more.then_some((scope, listing)))));
            }
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, reply::JSON);
    response
}
