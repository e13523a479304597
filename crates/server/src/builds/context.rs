//! What is to be built, as it comes: an archive of somebody's, which is unpacked where nothing else is.

mod arriving;
mod unpack;

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use osb_api::{SandboxId, images::BuildRequest, lifecycle};
use osb_build::Secret;
use osb_core::Chain;
use osb_image::{Contained, Limits, Parcel, ParcelError};
use osb_sys::{confined, fs, tree};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use self::arriving::{Arriving, Place};
use super::{Builds, Ticket};
use crate::{error::ApiError, extract::without_values};

/// The most that a context may be, as it comes and unpacked.
const MOST_BYTES: u64 = 16 << 30;
const MOST_ENTRIES: u64 = 1_000_000;
/// The longest request: it has the secrets in it.
const MOST_REQUEST: u64 = 8 << 20;
/// The first entry of the archive, and where the others are.
const REQUEST: &str = "build.json";
const CONTEXT: &str = "context";
/// As large as Docker takes them.
const MOST_SECRET: usize = 500 << 10;
const MOST_SECRETS: usize = 64;

/// A build as it was asked for.
#[derive(Debug)]
pub(crate) struct Parcelled {
    pub(super) request: BuildRequest,
    pub(super) scratch: Scratch,
}

/// A directory that is for one build.
#[derive(Debug)]
pub(super) struct Scratch {
    around: PathBuf,
    directory: PathBuf,
    is_cleared: bool,
}

impl Scratch {
    fn make(around: &Path) -> Result<Self, fs::PathError> {
        let scratch = Self::found(around, &SandboxId::random().to_string());
        fs::create_dir(&scratch.directory, 0o700)?;
        fs::create_dir(scratch.context(), 0o755)?;
        Ok(scratch)
    }

    /// One that is there already.
    pub(super) fn found(around: &Path, name: &str) -> Self {
        let (around, directory) = (around.to_owned(), around.join(name));
        Self { around, directory, is_cleared: false }
    }

    pub(super) fn context(&self) -> PathBuf {
        self.directory.join(CONTEXT)
    }

    /// Removes it where nobody waits for a disk.
    pub(super) async fn clear(mut self) {
        self.is_cleared = true;
        let (around, directory) = (self.around.clone(), self.directory.clone());
        spawn_blocking(move || Self::remove(&around, &directory)).await.ok();
    }

    fn remove(around: &Path, directory: &Path) {
        let removed = confined::run(around, || tree::remove(directory));
        if let Err(error) = removed.and_then(|result| result.map_err(std::io::Error::other)) {
            tracing::warn!(error = %Chain(&error), "cannot remove what a build needed; the next start will");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_cleared {
            return;
        }
        let (around, directory) = (self.around.clone(), self.directory.clone());
        let remove = move || Self::remove(&around, &directory);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Builds {
    /// Takes what somebody sends. Nothing of it is left if it cannot be accepted.
    pub(crate) async fn receive(
        &self,
        body: Body,
        ticket: Ticket,
    ) -> Result<(Parcelled, Ticket), ApiError> {
        let mut arriving = Arriving::new(body);
        let (request, place) = arriving.request().await?;
        let spooled = self.spool(arriving).await?;
        let around = self.scratch.clone();
        let unpacking = spawn_blocking(move || {
            let scratch = Scratch::make(&around).map_err(ApiError::internal)?;
            let limits = Limits { layer: MOST_BYTES, entries: MOST_ENTRIES, ..Limits::default() };
            let mut parcel = Parcel::open(spooled, limits).map_err(ApiError::internal)?;
            if place == Place::Within {
                first(&mut parcel)?;
            }
            unpack::unpack(&mut parcel, CONTEXT, &scratch.context(), MOST_BYTES)?;
            // Its place is taken for as long as this takes, whoever has left meanwhile.
            Ok((Parcelled { request, scratch }, ticket))
        });
        unpacking.await.map_err(ApiError::internal)?
    }

    /// Writes the rest of a body to a file without a name.
    async fn spool(&self, mut arriving: Arriving) -> Result<std::fs::File, ApiError> {
        let mut file = self.nameless_file()?;
        while let Some(batch) = arriving.batch().await? {
            let written = spawn_blocking(move || file.write_all(&batch).map(|()| file)).await;
            file = written.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
        }
        Ok(file)
    }
}

fn wrong(what: &str) -> ApiError {
    ApiError::invalid(format!(
        "the body of a build is an archive whose first entry is {REQUEST}: {what}"
    ))
}

/// The first entry: what is asked for.
fn first(parcel: &mut Parcel) -> Result<BuildRequest, ApiError> {
    let piece = parcel.piece().map_err(|error| match error {
        ParcelError::Refused(why) => wrong(&why),
        ParcelError::Io(error) => ApiError::internal(error),
    })?;
    let Some(piece) = piece else { return Err(wrong("it is empty")) };
    let Contained::File { size } = piece.what else {
        return Err(wrong("this one has no such file"));
    };
    if piece.path != Path::new(REQUEST) {
        return Err(wrong("this one has another"));
    }
    if size > MOST_REQUEST {
        return Err(wrong("it is too long"));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or_default()));
    let read = parcel.content().take(MOST_REQUEST).read_to_end(&mut text);
    read.map_err(|error| wrong(&error.to_string()))?;
    understand(&text)
}

fn understand(text: &[u8]) -> Result<BuildRequest, ApiError> {
    serde_json::from_slice(text).map_err(|error| {
        let error = without_values(&error.to_string());
        ApiError::invalid(format!("{REQUEST} cannot be understood: {error}"))
    })
}

/// The secrets of a request, of which nothing is written anywhere.
pub(super) fn secrets(
    wire: &BTreeMap<String, lifecycle::Secret>,
) -> Result<BTreeMap<String, Secret>, ApiError> {
    if wire.len() > MOST_SECRETS {
        return Err(ApiError::invalid(format!("a build has at most {MOST_SECRETS} secrets")));
    }
    let secret = |(id, text): (&String, &lifecycle::Secret)| {
        let wrong = |why| ApiError::invalid(format!("the secret {id:?} {why}"));
        let content =
            STANDARD.decode(text.reveal()).map_err(|_| wrong("is no base64".to_owned()))?;
        if content.len() > MOST_SECRET {
            return Err(wrong(format!("has more than {MOST_SECRET} bytes")));
        }
        Ok((id.clone(), Secret::new(content)))
    };
    wire.iter().map(secret).collect()
}
