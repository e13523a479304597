use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How much output somebody wants, from all sources together.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    left: AtomicU64,
    exceeded: AtomicBool,
    told: AtomicBool,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            left: AtomicU64::new(limit),
            exceeded: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// The beginning of `bytes` that is still wanted.
    pub(crate) fn admit<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let left = self.left.load(Ordering::Relaxed);
        let admitted = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.left.store(left - admitted as u64, Ordering::Relaxed);
        if admitted < bytes.len() {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        bytes.get(..admitted).unwrap_or_default()
    }

    /// Whether something of this size is still wanted, which is whole or not at all.
    pub(crate) fn covers(&self, size: usize) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let rest = left.checked_sub(size as u64);
        self.left.store(rest.unwrap_or(left), Ordering::Relaxed);
        if rest.is_none() {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        rest.is_some()
    }

    /// What to say when something was dropped, once.
    pub(crate) fn notice(&self) -> Option<String> {
        let due = self.exceeded.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed);
        due.then(|| {
            format!("[the output is longer than {} bytes: the rest is dropped]", self.limit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_dropped_and_told_once() {
        let budget = Budget::new(5);
        assert_eq!(budget.admit(b"abc"), b"abc");
        assert!(budget.covers(1));
        assert_eq!(budget.admit(b"e"), b"e");
        assert_eq!(budget.notice(), None);
        assert_eq!(budget.admit(b"f"), b"");
        assert!(budget.notice().unwrap().contains("5 bytes"));
        assert_eq!(budget.admit(b"g"), b"");
        assert_eq!(budget.notice(), None);
    }
}
