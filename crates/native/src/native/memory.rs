//! Hearing of processes that the kernel ended for lack of memory.

use std::{convert::Infallible, sync::Weak, time::Duration};

use osb_sys::{
    cgroup::{Alarm, Group},
    fs::PathError,
};

use super::{Inner, Native};
use crate::sandbox::Place;

/// When to look after the alarm: under control groups of version 1 it rings before a process is
/// ended, and nothing tells afterwards.
const LOOKS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

/// What listens.
#[derive(Debug)]
pub(super) struct Ear {
    /// Nothing, where there is nothing to be listened to.
    alarm: Option<Alarm>,
    /// How many were told of before.
    told: u64,
}

impl Ear {
    /// Begins to listen to a group in which nothing has happened.
    pub(super) fn new(group: &Group) -> Self {
        Self { alarm: group.memory_alarm().inspect_err(complain).ok(), told: 0 }
    }

    /// The same for a sandbox to which nobody has listened. What happened before is told as well.
    pub(super) fn late(inner: &Weak<Inner>, place: &Place) -> Self {
        let ear = Self::new(&place.group);
        Self { told: tell(inner, place, 0), ..ear }
    }
}

/// Tells of every process of the sandbox that is ended for lack of memory. Keeps nothing of the
/// runtime alive meanwhile.
pub(super) async fn watch(inner: &Weak<Inner>, place: &Place, ear: &Ear) -> Infallible {
    if let Some(alarm) = &ear.alarm {
        let Err(error) = try_watch(inner, place, alarm, ear.told).await;
        complain(&error);
    }
    std::future::pending().await
}

fn complain(error: &PathError) {
    // One that ended meanwhile has nothing to be listened to.
    if error.kind() != std::io::ErrorKind::NotFound {
        tracing::warn!(%error, "cannot hear of a lack of memory");
    }
}

async fn try_watch(
    inner: &Weak<Inner>,
    place: &Place,
    alarm: &Alarm,
    mut told: u64,
) -> Result<Infallible, PathError> {
    loop {
        alarm.rings().await.map_err(|error| PathError::new("listen to", "memory", error))?;
        let before = told;
        for look in LOOKS {
            tokio::time::sleep(look).await;
            told = tell(inner, place, before);
            if told > before {
                break;
            }
        }
    }
}

/// Tells how many there were, if there are more than those told before.
fn tell(inner: &Weak<Inner>, place: &Place, before: u64) -> u64 {
    let kills = place.group.oom_kills();
    if kills > before
        && let Some(inner) = inner.upgrade()
    {
        let native = Native { inner };
        if let Some(entry) = native.entry(place.id) {
            drop(native.inner.news.send(native.observe(place.id, &entry)));
        }
    }
    kills.max(before)
}
