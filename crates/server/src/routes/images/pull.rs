use std::time::Duration;

use axum::{extract::State, response::Response};
use futures_util::{Stream, stream};
use osb_api::images::{ImageEvent, ImportedImage, LayerStage, PullImageRequest, PulledLayer};
use osb_image::{LayerProgress, LayerStage as Stage, Phase, PullProgress};
use osb_registry::Platform;
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior},
};

use super::{
    library, reference,
    stream::{events, last},
};
use crate::{
    admission::{admit_login, admit_name},
    app::App,
    error::{ApiError, Errand},
    extract::Json,
    library::Pulling,
};

/// How often it is told how far a pull is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Gets an image from its registry, also if there is one of its name here. A client that goes away
/// breaks it off.
pub(crate) async fn pull(
    State(app): State<App>,
    Json(request): Json<PullImageRequest>,
) -> Result<Response, ApiError> {
    let library = library(&app)?;
    let (asked, reference) = (admit_name(&request.name)?, reference(&request.name)?);
    let login = request.auth.as_ref().map(admit_login).transpose()?;
    let platform = match request.platform.as_deref() {
        Some(platform) => Platform::parse(platform).ok_or_else(|| {
            ApiError::invalid("platform is written as linux/amd64 or linux/arm/v7")
        })?,
        None => Platform::host(),
    };
    let pulling = library.pull(&asked, &reference, login, &platform);
    let name = reference.familiar();
    Ok(events(follow(name, pulling)))
}

/// What is told of a pull, and when.
struct Told {
    name: String,
    pulling: Pulling,
    progress: watch::Receiver<PullProgress>,
    ticks: Interval,
    has_begun: bool,
}

fn follow(name: String, pulling: Pulling) -> impl Stream<Item = ImageEvent> + Send + 'static {
    let mut ticks = tokio::time::interval(TELL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let progress = pulling.progress();
    let told = Told { name, pulling, progress, ticks, has_begun: false };
    stream::unfold(Some(told), async |told| {
        let mut told = told?;
        let event = told.next().await;
        let rest = (!event.is_last()).then_some(told);
        Some((event, rest))
    })
}

impl Told {
    async fn next(&mut self) -> ImageEvent {
        if !std::mem::replace(&mut self.has_begun, true) {
            return ImageEvent::Resolving { name: self.name.clone() };
        }
        loop {
            tokio::select! {
                pulled = &mut self.pulling => {
                    return last(match pulled {
                        Ok(pulled) => Ok(ImportedImage {
                            digest: pulled.digest.to_string(),
                            names: vec![self.name.clone()],
                        }),
                        Err(error) => Err(ApiError::remote(Errand::Pull, &error)),
                    });
                }
                _ = self.ticks.tick() => {
                    // Whoever sends has nothing more to tell once the pull has ended.
                    if !self.progress.has_changed().unwrap_or_default() {
                        continue;
                    }
                    let progress = self.progress.borrow_and_update();
                    if progress.phase == Phase::Fetching {
                        let layers = progress.layers.iter().map(layer).collect();
                        return ImageEvent::Pulling { name: self.name.clone(), layers };
                    }
                }
            }
        }
    }
}

fn layer(layer: &LayerProgress) -> PulledLayer {
    PulledLayer {
        digest: layer.digest.to_string(),
        bytes: layer.bytes,
        total: layer.total,
        stage: match layer.stage {
            Stage::Waiting => LayerStage::Waiting,
            Stage::Downloading => LayerStage::Downloading,
            Stage::Downloaded => LayerStage::Downloaded,
            Stage::Unpacking => LayerStage::Unpacking,
            Stage::Unpacked => LayerStage::Unpacked,
        },
    }
}
