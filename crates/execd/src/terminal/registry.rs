use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use super::{request::Order, session::Terminal};
use crate::{daemon::Daemon, error::ApiError};

/// How many terminals there are at most. Each may keep a mebibyte of output.
const MOST: usize = 64;
/// How long a terminal is kept in which nothing runs and to which nobody is attached.
const IDLE: Duration = Duration::from_mins(30);

/// All terminals.
#[derive(Debug, Default)]
pub(crate) struct Terminals(Mutex<HashMap<Uuid, Arc<Terminal>>>);

impl Terminals {
    pub(super) fn add(daemon: &Arc<Daemon>, order: Order) -> Result<Arc<Terminal>, ApiError> {
        let terminal = Arc::new(Terminal::new(order));
        let mut all = daemon.terminals.all();
        if all.len() >= MOST {
            return Err(ApiError::too_many("terminals", MOST));
        }
        all.insert(terminal.id, Arc::clone(&terminal));
        drop(all);
        let (registry, kept) = (Arc::clone(daemon), Arc::clone(&terminal));
        daemon.tasks.spawn(async move {
            let idle = kept.idle_for(IDLE);
            if registry.ending.run_until_cancelled(idle).await.is_some() {
                registry.terminals.take(&kept.id.to_string());
            }
        });
        Ok(terminal)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Terminal>> {
        self.all().get(&Uuid::try_parse(id).ok()?).cloned()
    }

    pub(super) fn take(&self, id: &str) -> Option<Arc<Terminal>> {
        self.all().remove(&Uuid::try_parse(id).ok()?)
    }

    /// How many run something.
    pub(crate) fn running(&self) -> usize {
        self.all().values().filter(|terminal| terminal.is_at_work()).count()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Terminal>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
