//! Layers and images to measure with, made of nothing that differs from machine to machine.

use std::{
    collections::BTreeMap,
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use osb_image::{ArchiveKind, Configuration, Entry, Images, LayerList, Settings, Tarball, What};
use osb_registry::{Descriptor, Digest, Manifest, Platform, Reference, media};
use osb_sys::rootless::Rights;
use tempfile::TempDir;

use crate::checkout::{output, tool};

/// How large the files of a large layer are, one after another: many small ones, few large ones.
const SIZES: [u64; 8] = [900, 3_000, 6_000, 12_000, 700, 40_000, 9_000, 300_000];

/// A directory, and a store in it.
pub(super) struct Workbench {
    directory: TempDir,
    images: Images,
}

/// An archive on the disk.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) path: PathBuf,
    digest: Digest,
    size: u64,
}

/// Writes plain files of root.
pub(super) struct Layers<W>(Tarball<W>);

impl<W: Write> Layers<W> {
    pub(super) fn new(to: W) -> Self {
        Self(Tarball::new(to))
    }

    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.stream(path, content.len() as u64, content)
    }

    fn stream(&mut self, path: &str, size: u64, content: impl Read) -> Result<()> {
        self.entry(path, What::File { size }, 0o644, content)
    }

    fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(path, What::Directory, 0o755, std::io::empty())
    }

    fn entry(&mut self, path: &str, what: What<'_>, mode: u32, content: impl Read) -> Result<()> {
        let extended = BTreeMap::new();
        let (path, modified) = (Path::new(path), 1_700_000_000);
        let entry = Entry { path, what, mode, user: 0, group: 0, modified, extended: &extended };
        Ok(self.0.add(&entry, content)?)
    }

    pub(super) fn finish(self) -> Result<W> {
        Ok(self.0.finish()?)
    }
}

impl Workbench {
    pub(super) fn open() -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("osb-bench-images-").tempdir_in("/var/tmp")?;
        let owners = Rights::current()?.ids_of_layers();
        let images = Images::open(directory.path().join("store"), owners, Settings::default())?;
        Ok(Self { directory, images })
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A shell, `echo`, `sleep` and what they need, as the host has them.
    pub(super) fn program_layer(&self) -> Result<Layer> {
        let path = self.directory().join("program.tar");
        let pack = "tar -chf \"$0\" --hard-dereference -C / --transform 's,^/*,,' \
                    $(ldd /bin/sh /bin/echo /bin/sleep | grep -o '/[^ :]*' | sort -u) /bin/sh /bin/echo /bin/sleep 2>/dev/null";
        output(tool("sh").args(["-c", pack]).arg(&path)).context("cannot pack a shell")?;
        Layer::of(path)
    }

    /// A layer with one file of its own.
    pub(super) fn small_layer(&self, number: usize) -> Result<Layer> {
        let path = self.directory().join(format!("small-{number}.tar"));
        let mut layers = Layers::new(osb_sys::fs::create(&path, 0o600)?);
        layers.directory("layers")?;
        layers.file(&format!("layers/{number}"), format!("{number}\n").as_bytes())?;
        layers.finish()?;
        Layer::of(path)
    }

    /// A layer of about `bytes`, in files of many sizes whose content does not compress.
    pub(super) fn large_layer(&self, bytes: u64) -> Result<Layer> {
        let path = self.directory().join(format!("large-{bytes}.tar"));
        let to = BufWriter::with_capacity(1 << 20, osb_sys::fs::create(&path, 0o600)?);
        let mut layers = Layers::new(to);
        let mut noise = Noise(bytes | 1);
        let mut written = 0;
        let mut number = 0;
        while written < bytes {
            if number % 64 == 0 {
                layers.directory(&format!("d{}", number / 64))?;
            }
            let size = SIZES.get(number % SIZES.len()).copied().unwrap_or(1);
            let content = Read::by_ref(&mut noise).take(size);
            layers.stream(&format!("d{}/f{number}", number / 64), size, content)?;
            written += size;
            number += 1;
        }
        layers.finish()?.flush()?;
        Layer::of(path)
    }

    /// Unpacks a layer as an image of this store, which forgets it again.
    pub(super) fn unpack(&self, layer: &Layer) -> Result<Duration> {
        let intake = self.images.intake();
        let manifest = describe(&intake, std::slice::from_ref(layer))?;
        let began = Instant::now();
        intake.unpack(&manifest, |_| ())?;
        let taken = began.elapsed();
        drop(intake);
        self.images.collect(&std::collections::BTreeSet::new())?;
        Ok(taken)
    }

    /// An archive with an image of these layers.
    pub(super) fn image(&self, layers: &[Layer]) -> Result<Vec<u8>> {
        let intake = self.images.intake();
        let manifest = describe(&intake, layers)?;
        let image = intake.unpack(&manifest, |_| ())?;
        let name = Reference::parse("bench")?;
        let mut archive = Vec::new();
        self.images.export(&image, ArchiveKind::Oci, &[name], &mut archive)?;
        Ok(archive)
    }
}

/// Writes what describes an image of these layers.
fn describe(intake: &osb_image::Intake, layers: &[Layer]) -> Result<Digest> {
    let mut blobs = Vec::new();
    for layer in layers {
        let wanted = Descriptor::new(media::OCI_LAYER, layer.digest.clone(), layer.size);
        if !intake.has(&layer.digest) {
            let mut draft = intake.draft()?;
            draft.fill(osb_sys::fs::open(&layer.path)?, u64::MAX)?;
            draft.finish(media::OCI_LAYER)?;
        }
        blobs.push(wanted);
    }
    let Platform { os, architecture, .. } = Platform::host();
    let diff_ids = layers.iter().map(|layer| layer.digest.clone()).collect();
    let rootfs = LayerList { kind: "layers".to_owned(), diff_ids };
    let configuration = Configuration { os, architecture, rootfs, ..Configuration::default() };
    let config = intake.put(media::OCI_CONFIG, &serde_json::to_vec(&configuration)?)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config,
        layers: blobs,
        annotations: BTreeMap::new(),
    };
    Ok(intake.put(media::OCI_MANIFEST, &serde_json::to_vec(&manifest)?)?.digest)
}

impl Layer {
    fn of(path: PathBuf) -> Result<Self> {
        let mut file = osb_sys::fs::open(&path)?;
        let mut verifier = osb_registry::Verifier::new(osb_registry::Algorithm::Sha256);
        let size = std::io::copy(&mut file, &mut verifier)?;
        Ok(Self { path, digest: verifier.finish(), size })
    }
}

/// Bytes that look like no others; always the same.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for chunk in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            for (byte, value) in chunk.iter_mut().zip(self.0.to_le_bytes()) {
                *byte = value;
            }
        }
        Ok(buffer.len())
    }
}
