//! Records as clients see them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use osb_api::{
    images,
    lifecycle::{
        CreateSandboxResponse, Image, KeptVolume, Sandbox, SandboxStatus, Snapshot, SnapshotStatus,
        Template, TemplateStatus, Time,
    },
};
use osb_image::{Collected, ImageConfig, Imported, Listed, Usage};

use crate::{record::Record, snapshot_record::SnapshotRecord, template_record::TemplateRecord};

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
    // Nobody knows of the snapshot that a template is.
    let snapshot = spec.snapshot.filter(|_| record.template.is_none());
    Sandbox {
        id: record.id().to_string(),
        image: match snapshot {
            Some(_) => None,
            None => Some(Image { uri: spec.image.as_str().to_owned() }),
        },
        snapshot_id: snapshot.map(|id| id.to_string()),
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

pub(crate) fn template(record: &TemplateRecord) -> Template {
    let request = record.request.clone();
    Template {
        template_id: record.id.to_string(),
        image: request.image,
        publish: request.publish,
        resource_limits: request.resource_limits,
        entrypoint: request.entrypoint,
        env: request.env,
        metadata: request.metadata,
        readiness: request.readiness,
        format: request.format,
        status: TemplateStatus {
            phase: record.phase,
            manifest_ref: record.kept.as_ref().map(|kept| kept.manifest.clone()),
            message: record.message.clone(),
        },
        created_at: Time(record.created_at),
        updated_at: Time(record.updated_at),
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

pub(crate) fn image(listed: &Listed, used_by: u64) -> images::Image {
    let since = listed.since.and_then(|since| Timestamp::try_from(since).ok());
    images::Image {
        digest: listed.digest.to_string(),
        names: listed.names.clone(),
        size: listed.size,
        unpacked: listed.unpacked,
        own: listed.own,
        layers: listed.layers as u64,
        used_by,
        created_at: listed.created.clone(),
        since: since.map(Time),
        config: image_config(&listed.config),
    }
}

fn image_config(config: &ImageConfig) -> images::ImageConfig {
    images::ImageConfig {
        os: config.os.clone(),
        architecture: config.architecture.clone(),
        entrypoint: config.entrypoint.clone(),
        cmd: config.cmd.clone(),
        env: config.env.iter().cloned().collect(),
        user: config.user.clone(),
        workdir: config.workdir.clone(),
        stop_signal: config.stop_signal.clone(),
        exposed_ports: config.exposed_ports.clone(),
        volumes: config.volumes.clone(),
        labels: config.labels.clone(),
    }
}

pub(crate) fn image_usage(usage: &Usage) -> images::ImageUsage {
    let Usage { images, blobs, layers, shared, unused } = *usage;
    images::ImageUsage { images: images as u64, blobs, layers, shared, unused }
}

pub(crate) fn imported(imported: &Imported) -> images::ImportedImage {
    let names = imported.names.iter().map(osb_registry::Reference::familiar).collect();
    images::ImportedImage { digest: imported.digest.to_string(), names }
}

pub(crate) fn collected(collected: Collected) -> images::CollectImagesResponse {
    let Collected { images, layers, blobs, bytes } = collected;
    let count = |count: usize| count as u64;
    images::CollectImagesResponse {
        images: count(images),
        layers: count(layers),
        blobs: count(blobs),
        bytes,
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
