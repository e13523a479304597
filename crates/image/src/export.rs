//! Images as archives for others.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use osb_registry::{Descriptor, Digest, Document, Index, Reference, media};
use serde::Serialize;

use crate::{
    Image, ImageError, Images, Intake,
    archive::{END, Packed, padding},
};

/// What an archive is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveKind {
    /// A layout of the OCI.
    Oci,
    /// The same, and what `docker load` looks for beside it.
    Docker,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

impl Images {
    /// Writes an image to an archive, in which it has these names.
    pub fn export(
        &self,
        image: &Image,
        kind: ArchiveKind,
        names: &[Reference],
        to: impl Write,
    ) -> Result<(), ImageError> {
        let Some(digest) = &image.digest else {
            let why = "the programs of this host are no image for others".to_owned();
            return Err(ImageError::Refused(why));
        };
        let intake = self.intake();
        let text = intake.document(digest)?;
        let document = Document::parse(&text, None).map_err(ImageError::Manifest)?;
        let Document::Manifest(manifest) = document else {
            return Err(ImageError::Refused("its manifest is a list".to_owned()));
        };
        let media_type = manifest.media_type.as_deref().unwrap_or(media::OCI_MANIFEST);
        let index = index(&Descriptor::of(media_type, &text), names);
        let saved = Saved {
            config: path(&manifest.config.digest),
            repo_tags: names.iter().filter(|name| name.tag().is_some()).map(tag).collect(),
            layers: manifest.layers.iter().map(|layer| path(&layer.digest)).collect(),
        };
        let mut archive = Writer { to };
        archive.small("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        for directory in ["blobs", "blobs/sha256"] {
            archive.write(&Packed::directory(directory).bytes())?;
        }
        archive.small("index.json", &json(&index)?)?;
        if kind == ArchiveKind::Docker {
            archive.small("manifest.json", &json(&[saved])?)?;
        }
        archive.small(&path(digest), &text)?;
        let config = intake.document(&manifest.config.digest)?;
        archive.small(&path(&manifest.config.digest), &config)?;
        let mut written = Vec::new();
        for layer in &manifest.layers {
            // An image may have the same layer twice.
            if !written.contains(&&layer.digest) {
                archive.blob(&intake, layer)?;
                written.push(&layer.digest);
            }
        }
        archive.write(&END)?;
        archive.to.flush().map_err(ImageError::Write)
    }
}

fn index(manifest: &Descriptor, names: &[Reference]) -> Index {
    let with_name = |name: &Reference| {
        let mut descriptor = manifest.clone();
        let notes = &mut descriptor.annotations;
        notes.insert("io.containerd.image.name".to_owned(), name.to_string());
        let tag = name.tag().unwrap_or_default().to_owned();
        notes.insert("org.opencontainers.image.ref.name".to_owned(), tag);
        descriptor
    };
    let mut manifests: Vec<_> = names.iter().map(with_name).collect();
    if manifests.is_empty() {
        manifests.push(manifest.clone());
    }
    Index {
        schema_version: 2,
        media_type: Some(media::OCI_INDEX.to_owned()),
        manifests,
        annotations: BTreeMap::new(),
    }
}

/// The name that Docker gives an image, which has a tag and no digest.
fn tag(name: &Reference) -> String {
    let familiar = name.familiar();
    familiar.split_once('@').map_or_else(|| familiar.clone(), |(name, _)| name.to_owned())
}

fn path(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().as_str(), digest.hex())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ImageError> {
    serde_json::to_vec(value).map_err(|error| ImageError::Refused(error.to_string()))
}

struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    fn small(&mut self, name: &str, content: &[u8]) -> Result<(), ImageError> {
        let size = content.len() as u64;
        self.write(&Packed::file(name, size).bytes())?;
        self.write(content)?;
        self.write(padding(size))
    }

    fn blob(&mut self, intake: &Intake, blob: &Descriptor) -> Result<(), ImageError> {
        let mut file = intake.blob(&blob.digest)?;
        let size = file.metadata().map_err(ImageError::Read)?.len();
        self.write(&Packed::file(&path(&blob.digest), size).bytes())?;
        let mut buffer = vec![0; 1 << 20];
        let mut left = size;
        while left > 0 {
            let count = file.read(&mut buffer).map_err(ImageError::Read)?;
            if count == 0 {
                return Err(ImageError::Read(io::ErrorKind::UnexpectedEof.into()));
            }
            self.write(buffer.get(..count).unwrap_or_default())?;
            left = left.saturating_sub(count as u64);
        }
        self.write(padding(size))
    }

    fn write(&mut self, content: &[u8]) -> Result<(), ImageError> {
        self.to.write_all(content).map_err(ImageError::Write)
    }
}
