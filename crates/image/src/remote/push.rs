use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use osb_core::ImageName;
use osb_registry::{Descriptor, Document, Login, Name, Reference, Repository};
use tokio::task::spawn_blocking;

use super::{Remote, RemoteError};
use crate::{ImageError, Intake};

/// How far a push is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushProgress {
    /// Bytes that the registry has, and all that it will have.
    pub bytes: u64,
    pub total: u64,
}

/// What a manifest speaks of, and what it is.
type Described = (Descriptor, Vec<u8>, Vec<Descriptor>);

impl Remote {
    /// Pushes an image of this machine to where `to` names it. Answers with what the registry calls
    /// it.
    pub async fn push(
        &self,
        image: &ImageName,
        to: &Reference,
        login: Option<Login>,
        progress: impl Fn(PushProgress) + Send + Sync + 'static,
    ) -> Result<Descriptor, RemoteError> {
        let intake = Arc::new(self.images.intake());
        let (reading, image) = (Arc::clone(&intake), image.clone());
        let (manifest, content, blobs) =
            spawn_blocking(move || describe(&reading, &image)).await??;
        let repository = self.client.repository(to, login);
        let meter = Arc::new(Meter::new(&blobs, progress));
        let elsewhere = self.elsewhere(&manifest, to);
        let mut pushes = Vec::new();
        for (number, blob) in blobs.iter().enumerate() {
            let (elsewhere, intake) = (elsewhere.as_deref(), &intake);
            pushes.push(push_blob(&repository, intake, blob, elsewhere, meter.part(number)));
        }
        let parallel = self.client.settings().parallel.get();
        stream::iter(pushes).buffer_unordered(parallel).try_collect::<()>().await?;
        repository.push_manifest(&manifest, &content.into(), Name::Tag).await?;
        Ok(manifest)
    }

    /// Another repository at the same registry under which the image is known here: the registry
    /// may take its blobs from there.
    fn elsewhere(&self, manifest: &Descriptor, to: &Reference) -> Option<String> {
        let listed = self.images.list().into_iter().find(|it| it.digest == manifest.digest)?;
        let names = listed.names.iter().filter_map(|name| Reference::parse(name).ok());
        let mut near = names.filter(|name| name.registry() == to.registry());
        near.find(|name| name.repository() != to.repository()).map(|it| it.repository().to_owned())
    }
}

async fn push_blob(
    repository: &Repository,
    intake: &Intake,
    blob: &Descriptor,
    elsewhere: Option<&str>,
    part: Part,
) -> Result<(), RemoteError> {
    let open = || intake.blob(&blob.digest).map_err(std::io::Error::other);
    let counting = part.clone();
    repository.push_blob(blob, elsewhere, open, move |bytes| counting.set(bytes)).await?;
    part.set(blob.size);
    Ok(())
}

fn describe(intake: &Intake, image: &ImageName) -> Result<Described, ImageError> {
    let unknown = || ImageError::Unknown(image.clone());
    let digest = intake.images().find(image)?.digest.ok_or_else(unknown)?;
    let content = intake.document(&digest)?;
    let document = Document::parse(&content, None).map_err(ImageError::Manifest)?;
    let descriptor = Descriptor::new(document.media_type(None), digest, content.len() as u64);
    let Document::Manifest(manifest) = document else {
        return Err(unknown());
    };
    let mut seen = BTreeSet::new();
    let blobs = manifest.layers.into_iter().chain([manifest.config]);
    let blobs = blobs.filter(|blob| seen.insert(blob.digest.clone())).collect();
    Ok((descriptor, content, blobs))
}

/// Counts what was sent of each blob. One that is sent again begins again.
struct Meter {
    sent: Mutex<Vec<u64>>,
    total: u64,
    tell: Box<dyn Fn(PushProgress) + Send + Sync>,
}

impl Meter {
    fn new(blobs: &[Descriptor], tell: impl Fn(PushProgress) + Send + Sync + 'static) -> Self {
        let total = blobs.iter().map(|blob| blob.size).sum();
        Self { sent: Mutex::new(vec![0; blobs.len()]), total, tell: Box::new(tell) }
    }

    fn part(self: &Arc<Self>, number: usize) -> Part {
        Part { meter: Arc::clone(self), number }
    }
}

/// What counts one blob.
#[derive(Clone)]
struct Part {
    meter: Arc<Meter>,
    number: usize,
}

impl Part {
    fn set(&self, bytes: u64) {
        let mut sent = self.meter.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = sent.get_mut(self.number) {
            *sent = bytes;
        }
        let bytes = sent.iter().sum();
        drop(sent);
        (self.meter.tell)(PushProgress { bytes, total: self.meter.total });
    }
}
