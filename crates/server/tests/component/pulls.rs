//! Sandboxes whose image is at a registry.

use osb_core::{Runtime as _, testkit::Call};
use osb_image::RunConfiguration;
use osb_registry::testkit::Kind;
use osb_server::RawConfig;
use serde_json::{Value, json};

use crate::{
    harness::{TestServer, World, minimal, wait_for, with},
    shelf::{IMPATIENT, Publisher, Shelf, Valve, layer, noise},
};

fn run() -> RunConfiguration {
    RunConfiguration {
        entrypoint: vec!["/serve".to_owned()],
        cmd: vec!["--port".to_owned(), "80".to_owned()],
        ..RunConfiguration::default()
    }
}

/// Asks for a sandbox of an image and nothing else.
fn of(image: &str) -> Value {
    let mut body = with(json!({"image": {"uri": image}}));
    body.as_object_mut().expect("an object").remove("entrypoint");
    body
}

fn with_login(image: &str, password: &str) -> Value {
    let auth = json!({"username": "me", "password": password});
    with(json!({"image": {"uri": image, "auth": auth}}))
}

/// A registry with an image that has layers of these sizes, and a world that knows it.
async fn published(kind: Kind, sizes: &[usize]) -> Option<(Publisher, World)> {
    let publisher = Publisher::start(kind).await?;
    let layer =
        |(number, size): (u64, &usize)| layer(&format!("file-{number}"), &noise(number, *size));
    let layers: Vec<_> = (0..).zip(sizes).map(layer).collect();
    publisher.publish("app:1", &layers, run()).await;
    let world = World { images: Some(Shelf::of(&publisher.registry)), ..World::new() };
    world.runtime.add_image(&publisher.name("app:1"));
    Some((publisher, world))
}

async fn status(server: &TestServer, id: &str) -> Value {
    server.get(&format!("/v1/sandboxes/{id}")).await.json()["status"].clone()
}

#[tokio::test]
async fn an_image_that_is_not_here_is_pulled_and_runs_what_it_says() {
    let Some((publisher, world)) = published(Kind::Open, &[1000, 2000]).await else { return };
    let server = world.serve().await;
    let answer = server.post("/v1/sandboxes", Some(of(&publisher.name("app:1")))).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let created = answer.json();
    assert_eq!(created["status"]["state"], "Running");
    assert_eq!(created["entrypoint"], json!(["/serve", "--port", "80"]));
    let id = created["id"].as_str().expect("an id");
    let spec = server.world.runtime.spec(id.parse().expect("an id")).expect("a spec");
    let image = server.get("/v1/images").await.json()["items"][0].clone();
    assert_eq!(spec.image_digest.expect("a digest").as_str(), image["digest"]);
    assert_eq!(image["usedBy"], 1);
    assert_eq!(image["names"], json!([publisher.name("app:1")]));

    // Once it is here, nobody is asked.
    let asked = publisher.registry.requests().len();
    server.create_from(of(&publisher.name("app:1"))).await;
    assert_eq!(publisher.registry.requests().len(), asked);
    let metrics = server.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body);
    assert!(metrics.contains("opensandbox_images 1\n"), "{metrics}");
    assert!(metrics.contains("opensandbox_image_pulls_total{outcome=\"succeeded\"} 1"));
}

#[tokio::test]
async fn a_login_opens_a_registry_and_is_kept_nowhere() {
    let Some((publisher, world)) = published(Kind::Login, &[1000]).await else { return };
    let name = publisher.name("app:1");
    let server = world.serve().await;
    for (body, status, code) in [
        (of(&name), 403, "SANDBOX::IMAGE_ACCESS_DENIED"),
        (with_login(&name, "wrong"), 403, "SANDBOX::IMAGE_ACCESS_DENIED"),
        (with_login(&publisher.name("none:1"), "secret"), 400, "SANDBOX::IMAGE_NOT_FOUND"),
        (with_login(&name, ""), 400, "SANDBOX::INVALID_PARAMETER"),
    ] {
        let message = server.post("/v1/sandboxes", Some(body)).await.refusal(status, code);
        assert!(!message.contains("wrong") && !message.contains("secret"), "{message}");
        server.assert_empty().await;
    }
    assert_eq!(server.world.runtime.calls(Call::Ensure), 0);
    server.create_from(with_login(&name, "secret")).await;
    let world = server.stop().await;
    for file in ["opensandbox.db", "opensandbox.db-wal"] {
        let content = osb_sys::fs::read(world.dir.path().join("data").join(file));
        let content = content.unwrap_or_default();
        assert!(!content.windows(6).any(|part| part == b"secret"), "{file} has the password");
    }
}

#[tokio::test]
async fn what_cannot_be_had_is_said_with_a_reason() {
    let Some((publisher, mut world)) = published(Kind::Open, &[1000]).await else { return };
    let shelf = world.images.as_mut().expect("images");
    shelf.store.limits.image = 500;
    shelf.store.aliases = [("gone".to_owned(), "sha256:".to_owned() + &"0".repeat(64))].into();
    shelf.registries.tries = 1;
    let server = world.serve().await;
    for (image, status, code) in [
        (publisher.name("app:2"), 400, "SANDBOX::IMAGE_NOT_FOUND"),
        (publisher.name("app:1"), 400, "SANDBOX::IMAGE_REFUSED"),
        ("127.0.0.2:1/app".to_owned(), 403, "SANDBOX::REGISTRY_NOT_ALLOWED"),
        ("127.0.0.1:1/app".to_owned(), 503, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        ("gone".to_owned(), 400, "SANDBOX::IMAGE_NOT_FOUND"),
        (format!("sha256:{}", "1".repeat(64)), 400, "SANDBOX::IMAGE_NOT_FOUND"),
        ("Debian".to_owned(), 400, "SANDBOX::INVALID_PARAMETER"),
        ("a b".to_owned(), 400, "SANDBOX::INVALID_PARAMETER"),
    ] {
        let answer = server.post("/v1/sandboxes", Some(of(&image))).await;
        answer.refusal(status, code);
        assert_eq!(answer.header("retry-after").is_some(), status == 503, "{answer:?}");
        server.assert_empty().await;
    }
    assert_eq!(server.world.runtime.calls(Call::Ensure), 0);
}

#[tokio::test]
async fn a_pull_that_takes_long_is_pending_tells_how_far_it_is_and_goes_on() {
    let Some((publisher, world)) = published(Kind::Open, &[100_000, 3 << 20]).await else { return };
    let valve = Valve::before(&publisher.registry, 1 << 20).await;
    let name = format!("{}/app:1", valve.name);
    world.runtime.add_image(&name);
    let world = World { images: Some(valve.shelf()), ..world };
    let server = world.serve_as(RawConfig::default(), |config| config.patience = IMPATIENT).await;
    let answer = server.post("/v1/sandboxes", Some(of(&name))).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let created = answer.json();
    assert_eq!(created["status"]["state"], "Pending");
    let id = created["id"].as_str().expect("an id");
    let told = format!("pulling {name}: 1 of 2 layers, ");
    wait_for("progress", async || {
        let status = status(&server, id).await;
        status["reason"] == "IMAGE_PULLING"
            && status["message"].as_str().is_some_and(|message| message.starts_with(&told))
    })
    .await;
    assert_eq!(server.world.runtime.list().await.expect("a list"), []);
    valve.open();
    wait_for("its start", async || server.state(id).await == "Running").await;
    let shown = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(shown["entrypoint"], json!(["/serve", "--port", "80"]));
    assert_eq!(shown["status"]["reason"], "CONTAINER_RUNNING");
}

#[tokio::test]
async fn whoever_goes_away_and_whoever_deletes_ends_the_pull() {
    let Some((publisher, world)) = published(Kind::Open, &[100_000, 3 << 20]).await else { return };
    let valve = Valve::before(&publisher.registry, 1 << 20).await;
    let name = format!("{}/app:1", valve.name);
    let world = World { images: Some(valve.shelf()), ..world };
    let server = world.serve().await;
    let pending = async || {
        let list = server.get("/v1/sandboxes?state=pending").await.json();
        list["items"].as_array().expect("a list").first().cloned()
    };
    let creation = server.begin(of(&name)).await;
    wait_for("a pull", async || pending().await.is_some()).await;
    creation.hang_up();
    wait_for("nobody", async || pending().await.is_none()).await;

    let parts = server.world.dir.path().join("images/ingest");
    let count = || osb_sys::fs::count_entries(&parts).expect("a directory");
    let creation = server.post("/v1/sandboxes", Some(of(&name)));
    let deletion = async {
        wait_for("a part", async || count() > 0).await;
        let sandbox = pending().await.expect("a sandbox");
        let id = sandbox["id"].as_str().expect("an id");
        assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    };
    let (created, ()) = tokio::join!(creation, deletion);
    created.refusal(500, "DOCKER::SANDBOX_START_FAILED");
    server.assert_empty().await;
    assert_eq!(server.world.runtime.calls(Call::Ensure), 0);
    let metrics = server.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body);
    assert!(metrics.contains("opensandbox_image_pulls 0\n"), "{metrics}");
    assert!(metrics.contains("opensandbox_image_pulls_total{outcome=\"abandoned\"} 2"));
    assert_eq!(server.get("/v1/images").await.json()["items"], json!([]));
    // Nobody gets it any more, and a collection takes what has arrived.
    wait_for("nothing", async || {
        server.post("/v1/images/gc", None).await;
        count() == 0
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_that_expires_while_its_image_comes_is_gone() {
    let Some((publisher, world)) = published(Kind::Open, &[3 << 20]).await else { return };
    let valve = Valve::before(&publisher.registry, 1 << 20).await;
    let world = World { images: Some(valve.shelf()), ..world };
    let server = world.serve_as(RawConfig::default(), |config| config.patience = IMPATIENT).await;
    let mut body = of(&format!("{}/app:1", valve.name));
    body["timeout"] = json!(60);
    let id = server.create_from(body).await;
    assert_eq!(server.state(&id).await, "Pending");
    server.world.clock.advance(std::time::Duration::from_secs(61));
    // Nobody hears the clock of a test: a change makes its driver look.
    let path = format!("/v1/sandboxes/{id}/metadata");
    server.call(http::Method::PATCH, &path, Some(json!({"a": "b"}))).await;
    wait_for("its end", async || server.state(&id).await == "gone").await;
    server.assert_empty().await;
}

#[tokio::test]
async fn a_pull_goes_on_after_a_restart_without_its_login() {
    for (kind, outcome) in [(Kind::Open, "Running"), (Kind::Login, "Failed")] {
        let Some((publisher, world)) = published(kind, &[3 << 20]).await else { return };
        let valve = Valve::before(&publisher.registry, 1 << 20).await;
        let name = format!("{}/app:1", valve.name);
        world.runtime.add_image(&name);
        let world = World { images: Some(valve.shelf()), ..world };
        let config = |config: &mut osb_server::Config| config.patience = IMPATIENT;
        let server = world.serve_as(RawConfig::default(), config).await;
        let id = server.create_from(with_login(&name, "secret")).await;
        assert_eq!(server.state(&id).await, "Pending");
        let world = server.stop().await;
        valve.open();
        let server = world.serve_as(RawConfig::default(), config).await;
        wait_for(outcome, async || server.state(&id).await == outcome).await;
        let status = status(&server, &id).await;
        if outcome == "Failed" {
            assert_eq!(status["reason"], "IMAGE_PULL_FAILED");
            let message = status["message"].as_str().expect("a message");
            assert!(message.contains("not kept when the server restarts"), "{message}");
            assert_eq!(server.world.runtime.list().await.expect("a list"), []);
        }
        assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
        server.assert_empty().await;
    }
}

#[tokio::test]
async fn many_sandboxes_of_one_image_are_one_pull() {
    let Some((publisher, world)) = published(Kind::Open, &[1000, 2000]).await else { return };
    let server = world.serve().await;
    let before = publisher.registry.requests().len();
    let name = publisher.name("app:1");
    let creations = (0..20).map(|_| server.create_from(of(&name)));
    let ids = futures_util::future::join_all(creations).await;
    assert_eq!(ids.len(), 20);
    // A manifest, a configuration and two layers.
    assert_eq!(publisher.registry.requests().len() - before, 4);
}

#[tokio::test]
async fn names_lead_where_the_operator_says_and_logins_do_not_follow() {
    let Some((publisher, mut world)) = published(Kind::Login, &[1000]).await else { return };
    let target = publisher.name("app:1");
    let shelf = world.images.as_mut().expect("images");
    shelf.store.aliases = [
        ("opensandbox/code-interpreter:v1".to_owned(), target),
        ("here".to_owned(), "host".to_owned()),
    ]
    .into();
    for name in ["docker.io/opensandbox/code-interpreter:v1", "docker.io/library/here:latest"] {
        world.runtime.add_image(name);
    }
    let server = world.serve().await;
    let body = with_login("opensandbox/code-interpreter:v1", "secret");
    let answer = server.post("/v1/sandboxes", Some(body)).await;
    answer.refusal(403, "SANDBOX::IMAGE_ACCESS_DENIED");
    let id = server.create_from(of("docker.io/library/here:latest")).await;
    let shown = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(shown["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    assert_eq!(shown["image"]["uri"], "docker.io/library/here:latest");
    let auth = json!({"username": "me", "password": "secret"});
    let pull = json!({"name": publisher.name("app:1"), "auth": auth});
    assert_eq!(server.post("/images/pull", Some(pull)).await.status, 200);
    server.create_from(of("docker.io/opensandbox/code-interpreter:v1")).await;
}

#[tokio::test]
async fn a_server_without_images_takes_names_as_they_are() {
    let server = TestServer::start().await;
    server.get("/v1/images").await.refusal(501, "SANDBOX::API_NOT_SUPPORTED");
    server.post("/images/gc", None).await.refusal(501, "SANDBOX::API_NOT_SUPPORTED");
    let mut body = minimal();
    body.as_object_mut().expect("an object").remove("entrypoint");
    let answer = server.post("/v1/sandboxes", Some(body)).await;
    answer.refusal(400, "DOCKER::INVALID_ENTRYPOINT");
}
