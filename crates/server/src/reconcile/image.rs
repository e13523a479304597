//! The image of a sandbox, before the sandbox: found here, or pulled while its creator waits.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_core::{Chain, ImageDigest, ImageName, Phase, Reason, Status};
use osb_image::{Image, ImageError, LayerStage, PullProgress, Pulled, RemoteError};
use osb_registry::{Platform, RegistryError};
use tokio::time::MissedTickBehavior;

use super::{
    Shared,
    birth::NotCreated,
    driver::{Driver, Records, Setback},
};
use crate::{
    admission,
    history::Happening,
    library::{self, Pulling, Whereabouts},
    record::Record,
};

/// How often it is told how far a pull is.
const TELL_EVERY: Duration = Duration::from_secs(1);
const MEGABYTE: u64 = 1_000_000;

impl Driver {
    /// Makes sure that the image of the sandbox is here, and notes which it is. As long as it is
    /// held, nobody throws it away.
    pub(super) async fn find_image(
        &mut self,
        records: &mut Records,
    ) -> Result<Option<Image>, Setback> {
        let Some(library) = self.shared.library.clone() else { return Ok(None) };
        let record = Arc::clone(&records.borrow());
        let spec = &record.desired.spec;
        let image = match library.seek(spec) {
            Ok(Whereabouts::Here(image)) => image,
            Ok(Whereabouts::Away(reference)) => {
                let login = self.login.take();
                let pull = library.pull(&spec.image, &reference, login, &Platform::host());
                let pull = follow(Arc::clone(&self.shared), self.id, spec.image.clone(), pull);
                match self.unless_unwanted(records, pull).await? {
                    Ok(pulled) => pulled.image,
                    Err(error) => return Err(self.go_without(error).await),
                }
            }
            Err(error) => return Err(self.go_without(Arc::new(error.into())).await),
        };
        match self.pin(&record, &image).await {
            Ok(()) => Ok(Some(image)),
            Err(Unpinned::Refused(error)) => {
                Err(self.go_without(Arc::new(RemoteError::from(error))).await)
            }
            Err(Unpinned::Setback(setback)) => Err(setback),
        }
    }

    /// Notes which image the sandbox has, and what of it runs if nobody said.
    async fn pin(&self, record: &Record, image: &Image) -> Result<(), Unpinned> {
        let spec = &record.desired.spec;
        let digest = image.digest.as_ref().map(|digest| ImageDigest::new(digest.as_str()));
        // The image of a step need not have any program, so there is nothing but execd.
        let is_complete = !spec.entrypoint.is_empty() || !record.is_clients();
        if digest == spec.image_digest && is_complete {
            return Ok(());
        }
        let own = if spec.entrypoint.is_empty() {
            let own = library::entrypoint(&image.config);
            let fits = admission::check_entrypoint(&own);
            fits.map_err(|why| ImageError::Refused(format!("its entrypoint cannot run: {why}")))?;
            Some(own)
        } else {
            None
        };
        let now = self.shared.clock.now();
        let change = move |record: &mut Record| {
            let spec = &mut record.desired.spec;
            spec.image_digest = digest;
            if let Some(own) = own {
                spec.entrypoint = own;
            }
            if record.desired.status.reason == Reason::ImagePulling {
                record.become_status(Status::starting(now), now);
            }
        };
        if self.birth.is_some() {
            // A crash undoes all of it.
            let noted = self.shared.store.remark(self.id, change).await;
            return noted.map_err(|error| Unpinned::Setback(Setback::Unwritten(error)));
        }
        self.write(change).await.map_err(Unpinned::Setback)
    }

    /// There is no image for the sandbox.
    async fn go_without(&mut self, error: Arc<RemoteError>) -> Setback {
        tracing::warn!(error = %Chain(&*error), "there is no image for the sandbox");
        let result = if self.birth.is_some() {
            self.give_up(NotCreated::Image(error)).await
        } else {
            let forgotten = match &*error {
                RemoteError::Registry(RegistryError::Denied { .. }) if self.is_adopted => {
                    "; a login that came with the request is not kept when the server restarts"
                }
                RemoteError::Registry(_) | RemoteError::Image(_) | RemoteError::Ended => "",
            };
            self.note(Status {
                phase: Phase::Failed,
                reason: Reason::ImagePullFailed,
                message: format!("there is no image for the sandbox: {error}{forgotten}"),
                since: self.shared.clock.now(),
            })
            .await
        };
        result.err().unwrap_or(Setback::Outdated)
    }
}

/// Why it is not noted which image a sandbox has.
enum Unpinned {
    Refused(ImageError),
    Setback(Setback),
}

impl From<ImageError> for Unpinned {
    fn from(error: ImageError) -> Self {
        Self::Refused(error)
    }
}

/// Waits for a pull, and tells how far it is.
async fn follow(
    shared: Arc<Shared>,
    id: SandboxId,
    name: ImageName,
    mut pull: Pulling,
) -> Result<Pulled, Arc<RemoteError>> {
    let progress = pull.progress();
    let mut told = String::new();
    let mut ticks = tokio::time::interval(TELL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            pulled = &mut pull => return pulled,
            _ = ticks.tick() => {
                let message = describe(&name, &progress.borrow());
                if message != told {
                    told.clone_from(&message);
                    // A store that is closed belongs to a server that is ending.
                    let now = shared.clock.now();
                    shared.store.remark(id, move |record| tell(record, message, now)).await.ok();
                }
            }
        }
    }
}

fn tell(record: &mut Record, message: String, now: Timestamp) {
    let status = &mut record.desired.status;
    if status.phase != Phase::Pending {
        return;
    }
    let is_news = status.reason != Reason::ImagePulling;
    status.reason = Reason::ImagePulling;
    status.message = message;
    if is_news {
        let what = Happening::status(status);
        record.tell(now, what);
    }
}

fn describe(name: &ImageName, progress: &PullProgress) -> String {
    if progress.layers.is_empty() {
        return format!("pulling {name}");
    }
    let layers = progress.layers.len();
    let done = progress.layers.iter().filter(|layer| layer.stage == LayerStage::Unpacked).count();
    let (bytes, total) = (progress.bytes() / MEGABYTE, progress.total().div_ceil(MEGABYTE));
    format!("pulling {name}: {done} of {layers} layers, {bytes} of {total} MB")
}
