//! What a sandbox is made from: an image, or a snapshot that stands on one.

use osb_api::{
    SnapshotId, codes,
    lifecycle::{CreateSandboxRequest, ImageSpec},
};
use osb_core::{ImageDigest, ImageName};
use osb_registry::{Digest, Reference};

use crate::{
    error::ApiError,
    library::IDLE,
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::Index,
    template_record::TemplateRecord,
};

const MAX_IMAGE_NAME: usize = 512;

#[derive(Debug)]
pub(super) struct Origin {
    pub(super) image: ImageName,
    /// The very image, if that is known already.
    pub(super) image_digest: Option<ImageDigest>,
    pub(super) snapshot: Option<SnapshotId>,
}

impl Origin {
    /// The entrypoint of a request that names none.
    pub(super) fn default_entrypoint(&self) -> Option<Vec<String>> {
        self.snapshot.map(|_| IDLE.map(str::to_owned).to_vec())
    }
}

pub(super) fn admit(
    request: &CreateSandboxRequest,
    snapshots: &Index<SnapshotRecord>,
) -> Result<Origin, ApiError> {
    let snapshot = request.snapshot_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let image = request.image.as_ref().filter(|image| !image.uri.trim().is_empty());
    let Some(snapshot) = snapshot else {
        return Ok(Origin { image: admit_image(image)?, image_digest: None, snapshot: None });
    };
    if image.is_some() {
        return Err(ApiError::invalid("give either image or snapshotId: a snapshot has its image"));
    }
    let found = snapshot.parse().ok().and_then(|id| snapshots.get(id));
    let found = found.filter(|found| found.is_clients());
    let found = found.ok_or_else(|| ApiError::no_snapshot(snapshot))?;
    if found.state != SnapshotState::Ready {
        return Err(ApiError::conflict(
            codes::SNAPSHOT_NOT_READY,
            format!("the snapshot is {}, and must be Ready", found.state.as_str()),
        ));
    }
    Ok(Origin {
        image: found.image.clone(),
        image_digest: found.image_digest.clone(),
        snapshot: Some(found.id),
    })
}

/// The files of a template that is finished.
pub(super) fn of_template(
    template: &TemplateRecord,
    snapshots: &Index<SnapshotRecord>,
) -> Result<Origin, ApiError> {
    let files = template.kept.as_ref().and_then(|kept| snapshots.get(kept.snapshot));
    let files = files.filter(|files| files.state == SnapshotState::Ready);
    // Somebody is deleting it.
    let files = files.ok_or_else(|| ApiError::no_template(template.id))?;
    Ok(Origin {
        image: files.image.clone(),
        image_digest: files.image_digest.clone(),
        snapshot: Some(files.id),
    })
}

fn admit_image(image: Option<&ImageSpec>) -> Result<ImageName, ApiError> {
    let image = image.ok_or_else(|| ApiError::invalid("image.uri must name an image"))?;
    admit_name(&image.uri)
}

/// What may be the name of an image: a reference, or the digest of a manifest.
pub(crate) fn admit_name(name: &str) -> Result<ImageName, ApiError> {
    let name = name.trim();
    if name.len() > MAX_IMAGE_NAME {
        return Err(ApiError::invalid(format!(
            "the name of an image has at most {MAX_IMAGE_NAME} characters"
        )));
    }
    if Digest::parse(name).is_err() {
        Reference::parse(name).map_err(|error| ApiError::invalid(error.to_string()))?;
    }
    Ok(ImageName::new(name))
}
