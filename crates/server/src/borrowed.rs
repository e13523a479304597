//! Sandboxes of the server's own, of which no client hears.

use osb_api::SandboxId;

use crate::reconcile::Reconciler;

/// A sandbox that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed {
    id: SandboxId,
    reconciler: Reconciler,
}

impl Borrowed {
    pub(crate) fn new(id: SandboxId, reconciler: &Reconciler) -> Self {
        Self { id, reconciler: reconciler.clone() }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.reconciler.dismiss(self.id);
    }
}
