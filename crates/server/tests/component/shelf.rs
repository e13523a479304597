//! Images and registries for servers that are tested.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use osb_core::{ImageName, testkit::required};
use osb_image::{
    Configuration, Entry, Images, LayerList, Remote, RunConfiguration, Settings, Tarball, What,
};
use osb_registry::{
    Client, Digest, Manifest, Platform, Reference, media,
    testkit::{Kind, Registry, guard},
};
use osb_sys::userns::IdBase;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::task::TaskTracker;

/// Where the images of a server come from.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) registries: osb_registry::Settings,
    pub(crate) store: Settings,
}

impl Shelf {
    pub(crate) fn of(registry: &Registry) -> Self {
        Self { registries: registry.settings(), store: Settings::default() }
    }

    /// The images of the server whose data is in this directory.
    pub(crate) fn open(&self, directory: &Path) -> Remote {
        let images = store(&directory.join("images"), self.store.clone());
        Remote::new(images, Client::new(self.registries.clone(), guard()).expect("a client"))
    }
}

fn store(directory: &PathBuf, settings: Settings) -> Images {
    Images::open(directory, IdBase(0), settings).expect("a store")
}

/// Whether this process may give files away, as layers need it to.
pub(crate) fn can_unpack() -> bool {
    required("root", rustix::process::geteuid().is_root())
}

/// An archive with one file.
pub(crate) fn layer(name: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = Tarball::new(Vec::new());
    let entry = Entry {
        path: Path::new(name),
        what: What::File { size: content.len() as u64 },
        mode: 0o644,
        user: 0,
        group: 0,
        modified: 0,
        extended: &BTreeMap::new(),
    };
    archive.add(&entry, content).expect("an entry");
    archive.finish().expect("an archive")
}

/// Content of which no part is like another.
pub(crate) fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56).to_le_bytes()[0]
    });
    bytes.take(size).collect()
}

/// Puts an image into a store under a name.
pub(crate) fn add(images: &Images, name: &str, layers: &[Vec<u8>], run: RunConfiguration) {
    let intake = images.intake();
    let Platform { os, architecture, .. } = Platform::host();
    let diff_ids = layers.iter().map(|layer| Digest::of(layer)).collect();
    let configuration = Configuration {
        os,
        architecture,
        config: run,
        rootfs: LayerList { kind: "layers".to_owned(), diff_ids },
        ..Configuration::default()
    };
    let put = |kind: &str, content: &[u8]| intake.put(kind, content).expect("a blob");
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config: put(media::OCI_CONFIG, &serde_json::to_vec(&configuration).expect("JSON")),
        layers: layers.iter().map(|layer| put(media::OCI_LAYER, layer)).collect(),
        annotations: BTreeMap::new(),
    };
    let manifest = put(media::OCI_MANIFEST, &serde_json::to_vec(&manifest).expect("JSON"));
    intake.unpack(&manifest.digest, |_| ()).expect("an image");
    intake.name(&Reference::parse(name).expect("a name"), &manifest.digest).expect("a name");
}

/// A registry with an image, and what is needed to fill it.
pub(crate) struct Publisher {
    pub(crate) registry: Registry,
    directory: tempfile::TempDir,
}

impl Publisher {
    /// `None` if this machine has none.
    pub(crate) async fn start(kind: Kind) -> Option<Self> {
        if !can_unpack() {
            return None;
        }
        let registry = Registry::start(kind).await?;
        Some(Self { registry, directory: tempfile::tempdir().expect("a directory") })
    }

    /// The whole name of an image there.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.name())
    }

    /// Makes an image and pushes it.
    pub(crate) async fn publish(&self, rest: &str, layers: &[Vec<u8>], run: RunConfiguration) {
        let images = store(&self.directory.path().join("images"), Settings::default());
        add(&images, rest, layers, run);
        let client = Client::new(self.registry.settings(), guard()).expect("a client");
        let login = Some(osb_registry::testkit::login());
        let to = self.registry.reference(rest);
        let (remote, image) = (Remote::new(images, client), ImageName::new(rest));
        remote.push(&image, &to, login, |_| {}).await.expect("a push");
    }
}

/// What is between a server and its registry: it passes connections on, and may hold all of them.
pub(crate) struct Valve {
    pub(crate) name: String,
    open: watch::Sender<bool>,
    tasks: TaskTracker,
}

impl Valve {
    /// Passes on so many bytes of what the registry sends on each connection, and then waits for
    /// the valve to open.
    pub(crate) async fn before(registry: &Registry, bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let name = listener.local_addr().expect("an address").to_string();
        let (open, is_open) = watch::channel(false);
        let tasks = TaskTracker::new();
        let (target, spawner) = (registry.name(), tasks.clone());
        tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, is_open) = (target.clone(), is_open.clone());
                spawner.spawn(async move { pass(client, &target, is_open, bytes).await });
            }
        });
        Self { name, open, tasks }
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// What an operator would write about the registry behind it.
    pub(crate) fn shelf(&self) -> Shelf {
        let registry = osb_registry::RegistrySettings {
            transport: osb_registry::Transport::Plain,
            ..osb_registry::RegistrySettings::default()
        };
        let registries = osb_registry::Settings {
            registries: [(self.name.clone(), registry)].into(),
            tries: 1,
            ..osb_registry::Settings::default()
        };
        Shelf { registries, store: Settings::default() }
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

async fn pass(
    client: TcpStream,
    target: &str,
    mut is_open: watch::Receiver<bool>,
    mut left: usize,
) {
    let Ok(registry) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_registry, mut to_registry) = registry.into_split();
    let ask = tokio::io::copy(&mut from_client, &mut to_registry);
    let answer = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_registry.read(&mut buffer).await {
            let passes = left >= count;
            left = left.saturating_sub(count);
            if !passes && is_open.wait_for(|open| *open).await.is_err() {
                return;
            }
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = ask => {}
        () = answer => {}
    }
}

/// How long a server in a test waits for something that is held on purpose.
pub(crate) const IMPATIENT: Duration = Duration::from_millis(50);
