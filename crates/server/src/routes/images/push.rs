use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use futures_util::{
    Stream,
    future::{BoxFuture, FutureExt as _},
    stream,
};
use osb_api::images::{ImageEvent, ImportedImage, PushImageRequest};
use osb_core::ImageName;
use osb_image::{PushProgress, RemoteError};
use osb_registry::Descriptor;
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior},
};

use super::{
    find, library, reference,
    stream::{events, last},
};
use crate::{
    admission::{admit_login, admit_name},
    app::App,
    error::{ApiError, Errand},
    extract::Json,
};

/// How often it is told how far a push is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Gives an image to a registry. A client that goes away breaks it off.
pub(crate) async fn push(
    State(app): State<App>,
    Json(request): Json<PushImageRequest>,
) -> Result<Response, ApiError> {
    let library = library(&app)?;
    let remote = app.images.clone().ok_or_else(ApiError::no_images)?;
    let name = admit_name(&request.name)?;
    let to = reference(request.to.as_deref().unwrap_or(&request.name))?;
    if to.tag().is_none() {
        return Err(ApiError::invalid("name the tag that the registry is to give the image"));
    }
    let login = request.auth.as_ref().map(admit_login).transpose()?;
    let Some(digest) = find(library, &name)?.digest else {
        return Err(ApiError::invalid("the programs of this host are no image for others"));
    };
    let image = ImageName::new(digest.as_str());
    let familiar = to.familiar();
    let (tell, progress) = watch::channel(PushProgress::default());
    let pushing = async move {
        let tell = move |progress| {
            tell.send_replace(progress);
        };
        remote.push(&image, &to, login, tell).await
    };
    Ok(events(follow(familiar, pushing.boxed(), progress)))
}

/// What is told of a push, and when.
struct Told {
    name: String,
    pushing: BoxFuture<'static, Result<Descriptor, RemoteError>>,
    progress: watch::Receiver<PushProgress>,
    ticks: Interval,
}

fn follow(
    name: String,
    pushing: BoxFuture<'static, Result<Descriptor, RemoteError>>,
    progress: watch::Receiver<PushProgress>,
) -> impl Stream<Item = ImageEvent> + Send + 'static {
    let mut ticks = tokio::time::interval(TELL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(Some(Told { name, pushing, progress, ticks }), async |told| {
        let mut told = told?;
        let event = told.next().await;
        let rest = (!event.is_last()).then_some(told);
        Some((event, rest))
    })
}

impl Told {
    async fn next(&mut self) -> ImageEvent {
        loop {
            tokio::select! {
                pushed = &mut self.pushing => {
                    return last(match pushed {
                        Ok(pushed) => Ok(ImportedImage {
                            digest: pushed.digest.to_string(),
                            names: vec![self.name.clone()],
                        }),
                        Err(error) => Err(ApiError::remote(Errand::Push, &Arc::new(error))),
                    });
                }
                _ = self.ticks.tick() => {
                    // Whoever sends has nothing more to tell once the push has ended.
                    if self.progress.has_changed().unwrap_or_default() {
                        let PushProgress { bytes, total } = *self.progress.borrow_and_update();
                        return ImageEvent::Pushing { bytes, total };
                    }
                }
            }
        }
    }
}
