//! Records as clients see them.

use std::collections::BTreeMap;

use osb_api::lifecycle::{
    CreateSandboxResponse, Image, KeptVolume, Sandbox, SandboxStatus, Snapshot, SnapshotStatus,
    Time,
};

use crate::{record::Record, snapshot_record::SnapshotRecord};

pub(crate) fn created(record: &Record) -> CreateSandboxResponse {
    CreateSandboxResponse {
        id: record.id().to_string(),
        status: status(record),
        metadata: unless_empty(&record.metadata),
        extensions: unless_empty(&record.extensions),
        platform: record.platform.clone(),
        expires_at: record.desired.expires_at.map(Time),
        created_at: Time(record.created_at),
        entrypoint: record.desired.spec.entrypoint.clone(),
    }
}

pub(crate) fn sandbox(record: &Record) -> Sandbox {
    let spec = &record.desired.spec;
    Sandbox {
        id: record.id().to_string(),
        image: match spec.snapshot {
            Some(_) => None,
            None => Some(Image { uri: spec.image.as_str().to_owned() }),
        },
        snapshot_id: spec.snapshot.map(|id| id.to_string()),
        platform: record.platform.clone(),
        status: status(record),
        metadata: unless_empty(&record.metadata),
        extensions: unless_empty(&record.extensions),
        allocation: None,
        entrypoint: record.desired.spec.entrypoint.clone(),
        expires_at: record.desired.expires_at.map(Time),
        created_at: Time(record.created_at),
    }
}

pub(crate) fn snapshot(record: &SnapshotRecord) -> Snapshot {
    Snapshot {
        id: record.id.to_string(),
        sandbox_id: record.sandbox.to_string(),
        name: record.name.clone(),
        status: SnapshotStatus {
            state: record.state.as_str().to_owned(),
            reason: Some(record.reason.clone()),
            message: Some(record.message.clone()),
            last_transition_at: Some(Time(record.since)),
        },
        created_at: Time(record.created_at),
        size_bytes: record.bytes,
    }
}

pub(crate) fn volume(
    volume: &osb_core::KeptVolume,
    bytes: Option<u64>,
) -> Result<KeptVolume, jiff::Error> {
    Ok(KeptVolume {
        name: volume.name.clone(),
        size_bytes: bytes,
        used_by: volume.used_by.iter().map(ToString::to_string).collect(),
        delete_on_sandbox_termination: volume.ephemeral,
        created_at: Time(volume.created_at.try_into()?),
    })
}

fn status(record: &Record) -> SandboxStatus {
    let status = &record.desired.status;
    SandboxStatus {
        state: status.phase.as_str().to_owned(),
        reason: Some(status.reason.as_str().to_owned()),
        message: Some(status.message.clone()),
        last_transition_at: Some(Time(status.since)),
    }
}

fn unless_empty(map: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then(|| map.clone())
}
