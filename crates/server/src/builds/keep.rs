//! What builds leave for the next ones, and for how long.

use std::{sync::Arc, time::Duration};

use osb_api::images::BuildsResponse;
use osb_build::Bounds;
use osb_core::Chain;
use osb_sys::fs::PathError;
use tokio::task::spawn_blocking;

use super::{Builds, caches::Most};
use crate::app::App;

/// How much of what steps left is kept: that of so many, of so many bytes, and for so long after it was
/// used last.
const STEPS: Bounds = Bounds { steps: 5000, bytes: 20 << 30, age: Duration::from_hours(14 * 24) };

impl Builds {
    /// What is left of earlier builds.
    pub(crate) fn left(&self) -> Result<BuildsResponse, PathError> {
        Ok(BuildsResponse { steps: self.steps.count()? as u64, caches: self.caches.list()? })
    }

    /// Forgets what no build has used for long, or everything.
    pub(crate) async fn forget(&self, app: &App, most: Most) {
        let _alone = self.tidying.lock().await;
        let (steps, now) = (self.steps.clone(), app.clock.now().into());
        let bounds = match most {
            Most::Usual => STEPS,
            Most::Nothing => Bounds { steps: 0, ..STEPS },
        };
        match spawn_blocking(move || steps.trim(bounds, now)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "cannot forget steps of builds");
            }
            Err(error) => tracing::warn!(%error, "cannot forget steps of builds"),
        }
        if let Some(volumes) = app.reconciler.volumes() {
            self.caches.trim(volumes, app.clock.now().into(), most).await;
        }
    }
}

/// Throws away what is too much or too old, beside everything else.
pub(super) fn tidy_later(app: &App) {
    let ours = Arc::clone(app);
    app.reconciler.beside(async move {
        let Some(builds) = &ours.builds else { return };
        // Somebody is at it.
        if builds.tidying.try_lock().is_err() {
            return;
        }
        builds.forget(&ours, Most::Usual).await;
    });
}
