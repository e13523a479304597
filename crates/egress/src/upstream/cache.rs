use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::OnceCell, time::Instant};

use super::Resolved;
use crate::Name;

/// What names resolved to, as long as that is true. Who asks for what another is asking for
/// already waits for the same answer.
#[derive(Debug, Default)]
pub(super) struct Cache {
    known: Mutex<HashMap<Name, Arc<OnceCell<Known>>>>,
}

#[derive(Debug)]
struct Known {
    resolved: Resolved,
    until: Instant,
}

impl Cache {
    const MOST: usize = 16 * 1024;

    pub(super) async fn find<F>(&self, name: &Name, ask: impl FnOnce() -> F) -> Resolved
    where
        F: Future<Output = (Resolved, Duration)>,
    {
        let cell = self.cell(name);
        let known = cell
            .get_or_init(async || {
                let (resolved, believed) = ask().await;
                Known { resolved, until: Instant::now() + believed }
            })
            .await;
        known.resolved.clone()
    }

    /// Where the answer is or will be.
    fn cell(&self, name: &Name) -> Arc<OnceCell<Known>> {
        let now = Instant::now();
        let is_old = |cell: &Arc<OnceCell<Known>>| cell.get().is_some_and(|it| it.until <= now);
        let mut known = self.lock();
        if let Some(cell) = known.get(name)
            && !is_old(cell)
        {
            return cell.clone();
        }
        if known.len() >= Self::MOST && !known.contains_key(name) {
            known.retain(|_, cell| !is_old(cell));
            // Full of what is true still: any goes, since all can be asked for again.
            let surplus = (known.len() + Self::MOST / 8).saturating_sub(Self::MOST);
            let some: Vec<Name> = known.keys().take(surplus).cloned().collect();
            for name in some {
                known.remove(&name);
            }
        }
        let cell = Arc::<OnceCell<Known>>::default();
        known.insert(name.clone(), cell.clone());
        cell
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<OnceCell<Known>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_asked_for_again_when_it_is_old() {
        let cache = Cache::default();
        let name = Name::parse("a.test").unwrap();
        let asked = Cell::new(0);
        let find = || {
            cache.find(&name, async || {
                asked.set(asked.get() + 1);
                tokio::time::sleep(Duration::from_millis(10)).await;
                (Resolved::Nothing, Duration::from_secs(5))
            })
        };
        let (first, second) = tokio::join!(find(), find());
        assert_eq!((first, second, asked.get()), (Resolved::Nothing, Resolved::Nothing, 1));
        tokio::time::advance(Duration::from_secs(4)).await;
        find().await;
        assert_eq!(asked.get(), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        find().await;
        assert_eq!(asked.get(), 2);
    }

    #[tokio::test]
    async fn it_does_not_grow_without_end() {
        let cache = Cache::default();
        for n in 0..Cache::MOST + 100 {
            let name = Name::parse(&format!("n{n}.test")).unwrap();
            cache.find(&name, async || (Resolved::Nothing, Duration::from_mins(1))).await;
        }
        assert!(cache.lock().len() <= Cache::MOST);
    }
}
