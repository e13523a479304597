//! Files, and what is kept of them.

use async_trait::async_trait;
use osb_api::{SandboxId, SnapshotId};

use super::{Call, FakeRuntime, Files, Gate};
use crate::{Kept, ObservedState, RuntimeError, Snapshots};

impl FakeRuntime {
    /// The same runtime without the power to take snapshots.
    #[must_use]
    pub fn without_snapshots(self) -> Self {
        Self { snapshots: false, ..self }
    }

    /// Holds back every further snapshot until the gate opens.
    pub fn hold_snapshots(&self) -> Gate {
        let (gate, barrier) = Gate::new();
        self.state().shutter = Some(barrier);
        gate
    }

    /// Writes a file in a sandbox.
    pub fn write_file(&self, id: SandboxId, path: &str, text: &str) {
        if let Some(sandbox) = self.state().sandboxes.get_mut(&id) {
            sandbox.files.insert(path.to_owned(), text.to_owned());
        }
    }

    /// What is in a file of a sandbox.
    pub fn read_file(&self, id: SandboxId, path: &str) -> Option<String> {
        self.state().sandboxes.get(&id)?.files.get(path).cloned()
    }

    /// Puts a snapshot into the world that nobody asked for.
    pub fn add_orphan_snapshot(&self) -> SnapshotId {
        let id = SnapshotId::random();
        self.state().snapshots.insert(id, Files::new());
        id
    }

    pub fn has_snapshot(&self, id: SnapshotId) -> bool {
        self.state().snapshots.contains_key(&id)
    }
}

#[async_trait]
impl Snapshots for FakeRuntime {
    async fn take(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Kept, RuntimeError> {
        self.begin(Call::TakeSnapshot)?;
        let shutter = self.state().shutter.clone();
        if let Some(shutter) = shutter {
            shutter.pass().await;
        }
        let mut state = self.state();
        if let Some(files) = state.snapshots.get(&id) {
            return Ok(kept(id, files));
        }
        let found = state.sandboxes.get(&sandbox);
        let up = found
            .filter(|found| matches!(found.state, ObservedState::Running | ObservedState::Paused));
        let files = up.ok_or(RuntimeError::NotFound(sandbox))?.files.clone();
        let kept = kept(id, &files);
        state.snapshots.insert(id, files);
        Ok(kept)
    }

    async fn delete(&self, id: SnapshotId) -> Result<(), RuntimeError> {
        self.begin(Call::DeleteSnapshot)?;
        self.state().snapshots.remove(&id);
        Ok(())
    }

    async fn kept(&self) -> Result<Vec<Kept>, RuntimeError> {
        self.begin(Call::ListSnapshots)?;
        Ok(self.state().snapshots.iter().map(|(id, files)| kept(*id, files)).collect())
    }
}

fn kept(id: SnapshotId, files: &Files) -> Kept {
    Kept { id, bytes: files.values().map(|text| text.len() as u64).sum() }
}
