use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use osb_core::{Chain, Observed};
use tokio::time::{Instant, MissedTickBehavior};

use super::Shared;

/// The watch may skip things; a list in between makes up for it.
const LIST_EVERY: Duration = Duration::from_mins(1);

/// Passes on what the runtime says, until the server ends.
pub(super) async fn pump(shared: Arc<Shared>, mut news: BoxStream<'static, Observed>) {
    let mut lists = tokio::time::interval_at(Instant::now() + LIST_EVERY, LIST_EVERY);
    lists.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = false;
    loop {
        tokio::select! {
            observed = news.next(), if !ended => {
                if let Some(observed) = observed {
                    shared.sightings.hear(&observed);
                } else {
                    tracing::warn!("the runtime's watch ended; it is opened again");
                    ended = true;
                }
            }
            _ = lists.tick() => {
                if std::mem::take(&mut ended) {
                    news = shared.runtime.watch();
                }
                look(&shared).await;
            }
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Compares what was seen with what is, and removes what nobody knows.
async fn look(shared: &Shared) {
    let settled = shared.sightings.settled();
    match shared.runtime.list().await {
        Ok(list) => {
            remove_orphans(shared, &list).await;
            shared.sightings.compare(&settled, list);
        }
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "the runtime could not list its sandboxes");
        }
    }
}

/// Removes sandboxes without a record: nobody could ever ask for them. Records are shown before
/// the runtime hears of a sandbox, and deleted after it has removed it.
pub(super) async fn remove_orphans(shared: &Shared, list: &[Observed]) {
    for Observed { id, .. } in list {
        if shared.store.index().get(*id).is_some() {
            continue;
        }
        match shared.runtime.remove(*id).await {
            Ok(()) => tracing::warn!(sandbox_id = %id, "removed a sandbox that nobody knows"),
            Err(error) => tracing::error!(
                sandbox_id = %id, error = %Chain(&error),
                "a sandbox that nobody knows could not be removed; it is tried again"
            ),
        }
    }
}
