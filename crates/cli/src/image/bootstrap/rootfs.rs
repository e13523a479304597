use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek as _, Write},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use osb_image::{Configuration, Entry, LayerList, RunConfiguration, Step, Tarball, What};
use osb_registry::{Algorithm, Descriptor, Digest, Index, Manifest, Platform, Verifier, media};
use serde::Serialize;

/// Where large files wait that are gone after a while. `/tmp` is memory on many machines.
const PLACE: &str = "/var/tmp";
const PIECE: usize = 256 << 10;

/// A root file system as the one layer of an image, in a file without a name.
#[derive(Debug)]
pub(super) struct Rootfs {
    layer: File,
    described: Descriptor,
    /// What it hashes to when it is not compressed.
    diff_id: Digest,
}

impl Rootfs {
    /// Compresses an archive.
    pub(super) fn pack(mut tar: impl Read) -> io::Result<Self> {
        let file = tempfile::tempfile_in(PLACE).or_else(|_| tempfile::tempfile())?;
        let counted = Counted { file, digest: Verifier::new(Algorithm::Sha256), size: 0 };
        let mut packed = GzEncoder::new(counted, Compression::default());
        let mut plain = Verifier::new(Algorithm::Sha256);
        let mut buffer = vec![0; PIECE];
        loop {
            let count = match tar.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let piece = buffer.get(..count).unwrap_or_default();
            plain.update(piece);
            packed.write_all(piece)?;
        }
        let Counted { mut file, digest, size } = packed.finish()?;
        file.rewind()?;
        let described = Descriptor::new(media::OCI_LAYER_GZIP, digest.finish(), size);
        Ok(Self { layer: file, described, diff_id: plain.finish() })
    }

    /// About as many bytes as [`Rootfs::write`] writes.
    pub(super) fn size(&self) -> u64 {
        self.described.size
    }

    /// Writes the image as a layout of the OCI.
    pub(super) fn write(self, to: &mut dyn Write) -> io::Result<()> {
        let platform = Platform::host();
        let configuration = json(&Configuration {
            architecture: platform.architecture,
            os: platform.os,
            variant: platform.variant,
            config: RunConfiguration {
                env: vec![format!("PATH={PATH}")],
                cmd: vec!["bash".to_owned()],
                ..RunConfiguration::default()
            },
            rootfs: LayerList { kind: "layers".to_owned(), diff_ids: vec![self.diff_id] },
            history: vec![Step {
                created_by: Some("osb image bootstrap".to_owned()),
                ..Step::default()
            }],
            ..Configuration::default()
        })?;
        let config = Descriptor::of(media::OCI_CONFIG, &configuration);
        let manifest = json(&Manifest {
            schema_version: 2,
            media_type: Some(media::OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config: config.clone(),
            layers: vec![self.described.clone()],
            annotations: BTreeMap::new(),
        })?;
        let described = Descriptor::of(media::OCI_MANIFEST, &manifest);
        let index = json(&Index {
            schema_version: 2,
            media_type: Some(media::OCI_INDEX.to_owned()),
            manifests: vec![described.clone()],
            annotations: BTreeMap::new(),
        })?;
        let mut archive = Archive { tarball: Tarball::new(to) };
        archive.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.directory("blobs")?;
        archive.directory("blobs/sha256")?;
        archive.file("index.json", &index)?;
        archive.file(&path(&described), &manifest)?;
        archive.file(&path(&config), &configuration)?;
        archive.put(
            &path(&self.described),
            What::File { size: self.described.size },
            self.layer,
        )?;
        archive.tarball.finish()?;
        Ok(())
    }
}

/// What Debian gives users, and the image on Docker's registry says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn path(blob: &Descriptor) -> String {
    format!("blobs/sha256/{}", blob.digest.hex())
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

struct Archive<'a> {
    tarball: Tarball<&'a mut dyn Write>,
}

impl Archive<'_> {
    fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.put(name, What::File { size: content.len() as u64 }, content)
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        self.put(name, What::Directory, io::empty())
    }

    fn put(&mut self, name: &str, what: What<'_>, content: impl Read) -> io::Result<()> {
        let mode = if what == What::Directory { 0o755 } else { 0o644 };
        let (path, extended) = (Path::new(name), &BTreeMap::new());
        let entry = Entry { path, what, mode, user: 0, group: 0, modified: 0, extended };
        self.tarball.add(&entry, content)
    }
}

/// A file that knows what it hashes to.
struct Counted {
    file: File,
    digest: Verifier,
    size: u64,
}

impl Write for Counted {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let count = self.file.write(content)?;
        self.digest.update(content.get(..count).unwrap_or_default());
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use osb_core::{ImageName, testkit};
    use osb_image::{Images, Settings};
    use osb_registry::Reference;
    use osb_sys::userns::IdBase;

    use super::*;

    /// A root file system with one file.
    fn tar() -> Vec<u8> {
        let mut archive = Tarball::new(Vec::new());
        let extended = &BTreeMap::new();
        for (path, what) in [("etc", What::Directory), ("etc/issue", What::File { size: 6 })] {
            let entry = Entry {
                path: Path::new(path),
                what,
                mode: 0o755,
                user: 0,
                group: 0,
                modified: 0,
                extended,
            };
            let content = if what == What::Directory { &b""[..] } else { b"Debian" };
            archive.add(&entry, content).unwrap();
        }
        archive.finish().unwrap()
    }

    #[test]
    fn the_store_takes_in_what_is_written() {
        if !testkit::required("root", rustix::process::geteuid().is_root()) {
            return;
        }
        let mut archive = Vec::new();
        Rootfs::pack(&tar()[..]).unwrap().write(&mut archive).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path(), IdBase(0), Settings::default()).unwrap();
        let name = Reference::parse("debian:bookworm").unwrap();
        let imported = images.import(&archive[..], Some(&name)).unwrap();
        assert_eq!(imported.len(), 1);
        let image = images.find(&ImageName::new("debian:bookworm")).unwrap();
        assert_eq!(image.config.cmd, ["bash"]);
        assert_eq!(image.config.env[0], ("PATH".to_owned(), PATH.to_owned()));
    }

    #[test]
    fn the_same_files_are_the_same_image() {
        let write = || {
            let mut archive = Vec::new();
            Rootfs::pack(&tar()[..]).unwrap().write(&mut archive).unwrap();
            archive
        };
        assert_eq!(write(), write());
    }
}
