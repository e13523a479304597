//! The sessions that there are.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use osb_api::execd::{IsolatedListed, IsolatedStatus};
use osb_sys::{memfd, message};
use uuid::Uuid;

use super::{
    maker::{Maker, Source},
    request::Order,
    session::Session,
};
use crate::{daemon::Daemon, error::ApiError};

/// The most sessions that run at a time, and the most that are remembered beside them.
const SESSIONS: usize = 32;

/// The isolated sessions of this execd.
#[derive(Debug)]
pub(crate) struct Isolation {
    maker: Maker,
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    known: BTreeMap<Uuid, Arc<Session>>,
    /// Being made now.
    coming: usize,
}

impl Isolation {
    pub(crate) fn new(source: Source) -> Self {
        Self { maker: Maker::new(source), sessions: Mutex::default() }
    }

    pub(super) fn unavailable(&self) -> Option<String> {
        self.maker.unavailable()
    }

    pub(super) fn list(&self) -> Vec<IsolatedListed> {
        let mut sessions: Vec<_> = self.sessions().known.values().cloned().collect();
        sessions.sort_by_key(|session| session.created_at);
        sessions.iter().map(|session| session.summarize()).collect()
    }

    /// Those that have not ended.
    pub(crate) fn active(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions();
        sessions.known.values().filter(|session| session.is_active()).cloned().collect()
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, ApiError> {
        if let Some(reason) = self.unavailable() {
            return Err(ApiError::unavailable(reason));
        }
        let known = Uuid::try_parse(id).ok();
        let known = known.and_then(|id| self.sessions().known.get(&id).cloned());
        known.ok_or_else(|| ApiError::no_isolated(id))
    }

    /// Ends and forgets a session; its processes and mounts are gone then.
    pub(super) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let session = self.get(id)?;
        self.sessions().known.remove(&session.id);
        session.end(IsolatedStatus::Destroyed);
        session.gone().await;
        Ok(())
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that a session being made will have.
struct Coming<'a>(&'a Isolation);

impl<'a> Coming<'a> {
    fn reserve(isolation: &'a Isolation) -> Result<Self, ApiError> {
        let mut sessions = isolation.sessions();
        let active = sessions.known.values().filter(|session| session.is_active()).count();
        if active + sessions.coming >= SESSIONS {
            let message = format!("there are {SESSIONS} isolated sessions already");
            return Err(ApiError::unavailable(message));
        }
        // Those that have ended are remembered for a while, the oldest forgotten first.
        if sessions.known.len() - active >= SESSIONS {
            let ended = sessions.known.values().filter(|session| !session.is_active());
            let oldest = ended.min_by_key(|session| session.created_at).map(|session| session.id);
            oldest.map(|id| sessions.known.remove(&id));
        }
        sessions.coming += 1;
        Ok(Self(isolation))
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.sessions().coming -= 1;
    }
}

/// Makes a session. If the caller gives up meanwhile, the session ends with its channel.
pub(super) async fn open(daemon: &Arc<Daemon>, order: Order) -> Result<Arc<Session>, ApiError> {
    let isolation = &daemon.isolation;
    let Order { request, open, boot, idle } = order;
    if let Some(reason) = isolation.unavailable() {
        return Err(ApiError::unavailable(reason));
    }
    let coming = Coming::reserve(isolation)?;
    let text = serde_json::to_vec(&boot).expect("invariant: instructions have string keys");
    let prepared = || -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
        let (ours, theirs) = message::channel()?;
        Ok((memfd::with_content("boot", &text)?.into(), theirs, ours))
    };
    let (instructions, theirs, ours) = prepared().map_err(|error| ApiError::runtime(&error))?;
    let process = isolation.maker.open(daemon, open, [instructions, theirs]).await?;
    let session = Session::start(daemon, request, &boot, idle, ours, process).await?;
    let mut sessions = isolation.sessions();
    sessions.known.insert(session.id, Arc::clone(&session));
    drop(sessions);
    drop(coming);
    daemon.tasks.spawn(Arc::clone(&session).watch(Arc::clone(daemon)));
    Ok(session)
}
