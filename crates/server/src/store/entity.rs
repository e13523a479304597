//! What the store keeps: sandboxes, snapshots and templates.

use std::{fmt, hash::Hash};

use jiff::Timestamp;
use osb_api::{SandboxId, SnapshotId, TemplateId};

use super::writer::{Edit, Job};
use crate::{record::Record, snapshot_record::SnapshotRecord, template_record::TemplateRecord};

/// Something that has a row of its own.
pub(crate) trait Entity: fmt::Debug + Clone + Send + Sync + 'static {
    type Key: Key<Of = Self>;

    fn key(&self) -> Self::Key;
    fn created_at(&self) -> Timestamp;

    /// The job that makes this change.
    fn job(edit: Edit<Self>) -> Job;
}

/// What names an entity.
pub(crate) trait Key: fmt::Debug + Copy + Ord + Hash + Send + Sync + 'static {
    type Of: Entity<Key = Self>;
}

impl Entity for Record {
    type Key = SandboxId;

    fn key(&self) -> SandboxId {
        self.id()
    }

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn job(edit: Edit<Self>) -> Job {
        Job::Sandbox(edit)
    }
}

impl Key for SandboxId {
    type Of = Record;
}

impl Entity for SnapshotRecord {
    type Key = SnapshotId;

    fn key(&self) -> SnapshotId {
        self.id
    }

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn job(edit: Edit<Self>) -> Job {
        Job::Snapshot(edit)
    }
}

impl Key for SnapshotId {
    type Of = SnapshotRecord;
}

impl Entity for TemplateRecord {
    type Key = TemplateId;

    fn key(&self) -> TemplateId {
        self.id
    }

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn job(edit: Edit<Self>) -> Job {
        Job::Template(edit)
    }
}

impl Key for TemplateId {
    type Of = TemplateRecord;
}
