//! Sandboxes on images of the store: what an image says is done, and what it has is shared.

use std::collections::BTreeSet;

use osb_api::{SandboxId, SnapshotId};
use osb_core::{
    ImageDigest, ImageName, Runtime as _, RuntimeError, SandboxSpec,
    testkit::conformance::Harness as _,
};
use osb_image::RunConfiguration;
use osb_registry::{Digest, Reference};

use super::{
    Host, ask, host,
    made::{self, Layer},
};

/// A sandbox of this image.
pub(crate) fn on(host: &Host, image: &str) -> SandboxSpec {
    SandboxSpec { id: SandboxId::random(), image: ImageName::new(image), ..host.spec() }
}

fn pinned(host: &Host, image: &str, digest: &Digest) -> SandboxSpec {
    SandboxSpec { image_digest: Some(ImageDigest::new(digest.as_str())), ..on(host, image) }
}

/// What a command prints, line by line.
pub(crate) async fn run(host: &Host, spec: &SandboxSpec, command: &str) -> Vec<String> {
    let body = serde_json::json!({ "command": command });
    said(host, spec, "POST /command", &body).await
}

async fn said(
    host: &Host,
    spec: &SandboxSpec,
    line: &str,
    body: &serde_json::Value,
) -> Vec<String> {
    let (status, events) = ask(host, spec, line, &body.to_string()).await;
    assert_eq!(status, 200, "{events}");
    let events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
    let events: Vec<serde_json::Value> = events.collect();
    let is_over = |event: &serde_json::Value| event["type"] == "execution_complete";
    assert!(events.iter().any(is_over), "{events:?}");
    let lines = events.iter().filter(|event| event["type"] == "stdout");
    lines.filter_map(|event| event["text"].as_str()).map(str::to_owned).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn as_app() -> RunConfiguration {
    RunConfiguration {
        user: "app".to_owned(),
        env: names(&["PATH=/tools:/usr/bin", "NAME=image", "OTHER=image"]),
        working_dir: "/srv/work/deep".to_owned(),
        ..RunConfiguration::default()
    }
}

/// Who asks, where it is, and what it sees.
const WHO: &str = "id -u; id -g; id -G; pwd; echo $NAME $OTHER; echo $HOME $USER; echo $PATH";
const APP: [&str; 7] =
    ["1000", "1001", "1001 50", "/srv/work/deep", "spec image", "/srv/app app", "/tools:/usr/bin"];

/// Begins a session. Answers with how to run something in it.
async fn session(host: &Host, spec: &SandboxSpec, line: &str, body: &str) -> String {
    let (_, made) = ask(host, spec, line, body).await;
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let id = made.get("session_id").and_then(serde_json::Value::as_str);
    format!("{line}/{}/run", id.unwrap())
}

/// Checks that everything in a sandbox of [`as_app`] begins as the image says.
pub(crate) async fn begins_as_app(host: &Host, image: &str) {
    let native = host.native();
    let mut spec = on(host, image);
    spec.env.insert("NAME".to_owned(), "spec".to_owned());
    let entrypoint = format!("({WHO}) > /tmp/began && exec tail -f /dev/null");
    spec.entrypoint = vec!["sh".to_owned(), "-c".to_owned(), entrypoint];
    native.ensure(&spec).await.unwrap();
    assert_eq!(run(host, &spec, WHO).await, APP);
    let began = loop {
        match host.read(&spec, "/tmp/began").await {
            Some(text) if text.lines().count() == APP.len() => break text,
            _ => host.wait(std::time::Duration::from_millis(5)).await,
        }
    };
    assert_eq!(began.lines().collect::<Vec<_>>(), APP);
    let line = session(host, &spec, "POST /session", "").await;
    assert_eq!(said(host, &spec, &line, &serde_json::json!({ "command": WHO })).await, APP);
    let body = r#"{"workspace": {"path": "/tmp", "mode": "rw"}}"#;
    let line = session(host, &spec, "POST /v1/isolated/session", body).await;
    let who = serde_json::json!({ "code": "id -u; id -G" });
    assert_eq!(said(host, &spec, &line, &who).await, ["1000", "1001 50"]);
    let as_root = serde_json::json!({ "command": "id -u; pwd", "uid": 0 });
    assert_eq!(said(host, &spec, "POST /command", &as_root).await, ["0", "/srv/work/deep"]);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn programs_begin_as_their_image_says() {
    let Some(host) = host().await else { return };
    made::put(host.native().images(), "app", &[made::base()], as_app());
    begins_as_app(&host, "app").await;
}

#[tokio::test]
async fn what_is_made_for_a_caller_is_the_users() {
    let Some(host) = host().await else { return };
    made::put(host.native().images(), "app", &[made::base()], as_app());
    let spec = on(&host, "app");
    host.native().ensure(&spec).await.unwrap();
    // In a directory of root, where the user could not.
    let part = |name: &str, text: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
    };
    for path in ["/usr/deep/new", "/etc/group"] {
        let metadata = serde_json::json!({ "path": path }).to_string();
        let body = part("metadata", &metadata) + &part("file", "root:x:0:\n") + "--b--\r\n";
        let line = "POST /files/upload";
        let (status, answer) =
            super::send(&host, &spec, line, "multipart/form-data; boundary=b", &body).await;
        assert_eq!(status, 200, "{answer}");
    }
    let (status, answer) = ask(&host, &spec, "POST /directories", r#"{"/usr/made": {}}"#).await;
    assert_eq!(status, 200, "{answer}");
    let body = r#"{"cwd": "/usr/begun"}"#;
    assert_eq!(ask(&host, &spec, "POST /session", body).await.0, 200);
    let owners = run(
        &host,
        &spec,
        "stat -c %u:%g /usr/deep /usr/deep/new /usr/made /usr/begun /etc/group $EXECD_ENVS",
    );
    let (user, root) = ("1000:1001", "0:0");
    assert_eq!(
        owners.await,
        [user, user, user, user, root, user],
        "what was there stays whose it is"
    );
    let body = serde_json::json!({ "command": "echo HELLO=you >> $EXECD_ENVS" });
    said(&host, &spec, "POST /command", &body).await;
    assert_eq!(run(&host, &spec, "echo $HELLO").await, ["you"]);
    assert!(host.read(&spec, "/etc/group").await.is_some());
    host.native().remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn an_image_that_says_nothing_is_roots() {
    let Some(host) = host().await else { return };
    made::put(host.native().images(), "plain", &[made::base()], RunConfiguration::default());
    for image in ["plain", "host"] {
        let spec = on(&host, image);
        host.native().ensure(&spec).await.unwrap();
        let who = run(&host, &spec, "id -u; id -g; pwd; echo $HOME $USER").await;
        assert_eq!(who, ["0", "0", "/", "/root root"], "{image}");
        host.native().remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_user_that_cannot_be_is_refused_by_name() {
    let Some(host) = host().await else { return };
    for user in ["ghost", "app:ghosts", "far", "65536"] {
        let config = RunConfiguration { user: user.to_owned(), ..RunConfiguration::default() };
        made::put(host.native().images(), "of-somebody", &[made::base()], config);
        let spec = on(&host, "of-somebody");
        let refused = host.native().ensure(&spec).await;
        let Err(RuntimeError::Invalid(why)) = refused else { panic!("{user}: {refused:?}") };
        assert!(why.contains(user), "{why}");
        assert!(host.native().list().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_digest_is_one_image_whatever_becomes_of_its_name() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let put = |text: &str| {
        let layers = [made::base(), Layer::new().file("said", text).end()];
        made::put(native.images(), "moving", &layers, RunConfiguration::default())
    };
    let (old, new) = (put("old"), put("new"));
    let mut expected = vec![(on(&host, "moving"), "new")];
    expected.push((pinned(&host, "moving", &old), "old"));
    expected.push((pinned(&host, "unheard-of", &new), "new"));
    for (spec, text) in expected {
        native.ensure(&spec).await.unwrap();
        assert_eq!(host.read(&spec, "/said").await.as_deref(), Some(text));
        native.remove(spec.id).await.unwrap();
    }
    for digest in [Digest::of(b"nothing").as_str(), "sha256:zz"] {
        let digest = Some(ImageDigest::new(digest));
        let spec = SandboxSpec { image_digest: digest, ..on(&host, "moving") };
        let refused = native.ensure(&spec).await;
        let is_it =
            matches!(&refused, Err(RuntimeError::UnknownImage(name)) if *name == spec.image);
        assert!(is_it, "{refused:?}");
    }
}

#[tokio::test]
async fn forty_layers_show_the_same_files_as_one() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let mut layers = vec![made::base()];
    let mut whole = Layer::new().directory("many", 0o755);
    for number in 1..40 {
        let mut layer = Layer::new().directory("many", 0o755).directory("many/deep", 0o700);
        layer = layer.file("many/last", &number.to_string());
        layer = layer.file(&format!("many/{number}"), "x").file("many/deep/file", "y");
        if number > 1 {
            // Of what each layer has, the one above takes something away.
            layer = layer.without(&format!("many/{}", number - 1));
        }
        layers.push(layer.end());
    }
    whole = whole.directory("many/deep", 0o700).file("many/last", "39");
    whole = whole.file("many/39", "x").file("many/deep/file", "y");
    let (many, few) = (layers, [made::base(), whole.end()]);
    let config = RunConfiguration::default;
    made::put(native.images(), "many", &many, config());
    made::put(native.images(), "few", &few, config());
    let mut seen = Vec::new();
    for image in ["many", "few"] {
        let spec = on(&host, image);
        native.ensure(&spec).await.unwrap();
        // The sizes of directories are those of the layers that they are made of.
        let look = "find / -xdev -type d -printf '%p %y %m %U %G\\n' -o -printf '%p %y %m %s %U %G %l\\n' | sort; cat /many/last";
        seen.push(run(&host, &spec, look).await);
        native.remove(spec.id).await.unwrap();
    }
    assert!(
        seen[0].len() > 40 && seen[0].iter().any(|line| line.contains("/many/39 f")),
        "{seen:?}"
    );
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn two_on_the_same_layers_do_not_see_each_other() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let layers = [made::base(), Layer::new().file("shared", "both").end()];
    made::put(native.images(), "shared", &layers, RunConfiguration::default());
    let (one, other) = (on(&host, "shared"), on(&host, "shared"));
    for spec in [&one, &other] {
        native.ensure(spec).await.unwrap();
    }
    host.write(&one, "/shared", "mine").await;
    host.write(&one, "/added", "mine").await;
    run(&host, &one, "rm /usr/bin/sort").await;
    assert_eq!(host.read(&other, "/shared").await.as_deref(), Some("both"));
    assert_eq!(host.read(&other, "/added").await, None);
    assert_eq!(run(&host, &other, "echo x | sort").await, ["x"]);
    let third = on(&host, "shared");
    native.ensure(&third).await.unwrap();
    assert_eq!(host.read(&third, "/shared").await.as_deref(), Some("both"));
    for spec in [one, other, third] {
        native.remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn an_image_stays_for_as_long_as_a_sandbox_stands_on_it() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let layers = [made::base(), Layer::new().file("kept", "here").end()];
    let digest = made::put(native.images(), "kept", &layers, RunConfiguration::default());
    let spec = pinned(&host, "kept", &digest);
    native.ensure(&spec).await.unwrap();
    native.images().unname(&Reference::parse("kept").unwrap()).unwrap();
    native.images().collect(&BTreeSet::new()).unwrap();
    assert_eq!(host.read(&spec, "/kept").await.as_deref(), Some("here"));
    // The next server finds it in use too, and a snapshot is a use that the caller knows of.
    drop(native);
    host.reopen().await;
    let native = host.native();
    native.images().collect(&BTreeSet::new()).unwrap();
    assert_eq!(run(&host, &spec, "cat /kept").await, ["here"]);
    if let Some(snapshots) = native.snapshots() {
        let snapshot = SnapshotId::random();
        snapshots.take(spec.id, snapshot).await.unwrap();
        native.remove(spec.id).await.unwrap();
        native.images().collect(&BTreeSet::from([digest.clone()])).unwrap();
        let restored = SandboxSpec { snapshot: Some(snapshot), ..pinned(&host, "kept", &digest) };
        native.ensure(&restored).await.unwrap();
        assert_eq!(host.read(&restored, "/kept").await.as_deref(), Some("here"));
        native.remove(restored.id).await.unwrap();
    } else {
        native.remove(spec.id).await.unwrap();
    }
    let collected = native.images().collect(&BTreeSet::new()).unwrap();
    assert_eq!(collected.images, 1, "nobody stands on it any more");
    let gone = native.ensure(&pinned(&host, "kept", &digest)).await;
    assert!(matches!(gone, Err(RuntimeError::UnknownImage(_))), "{gone:?}");
}

#[tokio::test]
async fn a_snapshot_stands_on_the_very_image_that_it_was_taken_on() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let Some(snapshots) = native.snapshots() else { return };
    let put = |text: &str| {
        let layers = [made::base(), Layer::new().file("said", text).end()];
        made::put(native.images(), "moving", &layers, as_app())
    };
    let old = put("old");
    let source = on(&host, "moving");
    native.ensure(&source).await.unwrap();
    // The user has moved: who programs run as is looked up in the files of the snapshot.
    let passwd = "root:x:0:0::/root:/bin/sh\\napp:x:1234:1001::/srv:/bin/sh";
    let body =
        serde_json::json!({ "command": format!("echo -e '{passwd}' > /etc/passwd"), "uid": 0 });
    said(&host, &source, "POST /command", &body).await;
    let snapshot = SnapshotId::random();
    snapshots.take(source.id, snapshot).await.unwrap();
    native.remove(source.id).await.unwrap();
    put("new");
    let restored = SandboxSpec { snapshot: Some(snapshot), ..pinned(&host, "moving", &old) };
    native.ensure(&restored).await.unwrap();
    assert_eq!(
        run(&host, &restored, "id -u; cat /said; echo; echo $HOME").await,
        ["1234", "old", "/srv"]
    );
    let astray = SandboxSpec { snapshot: Some(snapshot), ..on(&host, "moving") };
    let refused = native.ensure(&astray).await;
    assert!(matches!(refused, Err(RuntimeError::Invalid(_))), "{refused:?}");
    native.remove(restored.id).await.unwrap();
    snapshots.delete(snapshot).await.unwrap();
}
