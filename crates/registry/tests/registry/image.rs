//! Images to push and pull.

use std::{
    io::{Seek as _, Write as _},
    time::Duration,
};

use bytes::Bytes;
use osb_registry::{
    Client, Descriptor, Login, Name, Platform, Pushed, Reference, RegistryError, RegistrySettings,
    Repository, Settings, Transport, media,
    testkit::{Registry, guard},
};
use serde_json::json;

/// A small image with its parts.
pub(crate) struct Sample {
    pub(crate) config: (Descriptor, Bytes),
    pub(crate) layers: Vec<(Descriptor, Bytes)>,
    pub(crate) manifest: (Descriptor, Bytes),
}

impl Sample {
    pub(crate) fn new(layers: usize, size: usize) -> Self {
        let content = |number: usize| -> Bytes {
            (0..size).map(|at| (at.wrapping_mul(31) + at / 251 + number).to_le_bytes()[0]).collect()
        };
        let described = |kind, content: Bytes| (Descriptor::of(kind, &content), content);
        let layers: Vec<_> =
            (0..layers).map(|it| described(media::OCI_LAYER, content(it))).collect();
        let digests: Vec<_> = layers.iter().map(|(layer, _)| layer.digest.clone()).collect();
        let config = json!({
            "os": "linux", "architecture": Platform::host().architecture, "config": {},
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let config = described(media::OCI_CONFIG, config.to_string().into());
        let all: Vec<_> = layers.iter().map(|(layer, _)| layer).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media::OCI_MANIFEST, "config": config.0, "layers": all,
        });
        let manifest = described(media::OCI_MANIFEST, manifest.to_string().into());
        Self { config, layers, manifest }
    }

    pub(crate) fn blobs(&self) -> impl Iterator<Item = &(Descriptor, Bytes)> {
        self.layers.iter().chain([&self.config])
    }

    /// An index with this image for some platforms.
    pub(crate) fn index(&self, platforms: &[&str]) -> (Descriptor, Bytes) {
        let each = platforms.iter().map(|name| {
            let platform = Platform::parse(name);
            Descriptor { platform, ..self.manifest.0.clone() }
        });
        let index = json!({
            "schemaVersion": 2, "mediaType": media::OCI_INDEX, "manifests": each.collect::<Vec<_>>(),
        });
        let content = Bytes::from(index.to_string());
        (Descriptor::of(media::OCI_INDEX, &content), content)
    }

    pub(crate) async fn push(&self, to: &Repository) -> Result<(), RegistryError> {
        for (blob, content) in self.blobs() {
            push(to, blob, content).await?;
        }
        to.push_manifest(&self.manifest.0, &self.manifest.1, Name::Tag).await
    }
}

pub(crate) async fn push(
    to: &Repository,
    blob: &Descriptor,
    content: &Bytes,
) -> Result<Pushed, RegistryError> {
    push_from(to, blob, content, None).await
}

pub(crate) async fn push_from(
    to: &Repository,
    blob: &Descriptor,
    content: &Bytes,
    from: Option<&str>,
) -> Result<Pushed, RegistryError> {
    let open = || {
        let mut file = tempfile::tempfile()?;
        file.write_all(content)?;
        file.rewind()?;
        Ok(file)
    };
    to.push_blob(blob, from, open, |_| {}).await
}

pub(crate) async fn read(
    from: &Repository,
    blob: &Descriptor,
    offset: u64,
) -> Result<Bytes, RegistryError> {
    let mut reading = from.blob(blob, offset).await?;
    let mut content = Vec::new();
    while let Some(piece) = reading.next().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content.into())
}

/// Settings for tests, with these registries that speak without TLS.
pub(crate) fn settings(plain: &[&str]) -> Settings {
    let plain = plain.iter().map(|name| {
        let transport = Transport::Plain;
        ((*name).to_owned(), RegistrySettings { transport, ..RegistrySettings::default() })
    });
    Settings {
        registries: plain.collect(),
        tries: 2,
        connect_timeout: Duration::from_secs(20),
        ..Settings::default()
    }
}

pub(crate) fn client(settings: Settings) -> Client {
    Client::new(settings, guard()).unwrap()
}

/// A repository at a registry that speaks without TLS.
pub(crate) fn repository(name: &str) -> Repository {
    let reference = Reference::parse(name).unwrap();
    client(settings(&[reference.registry()])).repository(&reference, None)
}

/// A repository at a real registry.
pub(crate) fn at(registry: &Registry, rest: &str, login: Option<Login>) -> Repository {
    client(registry.settings()).repository(&registry.reference(rest), login)
}
