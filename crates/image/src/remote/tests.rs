use std::sync::Arc;

use futures_util::{FutureExt as _, future::join_all};
use osb_core::ImageName;
use osb_registry::{
    Client, Descriptor, Name, Platform, Reference, media,
    testkit::{Kind, Registry, guard, login},
};
use osb_sys::fs;
use serde_json::json;

use super::*;
use crate::trial::{Shop, Tar, listing};

/// A layer whose blob does not fit into a few pieces.
fn layer(name: &str) -> Vec<u8> {
    let content = name.repeat(3 << 20);
    Tar::new().directory("d", 0o755).file(&format!("d/{name}"), &content).end()
}

fn platform() -> Platform {
    Platform::parse("linux/amd64").unwrap()
}

/// A registry with an image of three layers, and an empty store.
struct Trial {
    registry: Registry,
    theirs: Shop,
    ours: Shop,
}

impl Trial {
    async fn new() -> Option<Self> {
        let (theirs, ours) = (Shop::new()?, Shop::new()?);
        let registry = Registry::start(Kind::Open).await?;
        let trial = Self { registry, theirs, ours };
        trial.publish("sample:1", &[layer("a"), layer("b"), layer("c")]).await;
        Some(trial)
    }

    fn client(&self) -> Client {
        Client::new(self.registry.settings(), guard()).unwrap()
    }

    /// Makes an image, and pushes it.
    async fn publish(&self, name: &str, layers: &[Vec<u8>]) -> Descriptor {
        self.theirs.add_named(name, layers);
        let remote = Remote::new(self.theirs.images.clone(), self.client());
        let to = self.registry.reference(name);
        remote.push(&ImageName::new(name), &to, None, |_| {}).await.unwrap()
    }

    fn remote(&self) -> Remote {
        Remote::new(self.ours.images.clone(), self.client())
    }

    fn pull(&self, remote: &Remote, name: &str) -> Pull {
        remote.pull(&self.registry.reference(name), None, &platform())
    }

    /// What the registry was asked by `what`, in the words of its log.
    fn asked(&self, what: &str) -> Vec<String> {
        let all = self.registry.requests();
        all.into_iter().filter(|request| request.starts_with(what)).collect()
    }
}

#[tokio::test]
async fn an_image_comes_as_it_went() {
    let Some(trial) = Trial::new().await else { return };
    let remote = trial.remote();
    let pull = trial.pull(&remote, "sample:1");
    let progress = pull.progress();
    assert_eq!(progress.borrow().phase, Phase::Resolving);
    let pulled = pull.await.unwrap();
    assert!(pulled.is_new);
    let theirs = trial.theirs.find("sample:1").unwrap();
    assert_eq!(Some(&pulled.digest), theirs.digest.as_ref());
    let name = trial.registry.reference("sample:1").familiar();
    let found = trial.ours.find(&name).unwrap();
    assert_eq!(found.rootfs.layers.len(), 3);
    for (ours, name) in found.rootfs.layers.iter().zip(["c", "b", "a"]) {
        assert_eq!(fs::read(ours.join("d").join(name)).unwrap().len(), 3 << 20);
    }
    let progress = progress.borrow();
    assert_eq!((progress.phase, progress.layers.len()), (Phase::Done, 3));
    assert!(progress.bytes() == progress.total() && progress.total() > 9 << 20);
    assert!(progress.layers.iter().all(|layer| layer.stage == LayerStage::Unpacked));
    assert_eq!(fs::count_entries(trial.ours.path("ingest")).unwrap(), 0);
}

#[tokio::test]
async fn layers_that_depend_on_those_below_are_the_same_side_by_side() {
    let Some(trial) = Trial::new().await else { return };
    let below = Tar::new().directory(".", 0o711).directory("usr", 0o750).file("usr/tool", "x");
    let mut layers = vec![below.file("gone", "").file("etc/old", "").end()];
    for number in 0..8 {
        let name = format!("usr/tool-{number}");
        layers.push(Tar::new().directory("usr", 0o700 + number).file(&name, "x").end());
    }
    // It says nothing of the directories, and another name is for a file of the lowest layer.
    layers.push(Tar::new().file("usr/more", "x").hard_link("usr/same", "usr/tool").end());
    let marks =
        Tar::new().file(".wh.gone", "").directory("etc", 0o755).file("etc/.wh..wh..opq", "");
    layers.push(marks.end());
    trial.publish("stacked", &layers).await;
    trial.pull(&trial.remote(), "stacked").await.unwrap();
    for kind in ["layers", "merged"] {
        let made = fs::names(trial.ours.path(kind)).unwrap();
        assert_eq!(made.len(), if kind == "merged" { 1 } else { layers.len() });
        for name in made.iter().map(|name| format!("{kind}/{name}")) {
            assert_eq!(listing(&trial.ours.path(&name)), listing(&trial.theirs.path(&name)));
        }
    }
}

#[tokio::test]
async fn concurrent_pulls_of_one_image_are_one_pull() {
    let Some(trial) = Trial::new().await else { return };
    let remote = trial.remote();
    let before = trial.registry.requests().len();
    let pulls = (0..20).map(|_| trial.pull(&remote, "sample:1"));
    let pulled = join_all(pulls).await;
    assert!(pulled.iter().all(|it| it.as_ref().is_ok_and(|it| it.is_new)));
    // A manifest, a configuration and three layers, each once.
    assert_eq!(trial.asked("GET").len(), 5, "{:?}", trial.asked("GET"));
    assert_eq!(trial.registry.requests().len() - before, 5);
}

#[tokio::test]
async fn images_that_share_layers_share_their_download() {
    let Some(trial) = Trial::new().await else { return };
    trial.publish("other", &[layer("a"), layer("b"), layer("d")]).await;
    let remote = trial.remote();
    let pulls = ["sample:1", "other"].map(|name| trial.pull(&remote, name));
    assert!(join_all(pulls).await.iter().all(Result::is_ok));
    let mut blobs = trial.asked("GET");
    blobs.retain(|request| request.contains("/blobs/"));
    // Four layers and two configurations.
    assert_eq!(blobs.len(), 6, "{blobs:?}");
    assert_eq!(fs::count_entries(trial.ours.path("layers")).unwrap(), 4);
}

#[tokio::test]
async fn an_image_that_is_here_costs_one_question() {
    let Some(trial) = Trial::new().await else { return };
    let remote = trial.remote();
    let first = trial.pull(&remote, "sample:1").await.unwrap();
    let before = trial.registry.requests().len();
    let again = trial.pull(&remote, "sample:1").await.unwrap();
    assert!(!again.is_new && again.digest == first.digest);
    let asked: Vec<_> = trial.registry.requests().split_off(before);
    assert_eq!(asked, ["HEAD /v2/sample/manifests/1 200"]);
    // By digest it costs none.
    let by_digest = trial.registry.reference("sample").at(first.digest.clone());
    remote.pull(&by_digest, None, &platform()).await.unwrap();
    assert_eq!(trial.registry.requests().len(), before + 1);
    // Once the name stands for another image, that one comes.
    let other = trial.publish("sample:1", &[layer("a"), layer("e")]).await;
    let changed = trial.pull(&remote, "sample:1").await.unwrap();
    assert!(changed.is_new && changed.digest == other.digest);
    let name = trial.registry.reference("sample:1").familiar();
    assert_eq!(trial.ours.find(&name).unwrap().digest, Some(other.digest));
}

#[tokio::test]
async fn an_image_of_a_list_costs_one_question_too() {
    let Some(trial) = Trial::new().await else { return };
    let manifest = trial.theirs.find("sample:1").unwrap().digest.unwrap();
    let content = trial.theirs.images.intake().document(&manifest).unwrap();
    let manifest = Descriptor::of(media::OCI_MANIFEST, &content);
    let index = json!({
        "schemaVersion": 2, "mediaType": media::OCI_INDEX,
        "manifests": [Descriptor { platform: Some(platform()), ..manifest.clone() }],
    });
    let index = bytes::Bytes::from(index.to_string());
    let repository = trial.client().repository(&trial.registry.reference("sample:list"), None);
    let descriptor = Descriptor::of(media::OCI_INDEX, &index);
    repository.push_manifest(&descriptor, &index, Name::Tag).await.unwrap();

    let pulled = trial.pull(&trial.remote(), "sample:list").await.unwrap();
    assert_eq!(pulled.digest, manifest.digest);
    // Another process knows it as well.
    let before = trial.registry.requests().len();
    let again = trial.pull(&trial.remote(), "sample:list").await.unwrap();
    assert!(!again.is_new && again.digest == manifest.digest);
    let asked: Vec<_> = trial.registry.requests().split_off(before);
    assert_eq!(asked, ["HEAD /v2/sample/manifests/list 200"]);
    let other = Platform::parse("linux/s390x").unwrap();
    let error = trial.remote().pull(&trial.registry.reference("sample:list"), None, &other);
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("it is for: linux/amd64"), "{error}");
}

#[tokio::test]
async fn what_is_here_of_a_blob_is_not_asked_for_again() {
    let Some(trial) = Trial::new().await else { return };
    let blobs = ["a", "b"].map(|name| Descriptor::of(media::OCI_LAYER, &layer(name)));
    let intake = trial.ours.images.intake();
    // One half is right, and one is not.
    for (blob, part) in blobs.iter().zip([layer("a"), layer("x")]) {
        intake.begin_blob(blob).unwrap().add(&part[..1 << 20]).unwrap();
    }
    drop(intake);
    trial.pull(&trial.remote(), "sample:1").await.unwrap();
    let asked = |blob: &Descriptor| trial.asked(&format!("GET /v2/sample/blobs/{}", blob.digest));
    assert!(asked(&blobs[0])[0].ends_with(" 206") && asked(&blobs[0]).len() == 1);
    let wrong: Vec<_> = asked(&blobs[1]).iter().map(|it| it[it.len() - 3..].to_owned()).collect();
    assert_eq!(wrong, ["206", "200"]);
}

#[tokio::test]
async fn a_pull_that_nobody_waits_for_ends_and_is_gone_on_with() {
    let Some(trial) = Trial::new().await else { return };
    let remote = trial.remote();
    let mut pull = trial.pull(&remote, "sample:1");
    let mut progress = pull.progress();
    let some_layer = |progress: &PullProgress| {
        progress.layers.iter().any(|layer| layer.stage >= LayerStage::Downloaded)
    };
    tokio::select! {
        _ = &mut pull => panic!("it is done"),
        arrived = progress.wait_for(some_layer) => drop(arrived.unwrap()),
    }
    drop(pull);
    assert!(progress.changed().await.is_err(), "nobody is at it any more");
    let name = trial.registry.reference("sample:1").familiar();
    assert!(trial.ours.find(&name).is_err());
    trial.pull(&remote, "sample:1").await.unwrap();
    // What had arrived did not come again: whole layers were asked for at most once.
    let mut whole = trial.asked("GET /v2/sample/blobs");
    whole.retain(|request| request.ends_with(" 200"));
    let count = whole.len();
    whole.sort_unstable();
    whole.dedup();
    assert!(whole.len() >= 4 && count < 2 * whole.len(), "{count} of {whole:?}");
}

#[tokio::test]
async fn another_login_is_another_pull() {
    let Some(shop) = Shop::new() else { return };
    let Some(registry) = Registry::start(Kind::Login).await else { return };
    let client = Client::new(registry.settings(), guard()).unwrap();
    let remote = Remote::new(shop.images.clone(), client);
    shop.add_named("private", &[layer("a")]);
    let to = registry.reference("private");
    let name = ImageName::new("private");
    remote.push(&name, &to, Some(login()), |_| {}).boxed().await.unwrap();
    let (mine, theirs) = tokio::join!(
        remote.pull(&to, Some(login()), &platform()),
        remote.pull(&to, None, &platform()),
    );
    assert!(mine.is_ok());
    let error: Arc<RemoteError> = theirs.unwrap_err();
    assert!(error.to_string().contains("give a login"), "{error}");
}

#[tokio::test]
async fn what_is_no_image_for_this_machine_is_not_taken() {
    let Some(trial) = Trial::new().await else { return };
    let arm = Platform::parse("linux/arm64").unwrap();
    let reference = trial.registry.reference("sample:1");
    let error = trial.remote().pull(&reference, None, &arm).await.unwrap_err();
    assert!(error.to_string().contains("it is for: linux/amd64"), "{error}");
    // A chart is kept at registries as well.
    let repository = trial.client().repository(&trial.registry.reference("chart"), None);
    let config = Descriptor::of("application/vnd.cncf.helm.config.v1+json", b"{}");
    let intake = trial.theirs.images.intake();
    intake.put(&config.media_type, b"{}").unwrap();
    let open = || intake.blob(&config.digest).map_err(std::io::Error::other);
    repository.push_blob(&config, None, open, |_| {}).await.unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media::OCI_MANIFEST, "config": config, "layers": [],
    });
    let manifest = bytes::Bytes::from(manifest.to_string());
    let descriptor = Descriptor::of(media::OCI_MANIFEST, &manifest);
    repository.push_manifest(&descriptor, &manifest, Name::Tag).await.unwrap();
    let error = trial.pull(&trial.remote(), "chart").await.unwrap_err();
    assert!(error.to_string().contains("it is no image"), "{error}");
    assert!(trial.ours.images.list().is_empty());
}

#[tokio::test]
async fn a_push_sends_what_the_registry_does_not_have() {
    let Some(trial) = Trial::new().await else { return };
    let sent = Arc::new(std::sync::Mutex::new(PushProgress::default()));
    let noted = Arc::clone(&sent);
    let remote = Remote::new(trial.theirs.images.clone(), trial.client());
    let name = Reference::parse("sample:1").unwrap();
    let digest = trial.theirs.find("sample:1").unwrap().digest.unwrap();
    // The image is known here by where it is there.
    let there = trial.registry.reference("sample:1");
    trial.theirs.images.intake().name(&there, &digest).unwrap();
    let to = trial.registry.reference("elsewhere:2");
    let before = trial.registry.requests().len();
    let progress = move |progress| *noted.lock().unwrap() = progress;
    let name = ImageName::new(name.familiar());
    let pushed = remote.push(&name, &to, None, progress).boxed().await.unwrap();
    assert_eq!(pushed.digest, digest);
    let asked = trial.registry.requests().split_off(before);
    assert!(!asked.iter().any(|it| it.starts_with("PATCH")), "{asked:?}");
    assert_eq!(asked.iter().filter(|it| it.ends_with(" 201")).count(), 5, "{asked:?}");
    let sent = *sent.lock().unwrap();
    assert!(sent.bytes == sent.total && sent.total > 9 << 20);
    let unknown = remote.push(&ImageName::new("unknown"), &to, None, |_| {}).await.unwrap_err();
    assert!(unknown.to_string().contains("unknown"), "{unknown}");
    let host = remote.push(&ImageName::new("host"), &to, None, |_| {}).await.unwrap_err();
    assert!(matches!(host, RemoteError::Image(_)));
}
