//! Archives and images for tests, as nobody well-meaning would make them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Seek, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use osb_core::ImageName;
use osb_registry::{Algorithm, Digest, Manifest, Reference, media};
use osb_sys::{fs, rootless::Rights, unpack::Foundation, userns::IdBase};
use tempfile::TempDir;

use crate::{
    Collected, Configuration, Image, ImageError, Images, Intake, LayerList, Limits, Settings,
    UnpackError,
    archive::{END, Packed, padding},
    unpack::{Unpacked, Unpacker},
};

/// An archive that is being written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn entry(mut self, packed: Packed, content: &[u8]) -> Self {
        self.0.extend(packed.bytes());
        self.0.extend(content);
        self.0.extend(padding(content.len() as u64));
        self
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        let packed = Packed::new(b'0', path.as_bytes(), content.len() as u64);
        self.entry(packed, content.as_bytes())
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(Packed::new(b'5', path.as_bytes(), 0).mode(mode), b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.link(b'2', path, target)
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.link(b'1', path, target)
    }

    fn link(self, kind: u8, path: &str, target: &str) -> Self {
        let mut packed = Packed::new(kind, path.as_bytes(), 0);
        packed.set(157, target.as_bytes());
        self.entry(packed, b"")
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend(END);
        self.0
    }
}

/// A record as pax writes it.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A directory in which layers are unpacked, beside a file that nothing may touch.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) root: TempDir,
    pub(crate) limits: Limits,
    layers: Vec<PathBuf>,
}

impl Place {
    /// None where this process may not give files away.
    pub(crate) fn new() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        if !osb_core::testkit::required("root", root) {
            return None;
        }
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::write(root.path().join("canary"), "sings").unwrap();
        Some(Self { root, limits: Limits::default(), layers: Vec::new() })
    }

    /// Unpacks a layer on top of those that were unpacked before.
    pub(crate) fn unpack(&mut self, archive: &[u8]) -> Result<Unpacked, UnpackError> {
        let around = self.root.path().join(format!("layer-{}", self.layers.len()));
        let unpacked = self.unpack_to(&around, archive);
        self.unpack_ahead(&around, archive, unpacked.as_ref().ok());
        assert_eq!(fs::read_to_string(self.root.path().join("canary")).unwrap(), "sings");
        if unpacked.is_ok() {
            assert_eq!(fs::names(&around).unwrap(), ["files"]);
            self.layers.insert(0, around.join("files"));
        } else {
            osb_sys::tree::remove(&around).unwrap();
        }
        unpacked
    }

    fn unpack_to(&self, around: &Path, archive: &[u8]) -> Result<Unpacked, UnpackError> {
        fs::create_dir(around, 0o700).unwrap();
        let unpacker = Unpacker {
            owners: IdBase(0),
            rights: Rights::Root,
            limits: &self.limits,
            stop: &AtomicBool::new(false),
        };
        let foundation = Foundation::open(&self.layers).unwrap();
        unpacker.unpack(blob(archive), Algorithm::Sha256, around, foundation)
    }

    /// Unpacks the same before the layers below are there, as far as that goes: it comes to the same.
    fn unpack_ahead(&self, expected: &Path, archive: &[u8], wanted: Option<&Unpacked>) {
        let around = self.root.path().join("ahead");
        fs::create_dir(&around, 0o700).unwrap();
        let (owners, rights, stop) = (IdBase(0), Rights::Root, &AtomicBool::new(false));
        let unpacker = Unpacker { owners, rights, limits: &self.limits, stop };
        let begun = unpacker.unpack_ahead(blob(archive), Algorithm::Sha256, &around);
        if let Ok(ahead) = begun {
            let foundation = Foundation::open(&self.layers).unwrap();
            let ahead = ahead.finish(&around, foundation);
            assert_eq!(ahead.as_ref().ok(), wanted);
            if wanted.is_some() {
                assert_eq!(listing(&around), listing(expected));
            }
        }
        osb_sys::tree::remove(&around).unwrap();
    }

    /// A path in the topmost layer.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.layers[0].join(path)
    }

    /// The layers, topmost first.
    pub(crate) fn layers(&self) -> &[PathBuf] {
        &self.layers
    }

    /// Why a layer is refused.
    pub(crate) fn refusal(&mut self, archive: &[u8]) -> String {
        match self.unpack(archive) {
            Ok(_) => panic!("it was unpacked"),
            Err(UnpackError::Disk { entry, source }) => {
                panic!("the disk is blamed: {entry}: {source}")
            }
            Err(error) => error.to_string(),
        }
    }
}

/// What the files of a layer are, with all that belongs to them, but for the content of
/// large ones. Marks have no times.
pub(crate) fn listing(around: &Path) -> Vec<String> {
    let (mut listed, mut ahead) = (Vec::new(), vec![around.join("files")]);
    while let Some(path) = ahead.pop() {
        let of = path.symlink_metadata().unwrap();
        let kind = of.file_type();
        let mut content = Vec::new();
        if kind.is_dir() {
            ahead.extend(fs::names(&path).unwrap().iter().map(|name| path.join(name)));
        } else if kind.is_file() && of.len() <= fs::SMALL {
            content = fs::read(&path).unwrap();
        } else if kind.is_symlink() {
            content = path.read_link().unwrap().into_os_string().into_encoded_bytes();
        }
        let mut names = [0; 4096];
        let count = rustix::fs::llistxattr(&path, &mut names[..]).unwrap();
        let (links, length) = if kind.is_dir() { (0, 0) } else { (of.nlink(), of.len()) };
        let times = (!kind.is_char_device()).then(|| (of.mtime(), of.mtime_nsec()));
        listed.push(format!(
            "{:?} {:o} {} {} {} {length} {links} {times:?} {} {:?}",
            path.strip_prefix(around).unwrap(),
            of.mode(),
            of.uid(),
            of.gid(),
            of.rdev(),
            Digest::of(&content),
            String::from_utf8_lossy(&names[..count]),
        ));
    }
    listed.sort();
    listed
}

/// A file with this content.
pub(crate) fn blob(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    file
}

pub(crate) fn digest(content: &[u8]) -> Digest {
    Digest::of(content)
}

/// A store of its own.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) root: TempDir,
    pub(crate) images: Images,
}

impl Shop {
    /// None where this process may not give files away.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Option<Self> {
        let root = Place::new()?.root;
        let images = Images::open(root.path().join("images"), IdBase(0), settings).unwrap();
        Some(Self { root, images })
    }

    /// Opens the store again, as another process would.
    pub(crate) fn reopen(self) -> Self {
        let settings = self.images.settings().clone();
        let Self { root, images } = self;
        drop(images);
        let images = Images::open(root.path().join("images"), IdBase(0), settings).unwrap();
        Self { root, images }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("images").join(path)
    }

    /// Takes in an image of these layers, which are archives, lowest first.
    pub(crate) fn add(&self, layers: &[Vec<u8>]) -> Result<Image, ImageError> {
        let intake = self.images.intake();
        let manifest = put_image(&intake, layers)?;
        intake.unpack(&manifest, |_| ())
    }

    /// As [`Self::add`], with a name.
    pub(crate) fn add_named(&self, name: &str, layers: &[Vec<u8>]) -> Image {
        let intake = self.images.intake();
        let manifest = put_image(&intake, layers).unwrap();
        let image = intake.unpack(&manifest, |_| ()).unwrap();
        intake.name(&Reference::parse(name).unwrap(), &manifest).unwrap();
        image
    }

    pub(crate) fn collect(&self) -> Collected {
        self.images.collect(&BTreeSet::new()).unwrap()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Image, ImageError> {
        self.images.find(&ImageName::new(name))
    }
}

/// Puts the blobs of an image into a store. Answers with its manifest.
pub(crate) fn put_image(intake: &Intake, layers: &[Vec<u8>]) -> Result<Digest, ImageError> {
    let diff_ids = layers.iter().map(|layer| digest(layer)).collect();
    let config = Configuration {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        rootfs: LayerList { kind: "layers".to_owned(), diff_ids },
        ..Configuration::default()
    };
    let config = intake.put(media::OCI_CONFIG, &serde_json::to_vec(&config).unwrap())?;
    let layers: Result<_, _> =
        layers.iter().map(|layer| intake.put(media::OCI_LAYER, layer)).collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config,
        layers: layers?,
        annotations: BTreeMap::new(),
    };
    let manifest = intake.put(media::OCI_MANIFEST, &serde_json::to_vec(&manifest).unwrap())?;
    Ok(manifest.digest)
}
