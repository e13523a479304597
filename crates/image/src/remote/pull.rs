use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::available_parallelism,
};

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use osb_core::ImageName;
use osb_registry::{
    Descriptor, Digest, Found, Login, Manifest, Platform, Reference, RegistryError, Repository,
    media,
};
use tokio::{runtime::Handle, sync::watch, task::spawn_blocking};

use super::{
    LayerProgress, LayerStage, Phase, PullProgress, Remote, RemoteError,
    blob::Fetcher,
    flights::{Asked, Flight},
};
use crate::{Configuration, Image, ImageError, Intake, store::merged_of};

/// The longest configuration of an image.
const LARGEST_CONFIG: usize = 4 << 20;
/// How many layers of an image are unpacked side by side, if there are as many cores.
const MOST_AT_ONCE: usize = 4;

/// A pull that is going on. It ends when it is done, and when nobody waits for it.
#[derive(Debug)]
pub struct Pull {
    flight: Flight,
    progress: watch::Receiver<PullProgress>,
}

/// An image that was pulled.
#[derive(Debug, Clone)]
pub struct Pulled {
    pub image: Image,
    /// Of its manifest.
    pub digest: Digest,
    /// Whether anything came that was not here.
    pub is_new: bool,
}

impl Pulled {
    fn new(image: Image, is_new: bool) -> Result<Self, RemoteError> {
        let digest = image.digest.clone().ok_or(RemoteError::Ended)?;
        Ok(Self { image, digest, is_new })
    }
}

impl Pull {
    /// How far it is, now and from now on.
    pub fn progress(&self) -> watch::Receiver<PullProgress> {
        self.progress.clone()
    }
}

impl Future for Pull {
    type Output = Result<Pulled, Arc<RemoteError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.flight.poll_unpin(context)
    }
}

impl Remote {
    /// Begins to pull an image for a platform and to give it its name here, or joins those who wait
    /// for the same. Nothing happens unless somebody waits for the answer.
    pub fn pull(&self, reference: &Reference, login: Option<Login>, platform: &Platform) -> Pull {
        let asked = Asked::new(reference.clone(), platform.clone(), login.as_ref());
        let start = || {
            let (send, progress) = watch::channel(PullProgress::default());
            let repository = self.client.repository(reference, login);
            let pulling = Pulling {
                intake: Arc::new(self.images.intake()),
                remote: self.clone(),
                repository,
                platform: platform.clone(),
                progress: send,
            };
            let flight = async move { pulling.run().await.map_err(Arc::new) };
            (flight.boxed().shared(), progress)
        };
        let (flight, progress) = self.flights.join(&asked, start);
        Pull { flight, progress }
    }
}

struct Pulling {
    remote: Remote,
    /// Holds what is here of the image.
    intake: Arc<Intake>,
    repository: Repository,
    platform: Platform,
    progress: watch::Sender<PullProgress>,
}

impl Pulling {
    async fn run(self) -> Result<Pulled, RemoteError> {
        let reference = self.repository.reference();
        let name = ImageName::new(reference.to_string());
        let is_known = self.remote.images.find(&name).is_ok();
        // One question is enough if nothing has changed, and one too many if nothing is here.
        let known = match (is_known, reference.digest()) {
            (_, Some(digest)) => self.known(digest),
            (true, None) => self.known(&self.repository.resolve().await?.digest),
            (false, None) => None,
        };
        let pulled = match known {
            Some(image) => Pulled::new(image, false),
            None => self.fetch().await,
        }?;
        let (intake, reference) = (Arc::clone(&self.intake), reference.clone());
        let digest = pulled.digest.clone();
        spawn_blocking(move || intake.name_as_pulled(&reference, &digest)).await??;
        self.progress.send_modify(|progress| progress.phase = Phase::Done);
        Ok(pulled)
    }

    /// The image that this digest stands for on the platform, if all of it is here.
    fn known(&self, digest: &Digest) -> Option<Image> {
        let Remote { images, leads, .. } = &self.remote;
        let image = leads.find(images, digest, &self.platform)?;
        let config = &image.config;
        is_for(&config.os, &config.architecture, &self.platform).then_some(image)
    }

    async fn fetch(&self) -> Result<Pulled, RemoteError> {
        let found = self.repository.image(&self.platform).await?;
        let manifest = &found.manifest;
        self.check(manifest)?;
        let config = self.repository.small_blob(&manifest.config, LARGEST_CONFIG).await?;
        let configuration: Configuration = serde_json::from_slice(&config)
            .map_err(|error| ImageError::Refused(format!("its configuration is wrong: {error}")))?;
        self.check_platform(&configuration)?;
        let diff_ids = configuration.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() {
            let (layers, listed) = (manifest.layers.len(), diff_ids.len());
            let problem =
                format!("its manifest has {layers} layers and its configuration {listed}");
            return Err(ImageError::Refused(problem).into());
        }
        self.progress.send_modify(|progress| {
            progress.phase = Phase::Fetching;
            progress.layers = manifest.layers.iter().map(waiting).collect();
        });
        let (downloaded, watching) = watch::channel(BTreeSet::new());
        tokio::try_join!(
            self.download(&manifest.layers, &downloaded),
            self.unpack(&manifest.layers, &diff_ids, watching),
        )?;
        let (intake, remote) = (Arc::clone(&self.intake), self.remote.clone());
        let platform = self.platform.clone();
        let image = spawn_blocking(move || {
            let Found { indexes, descriptor, content, manifest, .. } = found;
            intake.put(&manifest.config.media_type, &config)?;
            intake.put(&descriptor.media_type, &content)?;
            let image = intake.unpack(&descriptor.digest, |_| ())?;
            let indexes: Vec<_> = indexes.into_iter().map(|it| it.descriptor.digest).collect();
            remote.leads.add(&remote.images, &indexes, &platform, &descriptor.digest);
            Ok::<_, ImageError>(image)
        });
        Pulled::new(image.await??, true)
    }

    /// Whether this is an image at all, and not more than one may be, as far as it says.
    fn check(&self, manifest: &Manifest) -> Result<(), ImageError> {
        let limits = &self.remote.images.settings().limits;
        let kind = manifest.config.media_type.as_str();
        if ![media::OCI_CONFIG, media::DOCKER_CONFIG].contains(&kind) {
            let kind: String = kind.chars().filter(|it| !it.is_control()).take(100).collect();
            return Err(ImageError::Refused(format!("it is no image, but something of {kind}")));
        }
        if manifest.layers.len() > limits.layers {
            let (count, most) = (manifest.layers.len(), limits.layers);
            let problem = format!("it has {count} layers, and {most} is the limit here");
            return Err(ImageError::Refused(problem));
        }
        let sizes = manifest.layers.iter().map(|layer| layer.size);
        if sizes.fold(0, u64::saturating_add) > limits.image {
            let problem = format!("it has more than {} bytes, the limit here", limits.image);
            return Err(ImageError::Refused(problem));
        }
        Ok(())
    }

    fn check_platform(&self, configuration: &Configuration) -> Result<(), RegistryError> {
        let (os, architecture) = (&configuration.os, &configuration.architecture);
        if is_for(os, architecture, &self.platform) {
            return Ok(());
        }
        let available: String = format!("{os}/{architecture}").chars().take(100).collect();
        Err(RegistryError::Platform {
            image: self.repository.reference().familiar(),
            wanted: self.platform.to_string(),
            available: available.chars().filter(|it| !it.is_control()).collect(),
        })
    }

    /// Downloads blobs, several side by side and the lowest first.
    async fn download(
        &self,
        layers: &[Descriptor],
        downloaded: &watch::Sender<BTreeSet<Digest>>,
    ) -> Result<(), RemoteError> {
        let fetcher = Fetcher {
            intake: &self.intake,
            repository: &self.repository,
            flights: &self.remote.flights,
            progress: &self.progress,
        };
        let mut all = Vec::new();
        let mut seen = BTreeSet::new();
        for layer in layers {
            if seen.insert(&layer.digest) {
                all.push(fetcher.fetch(layer, downloaded));
            }
        }
        let parallel = self.remote.client.settings().parallel.get();
        stream::iter(all).buffer_unordered(parallel).try_collect().await
    }

    /// Unpacks layers, several side by side and the lowest first. The lower ones of many are merged
    /// as soon as they are there.
    async fn unpack(
        &self,
        layers: &[Descriptor],
        diff_ids: &[Digest],
        downloaded: watch::Receiver<BTreeSet<Digest>>,
    ) -> Result<(), RemoteError> {
        let limit = self.remote.images.settings().limits.image;
        let diff_ids: Arc<[Digest]> = diff_ids.into();
        let done = watch::Sender::new(0);
        let mut all = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let layer = Layer { number, digest: layer.digest.clone(), below: done.subscribe() };
            all.push(self.unpack_layer(layer, Arc::clone(&diff_ids), downloaded.clone()));
        }
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let mut unpacked = stream::iter(all).buffered(cores.min(MOST_AT_ONCE));
        let mut bytes: u64 = 0;
        let mut merging = None;
        for number in 1..=layers.len() {
            let Some(more) = unpacked.try_next().await? else { break };
            bytes = bytes.saturating_add(more);
            if bytes > limit {
                let problem =
                    format!("its layers unpack to more than {limit} bytes, the limit here");
                return Err(ImageError::Refused(problem).into());
            }
            self.progress.send_modify(|it| it.stage(number - 1, LayerStage::Unpacked));
            done.send_replace(number);
            if number == merged_of(layers.len()) {
                let (intake, diff_ids) = (Arc::clone(&self.intake), Arc::clone(&diff_ids));
                merging = Some(spawn_blocking(move || intake.merge_lower(&diff_ids)));
            }
        }
        match merging {
            Some(merging) => Ok(merging.await??),
            None => Ok(()),
        }
    }

    /// Unpacks a layer once it is here, and answers with its size once those below it are unpacked.
    async fn unpack_layer(
        &self,
        layer: Layer,
        diff_ids: Arc<[Digest]>,
        mut downloaded: watch::Receiver<BTreeSet<Digest>>,
    ) -> Result<u64, RemoteError> {
        let Layer { number, digest, mut below } = layer;
        let arrived = downloaded.wait_for(|downloaded| downloaded.contains(&digest)).await;
        arrived.map(drop).map_err(|_| RemoteError::Ended)?;
        let right = Arc::clone(&self.remote.ahead).try_acquire_owned();
        if right.is_err() {
            below.wait_for(|it| *it >= number).await.map_err(|_| RemoteError::Ended)?;
        }
        self.progress.send_modify(|it| it.stage(number, LayerStage::Unpacking));
        let (intake, runtime) = (Arc::clone(&self.intake), Handle::current());
        let unpacking = spawn_blocking(move || {
            // It fails when nobody waits for the pull any more.
            let wait = || runtime.block_on(below.clone().wait_for(|it| *it >= number)).is_ok();
            let unpacked = intake.unpack_layer(&diff_ids, number, &digest, wait);
            drop(right);
            unpacked
        });
        Ok(unpacking.await??)
    }
}

/// A layer that is to be unpacked.
struct Layer {
    number: usize,
    /// Of its blob.
    digest: Digest,
    /// How many layers are unpacked, the lowest.
    below: watch::Receiver<usize>,
}

fn waiting(layer: &Descriptor) -> LayerProgress {
    let (digest, total) = (layer.digest.clone(), layer.size);
    LayerProgress { digest, bytes: 0, total, stage: LayerStage::Waiting }
}

/// Whether an image that says this of itself runs there. Some say nothing.
fn is_for(os: &str, architecture: &str, platform: &Platform) -> bool {
    (os.is_empty() || os == platform.os)
        && (architecture.is_empty() || architecture == platform.architecture)
}
