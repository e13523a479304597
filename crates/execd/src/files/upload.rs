use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use axum::{
    body::{Body, BodyDataStream},
    extract::State,
    response::Response,
};
use futures_util::StreamExt as _;
use http::{HeaderMap, header};
use multer::{Constraints, Field, Multipart, SizeLimit};
use osb_api::execd::UploadMetadata;
use tokio::io::AsyncWriteExt;

use super::{
    blocking,
    replace::{Owner, Replacement},
};
use crate::{accounts::Accounts, daemon::Daemon, error::ApiError, reply};

const METADATA: &str = "metadata";
const FILE: &str = "file";

/// The longest path and the longest names are far below this.
const METADATA_LIMIT: u64 = 64 << 10;

/// The most files that may be announced before the first of them arrives.
const ANNOUNCED_LIMIT: usize = 4096;

/// How much of a refused upload is read, so that its sender learns why it was refused.
const DRAIN_LIMIT: usize = 64 << 20;

/// `POST /files/upload`: any number of files, each preceded by a part that says where it goes.
///
/// The content goes to the disk as it arrives, so its size does not matter. Files that are
/// complete stay when a later one fails.
pub(crate) async fn upload(
    State(daemon): State<Arc<Daemon>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let boundary = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| multer::parse_boundary(value).ok())
        .ok_or_else(|| ApiError::form("the body is not multipart/form-data"))?;
    let mut content = body.into_data_stream();
    let outcome = receive(&daemon, &mut content, boundary).await;
    drain(&mut content).await;
    outcome
}

/// Reads what is left of a body, at most [`DRAIN_LIMIT`].
///
/// A connection that is closed with unread bytes is reset, and the reset may overtake the answer.
async fn drain(content: &mut BodyDataStream) {
    let mut left = DRAIN_LIMIT;
    while left > 0 {
        match content.next().await {
            Some(Ok(chunk)) => left = left.saturating_sub(chunk.len()),
            Some(Err(_)) | None => return,
        }
    }
}

async fn receive(
    daemon: &Daemon,
    content: &mut BodyDataStream,
    boundary: String,
) -> Result<Response, ApiError> {
    let mut form = form(content, boundary);
    let mut announced = VecDeque::new();
    let (mut any_metadata, mut any_file) = (false, false);
    while let Some(field) = form.next_field().await.map_err(|error| broken(&error))? {
        match field.name() {
            Some(METADATA) => {
                any_metadata = true;
                if announced.len() == ANNOUNCED_LIMIT {
                    return Err(ApiError::form(format!(
                        "more than {ANNOUNCED_LIMIT} `metadata` parts wait for their `file` part"
                    )));
                }
                announced.push_back(Destination::read(daemon, field).await?);
            }
            Some(FILE) => {
                any_file = true;
                let destination = announced.pop_front().ok_or_else(|| {
                    ApiError::upload_metadata("a `file` part has no `metadata` part before it")
                })?;
                store(destination, field).await?;
            }
            _ => {}
        }
    }
    match (any_metadata, any_file) {
        (false, _) => Err(ApiError::upload_metadata("the form has no `metadata` part")),
        (true, false) => Err(ApiError::upload_content("the form has no `file` part")),
        (true, true) if !announced.is_empty() => {
            Err(ApiError::form("a `metadata` part has no `file` part after it"))
        }
        (true, true) => Ok(reply::empty()),
    }
}

/// Reads the parts one after another; what announces a file may not be endless.
pub(super) fn form(content: &mut BodyDataStream, boundary: String) -> Multipart<'_> {
    let limits = SizeLimit::new().for_field(METADATA, METADATA_LIMIT);
    let constraints = Constraints::new().size_limit(limits);
    Multipart::with_constraints(content, boundary, constraints)
}

/// Where a file goes, and what it shall be there.
struct Destination {
    path: PathBuf,
    metadata: UploadMetadata,
}

impl Destination {
    async fn read(daemon: &Daemon, field: Field<'_>) -> Result<Self, ApiError> {
        let content = field.bytes().await.map_err(|error| broken(&error))?;
        let metadata: UploadMetadata = serde_json::from_slice(&content)
            .map_err(|error| ApiError::upload_metadata(format!("not as expected: {error}")))?;
        if metadata.path.is_empty() || metadata.path.contains('\0') {
            return Err(ApiError::upload_metadata("`path` is empty or not a path"));
        }
        Ok(Self { path: daemon.environment.path(&metadata.path), metadata })
    }

    fn owner(&self) -> Result<Owner, ApiError> {
        let (owner, group) =
            (given(self.metadata.owner.as_deref()), given(self.metadata.group.as_deref()));
        if owner.is_none() && group.is_none() {
            return Ok(Owner::default());
        }
        let accounts = Accounts::load();
        let unknown = |kind: &str, name: &str| {
            ApiError::upload_metadata(format!("there is no {kind} {name:?} in the sandbox"))
        };
        let uid = owner.map(|name| accounts.uid(name).ok_or_else(|| unknown("user", name)));
        let gid = group.map(|name| accounts.gid(name).ok_or_else(|| unknown("group", name)));
        Ok(Owner { uid: uid.transpose()?, gid: gid.transpose()? })
    }
}

fn given(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.is_empty())
}

async fn store(destination: Destination, mut field: Field<'_>) -> Result<(), ApiError> {
    let (replacement, file) = blocking(move || {
        let owner = destination.owner()?;
        let replacement = Replacement::create(&destination.path, destination.metadata.mode, owner)?;
        let file = replacement.file().map_err(|error| ApiError::runtime(&error))?;
        Ok((replacement, file))
    })
    .await?;
    // It writes one chunk while the next arrives.
    let mut file = tokio::fs::File::from_std(file);
    while let Some(chunk) = field.chunk().await.map_err(|error| broken(&error))? {
        file.write_all(&chunk).await.map_err(|error| ApiError::runtime(&error))?;
    }
    file.flush().await.map_err(|error| ApiError::runtime(&error))?;
    blocking(move || Ok(replacement.commit()?)).await
}

fn broken(error: &multer::Error) -> ApiError {
    if matches!(error, multer::Error::FieldSizeExceeded { .. }) {
        return ApiError::upload_metadata("the `metadata` part is too large");
    }
    ApiError::form(format!("the form cannot be read: {error}"))
}
