//! What a sandbox is made from: an image, or a snapshot that stands on one.

use osb_api::{
    SnapshotId, codes,
    lifecycle::{CreateSandboxRequest, ImageSpec},
};
use osb_core::ImageName;

use crate::{
    error::ApiError,
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::Index,
};

const MAX_IMAGE_NAME: usize = 512;
/// What a sandbox that starts from a snapshot runs if it is not told: nothing, until it is ended.
const DEFAULT_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];

#[derive(Debug)]
pub(super) struct Origin {
    pub(super) image: ImageName,
    pub(super) snapshot: Option<SnapshotId>,
}

impl Origin {
    /// The entrypoint of a request that names none.
    pub(super) fn default_entrypoint(&self) -> Option<Vec<String>> {
        self.snapshot.map(|_| DEFAULT_ENTRYPOINT.map(str::to_owned).to_vec())
    }
}

pub(super) fn admit(
    request: &CreateSandboxRequest,
    snapshots: &Index<SnapshotRecord>,
) -> Result<Origin, ApiError> {
    let snapshot = request.snapshot_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let image = request.image.as_ref().filter(|image| !image.uri.trim().is_empty());
    let Some(snapshot) = snapshot else {
        return Ok(Origin { image: admit_image(image)?, snapshot: None });
    };
    if image.is_some() {
        return Err(ApiError::invalid("give either image or snapshotId: a snapshot has its image"));
    }
    let found = snapshot.parse().ok().and_then(|id| snapshots.get(id));
    let found = found.ok_or_else(|| ApiError::no_snapshot(snapshot))?;
    if found.state != SnapshotState::Ready {
        return Err(ApiError::conflict(
            codes::SNAPSHOT_NOT_READY,
            format!("the snapshot is {}, and must be Ready", found.state.as_str()),
        ));
    }
    Ok(Origin { image: found.image.clone(), snapshot: Some(found.id) })
}

fn admit_image(image: Option<&ImageSpec>) -> Result<ImageName, ApiError> {
    let image = image.ok_or_else(|| ApiError::invalid("image.uri must name an image"))?;
    if image.auth.is_some() {
        return Err(ApiError::unsupported(
            "image.auth is not supported yet: this server takes images that it already has",
        ));
    }
    let name = image.uri.trim();
    if name.len() > MAX_IMAGE_NAME || !name.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ApiError::invalid(format!(
            "image.uri must be at most {MAX_IMAGE_NAME} printable characters without spaces"
        )));
    }
    Ok(ImageName::new(name))
}
