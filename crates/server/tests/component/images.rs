//! What is done with images over HTTP.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use osb_api::images::ImageEvent;
use osb_image::RunConfiguration;
use osb_registry::testkit::Kind;
use serde_json::{Value, json};

use crate::{
    harness::{Answer, TestServer, World, wait_for, with},
    shelf::{Publisher, Shelf, can_unpack, layer},
};

async fn start() -> Option<TestServer> {
    if !can_unpack() {
        return None;
    }
    let world = World { images: Some(Shelf::default()), ..World::new() };
    Some(world.serve().await)
}

async fn import(server: &TestServer, query: &str, archive: Vec<u8>) -> Answer {
    let request = server.request(Method::POST, &format!("/v1/images/import{query}"));
    server.send(request.body(Full::new(Bytes::from(archive))).expect("a request")).await
}

/// Brings in an image of one file, and answers with its digest.
async fn add(server: &TestServer, name: &str, content: &str) -> String {
    let answer = import(server, &format!("?name={name}"), layer("file", content.as_bytes())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let items = answer.json()["items"].clone();
    items[0]["digest"].as_str().expect("a digest").to_owned()
}

async fn names(server: &TestServer) -> Vec<Value> {
    let list = server.get("/v1/images").await.json();
    list["items"].as_array().expect("a list").iter().map(|it| it["names"].clone()).collect()
}

/// What a stream of events came to: its last one.
fn last(answer: &Answer) -> ImageEvent {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let text = std::str::from_utf8(&answer.body).expect("text");
    let mut events: Vec<ImageEvent> =
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let last = events.pop().expect("an event");
    assert!(last.is_last() && !events.iter().any(ImageEvent::is_last), "{text}");
    last
}

#[tokio::test]
async fn an_archive_becomes_an_image_and_an_archive_again() {
    let Some(server) = start().await else { return };
    let digest = add(&server, "mine:1", "hello").await;
    let image = server.get("/v1/images/inspect?name=mine:1").await.json();
    assert_eq!((&image["digest"], &image["layers"]), (&json!(digest), &json!(1)));
    assert_eq!((&image["unpacked"], &image["usedBy"]), (&json!(5), &json!(0)));
    assert_eq!(image["config"]["os"], "linux");
    let list = server.get("/images?pageSize=1").await.json();
    assert_eq!((&list["items"][0], &list["usage"]["images"]), (&image, &json!(1)));
    assert_eq!(list["pagination"]["totalItems"], 1);

    for format in ["oci", "docker"] {
        let path = format!("/v1/images/export?name=mine:1&format={format}");
        let archive = server.get(&path).await;
        assert_eq!(archive.status, 200, "{archive:?}");
        assert_eq!(archive.header("content-type"), Some("application/x-tar"));
        let other = start().await.expect("another server");
        let answer = import(&other, "", archive.body.to_vec()).await;
        let imported = answer.json()["items"].clone();
        assert_eq!(imported, json!([{"digest": digest, "names": ["mine:1"]}]), "{format}");
    }
}

#[tokio::test]
async fn names_are_given_and_taken_and_images_go_with_the_last() {
    let Some(server) = start().await else { return };
    let first = add(&server, "mine:1", "one").await;
    let second = add(&server, "mine:2", "two").await;
    let tag = |name: &str, tag: &str| json!({"name": name, "tag": tag});
    let path = "/v1/images/tag";
    assert_eq!(server.post(path, Some(tag(&first, "also"))).await.status, 204);
    assert_eq!(server.post(path, Some(tag("mine:1", "mine:3"))).await.status, 204);
    server.post(path, Some(tag("none", "x"))).await.refusal(404, "SANDBOX::IMAGE_NOT_FOUND");
    for (name, other) in [("mine:1", "X"), ("A b", "x"), ("host", "x"), ("mine:1", &*second)] {
        let answer = server.post(path, Some(tag(name, other))).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    server
        .delete(&format!("/v1/images?name=sha256:{}", "0".repeat(64)))
        .await
        .refusal(404, "SANDBOX::IMAGE_NOT_FOUND");
    server.delete("/v1/images?name=none").await.refusal(404, "SANDBOX::IMAGE_NOT_FOUND");
    server.delete("/v1/images").await.refusal(400, "SANDBOX::INVALID_PARAMETER");

    assert_eq!(server.delete("/v1/images?name=mine:2").await.status, 204);
    wait_for("its end", async || names(&server).await.len() == 1).await;
    assert_eq!(names(&server).await, [json!(["also:latest", "mine:1", "mine:3"])]);
    assert_eq!(server.delete(&format!("/v1/images?name={first}")).await.status, 204);
    wait_for("its end", async || names(&server).await.is_empty()).await;
    // Images go first, and what they were made of then.
    let is_empty = async || {
        let usage = server.get("/v1/images").await.json()["usage"].clone();
        (&usage["blobs"], &usage["layers"]) == (&json!(0), &json!(0))
    };
    wait_for("the end of what it was made of", is_empty).await;
}

#[tokio::test]
async fn what_sandboxes_and_snapshots_stand_on_stays() {
    let Some(server) = start().await else { return };
    let digest = add(&server, "mine:1", "one").await;
    server.world.runtime.add_image("mine:1");
    let id = server.create_from(with(json!({"image": {"uri": "mine:1"}}))).await;
    let by_digest = format!("/v1/images?name={digest}");
    server.delete(&by_digest).await.refusal(409, "SANDBOX::IMAGE_IN_USE");
    // The name goes, and may come to mean something else.
    assert_eq!(server.delete("/v1/images?name=mine:1").await.status, 204);
    let other = add(&server, "mine:1", "two").await;
    let collected = server.post("/v1/images/gc", None).await.json();
    assert_eq!(collected["images"], 0);

    let taken = server.post(&format!("/v1/sandboxes/{id}/snapshots"), None).await.json();
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    assert_eq!(server.post("/v1/images/gc", None).await.json()["images"], 0);
    // Also after a restart, and sandboxes from it have the image that it was taken of.
    let server = server.stop().await.serve().await;
    server.delete(&by_digest).await.refusal(409, "SANDBOX::IMAGE_IN_USE");
    let body = json!({"snapshotId": taken["id"], "resourceLimits": {}, "timeout": 600});
    let again = server.create_from(body).await;
    let spec = server.world.runtime.spec(again.parse().expect("an id")).expect("a spec");
    let pinned = spec.image_digest.expect("a digest");
    assert!(pinned.as_str() == digest && pinned.as_str() != other);

    let snapshot = taken["id"].as_str().expect("an id");
    assert_eq!(server.delete(&format!("/v1/snapshots/{snapshot}")).await.status, 204);
    assert_eq!(server.delete(&format!("/v1/sandboxes/{again}")).await.status, 204);
    let collected = server.post("/v1/images/gc", None).await.json();
    assert_eq!((&collected["images"], &collected["layers"]), (&json!(1), &json!(1)));
    assert_eq!(names(&server).await, [json!(["mine:1"])]);
}

#[tokio::test]
async fn archives_that_are_no_images_are_refused_and_leave_nothing() {
    let Some(server) = start().await else { return };
    for (query, archive, code) in [
        ("?name=X", layer("a", b""), "SANDBOX::INVALID_PARAMETER"),
        ("?name=x", layer("../a", b""), "SANDBOX::IMAGE_REFUSED"),
        ("?name=x", vec![7; 5000], "SANDBOX::IMAGE_REFUSED"),
    ] {
        import(&server, query, archive).await.refusal(400, code);
    }
    assert_eq!(names(&server).await.len(), 0);
    server.post("/v1/images/gc", None).await;
    let usage = server.get("/v1/images").await.json()["usage"].clone();
    assert_eq!((&usage["blobs"], &usage["layers"]), (&json!(0), &json!(0)));
    for (path, code) in [
        ("/v1/images/export?name=none", "SANDBOX::IMAGE_NOT_FOUND"),
        ("/v1/images/inspect?name=host", "SANDBOX::IMAGE_NOT_FOUND"),
    ] {
        server.get(path).await.refusal(404, code);
    }
    server.get("/v1/images/export?name=host").await.refusal(400, "SANDBOX::IMAGE_REFUSED");
    server
        .get("/v1/images/export?name=host&format=zip")
        .await
        .refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    use tokio::io::AsyncWriteExt as _;
    let Some(server) = start().await else { return };
    let mut stream = tokio::net::TcpStream::connect(&server.address).await.expect("a connection");
    let head = format!(
        "POST /v1/images/import?name=x HTTP/1.1\r\nhost: {}\r\nopen-sandbox-api-key: {}\r\n\
         content-length: 1000000\r\n\r\n",
        server.address,
        crate::harness::KEY
    );
    stream.write_all(head.as_bytes()).await.expect("a head");
    stream.write_all(&layer("file", b"hello")).await.expect("a part");
    let unfinished = server.world.dir.path().join("images/unfinished");
    let count = || osb_sys::fs::count_entries(&unfinished).expect("a directory");
    wait_for("a draft", async || count() > 0).await;
    drop(stream);
    wait_for("nothing", async || count() == 0).await;
    assert_eq!(names(&server).await.len(), 0);
}

#[tokio::test]
async fn images_travel_between_servers_by_a_registry() {
    let Some(publisher) = Publisher::start(Kind::Login).await else { return };
    let run = RunConfiguration { cmd: vec!["sh".to_owned()], ..RunConfiguration::default() };
    publisher.publish("app:1", &[layer("file", b"hello")], run).await;
    let world = World { images: Some(Shelf::of(&publisher.registry)), ..World::new() };
    let server = world.serve().await;
    let auth = json!({"username": "me", "password": "secret"});
    let (old, new) = (publisher.name("app:1"), publisher.name("app:2"));

    let denied = server.post("/v1/images/pull", Some(json!({"name": old}))).await;
    let ImageEvent::Error(error) = last(&denied) else { panic!("{denied:?}") };
    assert_eq!(error.code, "SANDBOX::IMAGE_ACCESS_DENIED");
    let pulled = server.post("/images/pull", Some(json!({"name": old, "auth": auth}))).await;
    let ImageEvent::Image(pulled) = last(&pulled) else { panic!("{pulled:?}") };
    assert_eq!(pulled.names, std::slice::from_ref(&old));
    let inspected = server.get(&format!("/v1/images/inspect?name={old}")).await.json();
    assert_eq!(inspected["config"]["cmd"], json!(["sh"]));

    let push = json!({"name": old, "to": new, "auth": auth});
    let pushed = server.post("/v1/images/push", Some(push)).await;
    let ImageEvent::Image(pushed) = last(&pushed) else { panic!("{pushed:?}") };
    assert_eq!((pushed.digest, pushed.names), (pulled.digest.clone(), vec![new.clone()]));
    let again = server.post("/images/pull", Some(json!({"name": new, "auth": auth}))).await;
    assert!(matches!(last(&again), ImageEvent::Image(image) if image.digest == pulled.digest));

    let push = |body: Value| server.post("/v1/images/push", Some(body));
    push(json!({"name": "none"})).await.refusal(404, "SANDBOX::IMAGE_NOT_FOUND");
    push(json!({"name": "host"})).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    let untagged = json!({"name": pulled.digest});
    push(untagged).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    for wrong in [json!({"name": "A"}), json!({"name": "a", "platform": "vax"}), json!({})] {
        let answer = server.post("/v1/images/pull", Some(wrong)).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
}
