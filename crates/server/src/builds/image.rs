//! Images to build on: those that are here, and those that have to be pulled.

use std::{sync::Arc, time::Duration};

use osb_api::images::{ImageEvent, LayerStage as Stage, PulledLayer};
use osb_build::WorkError;
use osb_core::{Chain, ImageName};
use osb_image::{Image, LayerProgress, LayerStage, Phase, PullProgress, RemoteError};
use osb_registry::{Platform, Reference};

use super::lender::Lender;

/// How often it is told how far a pull is.
const OFTEN: Duration = Duration::from_millis(200);

pub(super) async fn find(
    lender: &Lender<'_>,
    name: &ImageName,
    platform: &Platform,
) -> Result<Image, WorkError> {
    let library = lender.library;
    if let Ok(image) = library.images().find(name)
        && is_for(&image, platform)
    {
        return Ok(image);
    }
    let reference = Reference::parse(name.as_str())
        .map_err(|error| WorkError::Refused(format!("{name} cannot name an image: {error}")))?;
    lender.telling.tell(ImageEvent::Resolving { name: name.to_string() });
    let mut pull = library.pull(name, &reference, None, platform);
    let mut progress = pull.progress();
    let mut ticks = tokio::time::interval(OFTEN);
    let mut told = PullProgress::default();
    let pulled = loop {
        tokio::select! {
            pulled = &mut pull => break pulled,
            _ = ticks.tick() => {
                let now = progress.borrow_and_update().clone();
                if now.phase != Phase::Resolving && now != told {
                    lender.telling.tell(shown(name, &now));
                    told = now;
                }
            }
        }
    };
    match pulled {
        Ok(pulled) => Ok(pulled.image),
        Err(error) => Err(unpulled(&error)),
    }
}

/// Whether an image that says this of itself runs there. Some say nothing.
fn is_for(image: &Image, platform: &Platform) -> bool {
    let (os, architecture) = (&image.config.os, &image.config.architecture);
    (os.is_empty() || *os == platform.os)
        && (architecture.is_empty() || *architecture == platform.architecture)
}

fn unpulled(error: &Arc<RemoteError>) -> WorkError {
    match &**error {
        RemoteError::Registry(_) => WorkError::Refused(Chain(error).to_string()),
        RemoteError::Image(_) | RemoteError::Ended => {
            WorkError::failed("cannot pull the image to build on", Arc::clone(error))
        }
    }
}

fn shown(name: &ImageName, progress: &PullProgress) -> ImageEvent {
    let layer = |layer: &LayerProgress| PulledLayer {
        digest: layer.digest.to_string(),
        bytes: layer.bytes,
        total: layer.total,
        stage: match layer.stage {
            LayerStage::Waiting => Stage::Waiting,
            LayerStage::Downloading => Stage::Downloading,
            LayerStage::Downloaded => Stage::Downloaded,
            LayerStage::Unpacking => Stage::Unpacking,
            LayerStage::Unpacked => Stage::Unpacked,
        },
    };
    let layers = progress.layers.iter().map(layer).collect();
    ImageEvent::Pulling { name: name.to_string(), layers }
}
