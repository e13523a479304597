//! Records as clients see them.

use std::collections::BTreeMap;

use osb_api::lifecycle::{CreateSandboxResponse, Image, Sandbox, SandboxStatus, Time};

use crate::record::Record;

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
    Sandbox {
        id: record.id().to_string(),
        image: Some(Image { uri: record.desired.spec.image.as_str().to_owned() }),
        snapshot_id: None,
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
