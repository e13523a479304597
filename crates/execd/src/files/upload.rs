use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice, Write},
    path::PathBuf,
    sync::Arc,
};

use axum::{
    body::{Body, BodyDataStream, Bytes},
    response::Response,
};
use futures_util::StreamExt as _;
use http::{HeaderMap, header};
use osb_api::execd::UploadMetadata;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    multipart::{Form, FormError, Piece},
    ownership::Owner,
    replacement::Replacement,
    scope::Scope,
};
use crate::{accounts, error::ApiError, reply};

const METADATA: &str = "metadata";
const FILE: &str = "file";

/// The longest path and the longest names are far below this.
const METADATA_LIMIT: usize = 64 << 10;

/// The most files that may be announced before the first of them arrives.
const ANNOUNCED_LIMIT: usize = 4096;

/// How much of a refused upload is read, so that its sender learns why it was refused.
const DRAIN_LIMIT: usize = 64 << 20;

/// How much comes together before it is written. As much again is being written meanwhile.
const BATCH: usize = 512 << 10;

/// The most pieces of which that may be; the kernel takes as many at once.
const BATCH_PIECES: usize = 1024;

/// `POST /files/upload`: any number of files, each preceded by a part that says where it goes.
///
/// The content goes to the disk as it arrives, so its size does not matter. Files that are
/// complete stay when a later one fails.
pub(super) async fn upload(
    scope: Scope,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let form = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(Form::new)
        .ok_or_else(|| ApiError::form("the body is not multipart/form-data"))?;
    let (mut content, mut receiver) = (body.into_data_stream(), Receiver::new(scope));
    let outcome = receiver.receive(&mut content, form).await;
    if outcome.is_err() {
        receiver.abandon().await;
        drain(&mut content).await;
    }
    outcome.map(|()| reply::empty())
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

fn broken(error: FormError) -> ApiError {
    ApiError::form(format!("the form cannot be read: {error}"))
}

/// What has been received of an upload.
struct Receiver {
    scope: Scope,
    announced: VecDeque<Destination>,
    part: Part,
    any_metadata: bool,
    any_file: bool,
}

/// The part that is being read.
enum Part {
    Metadata(Vec<u8>),
    File(Growing),
    Other,
}

impl Receiver {
    fn new(scope: Scope) -> Self {
        let announced = VecDeque::new();
        Self { scope, announced, part: Part::Other, any_metadata: false, any_file: false }
    }

    async fn receive(
        &mut self,
        content: &mut BodyDataStream,
        mut form: Form,
    ) -> Result<(), ApiError> {
        while let Some(arrived) = content.next().await {
            let broken_off = |error| ApiError::form(format!("the body broke off: {error}"));
            form.feed(arrived.map_err(broken_off)?);
            while let Some(piece) = form.next().map_err(broken)? {
                self.take(piece).await?;
            }
        }
        form.finish().map_err(broken)?;
        self.finish()
    }

    /// Removes what is not complete.
    async fn abandon(&mut self) {
        if let Part::File(mut file) = std::mem::replace(&mut self.part, Part::Other) {
            file.abandon().await;
        }
    }

    async fn take(&mut self, piece: Piece) -> Result<(), ApiError> {
        match piece {
            Piece::Begin(name) => self.part = self.begin(name.as_deref()).await?,
            Piece::Content(bytes) => match &mut self.part {
                Part::Metadata(metadata) if metadata.len() + bytes.len() > METADATA_LIMIT => {
                    return Err(ApiError::upload_metadata("the `metadata` part is too large"));
                }
                Part::Metadata(metadata) => metadata.extend_from_slice(&bytes),
                Part::File(file) => file.push(bytes).await?,
                Part::Other => {}
            },
            Piece::Complete => {
                match &mut self.part {
                    Part::Metadata(metadata) => {
                        self.announced.push_back(Destination::read(&self.scope, metadata)?);
                    }
                    Part::File(file) => file.complete(&self.scope).await?,
                    Part::Other => {}
                }
                self.part = Part::Other;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, name: Option<&str>) -> Result<Part, ApiError> {
        match name {
            Some(METADATA) => {
                self.any_metadata = true;
                if self.announced.len() == ANNOUNCED_LIMIT {
                    return Err(ApiError::form(format!(
                        "more than {ANNOUNCED_LIMIT} `metadata` parts wait for their `file` part"
                    )));
                }
                Ok(Part::Metadata(Vec::new()))
            }
            Some(FILE) => {
                self.any_file = true;
                let destination = self.announced.pop_front().ok_or_else(|| {
                    ApiError::upload_metadata("a `file` part has no `metadata` part before it")
                })?;
                Ok(Part::File(Growing::create(&self.scope, destination).await?))
            }
            _ => Ok(Part::Other),
        }
    }

    fn finish(&self) -> Result<(), ApiError> {
        match (self.any_metadata, self.any_file) {
            (false, _) => Err(ApiError::upload_metadata("the form has no `metadata` part")),
            (true, false) => Err(ApiError::upload_content("the form has no `file` part")),
            (true, true) if !self.announced.is_empty() => {
                Err(ApiError::form("a `metadata` part has no `file` part after it"))
            }
            (true, true) => Ok(()),
        }
    }
}

/// Where a file goes, and what it shall be there.
struct Destination {
    path: PathBuf,
    metadata: UploadMetadata,
}

impl Destination {
    fn read(scope: &Scope, metadata: &[u8]) -> Result<Self, ApiError> {
        let metadata: UploadMetadata = serde_json::from_slice(metadata)
            .map_err(|error| ApiError::upload_metadata(format!("not as expected: {error}")))?;
        let path = scope
            .path(&metadata.path)
            .map_err(|_| ApiError::upload_metadata("`path` is empty or not a path"))?;
        Ok(Self { path, metadata })
    }
}

/// A file that is being received. Dropped before it is complete, it leaves nothing behind.
struct Growing {
    path: PathBuf,
    file: Arc<File>,
    replacement: Option<Replacement>,
    batch: Vec<Bytes>,
    size: usize,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Growing {
    async fn create(scope: &Scope, destination: Destination) -> Result<Self, ApiError> {
        let replacement = scope.run(move || {
            let Destination { path, metadata } = destination;
            let (owner, group) = (metadata.owner.as_deref(), metadata.group.as_deref());
            let owner =
                Owner::find(&accounts::load(), owner, group).map_err(ApiError::upload_metadata)?;
            Ok((Replacement::create(&path, metadata.mode, owner)?, path))
        });
        let (replacement, path) = replacement.await?;
        let file = replacement.file();
        let replacement = Some(replacement);
        Ok(Self { path, file, replacement, batch: Vec::new(), size: 0, writing: None })
    }

    async fn push(&mut self, bytes: Bytes) -> Result<(), ApiError> {
        self.size += bytes.len();
        self.batch.push(bytes);
        if self.size >= BATCH || self.batch.len() >= BATCH_PIECES {
            self.write().await?;
        }
        Ok(())
    }

    /// Begins to write what has come together, once what came before is written.
    async fn write(&mut self) -> Result<(), ApiError> {
        self.written().await?;
        let (batch, file) = (std::mem::take(&mut self.batch), Arc::clone(&self.file));
        self.size = 0;
        self.writing = Some(spawn_blocking(move || write_all(&file, &batch)));
        Ok(())
    }

    async fn written(&mut self) -> Result<(), ApiError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await.map_err(io::Error::from).flatten();
        self.writing = None;
        written.map_err(|source| {
            ApiError::runtime(&osb_sys::fs::PathError::new("write", &self.path, source))
        })
    }

    async fn complete(&mut self, scope: &Scope) -> Result<(), ApiError> {
        if !self.batch.is_empty() {
            self.write().await?;
        }
        self.written().await?;
        let Some(replacement) = self.replacement.take() else { return Ok(()) };
        scope.run(move || Ok(replacement.commit()?)).await
    }

    /// Removes it. To remove a large file takes a while.
    fn abandon(&mut self) -> impl Future<Output = ()> + use<> {
        let removing = self.replacement.take().map(|gone| spawn_blocking(move || drop(gone)));
        async move {
            if let Some(removing) = removing {
                // There is nobody to tell that it failed.
                drop(removing.await);
            }
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        drop(self.abandon());
    }
}

fn write_all(mut file: &File, batch: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
