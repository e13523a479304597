//! Warm sandboxes: the same laws, and what is true of pools alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use osb_core::{
    Cpu, ImageName, Memory, PoolStatus, Runtime, agent::CodeAhead, testkit::conformance::Harness,
};
use osb_image::RunConfiguration;
use osb_native::{Native, PoolConfig};
use osb_registry::Reference;

use crate::{
    Host, ask, images,
    made::{self, Layer},
};

const SIZE: usize = 3;

fn pool(image: &str, size: usize) -> PoolConfig {
    let (code, env) = (CodeAhead::default(), BTreeMap::new());
    PoolConfig { image: ImageName::new(image), size, code, env }
}

async fn host() -> Option<Host> {
    let pools = vec![pool("host", SIZE)];
    let host = Host::new(pools).await?;
    is_full(&host.native()).await;
    Some(host)
}

async fn is_full(native: &Native) {
    comes_to(native, |pool| pool.ready == pool.target).await;
}

async fn comes_to(native: &Native, wanted: impl Fn(&PoolStatus) -> bool) {
    for _ in 0..4000 {
        if native.pools().iter().all(&wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the pool stays at {:?}", native.pools());
}

/// How many entries a part of the data directory has.
fn entries(host: &Host, part: &str) -> usize {
    osb_sys::fs::names(host.directory.path().join(part)).unwrap().len()
}

osb_core::conformance!(host);

#[tokio::test]
async fn a_claimed_sandbox_is_taken_from_the_pool_and_replaced() {
    let Some(host) = host().await else { return };
    let native = host.native();
    assert!(native.list().await.unwrap().is_empty(), "nobody sees those that wait");
    let spec = host.spec();
    native.ensure(&spec).await.unwrap();
    let pools = native.pools();
    assert_eq!((pools[0].claims, pools[0].misses), (1, 0), "{pools:?}");
    is_full(&native).await;
    assert_eq!(entries(&host, "pool"), SIZE, "never more than its size");
    assert_eq!(native.list().await.unwrap().len(), 1);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn instructions_that_are_longer_than_a_message_arrive_too() {
    let Some(host) = host().await else { return };
    let mut spec = host.spec();
    for number in 0..4 {
        spec.env.insert(format!("LONG_{number}"), "x".repeat(100_000));
    }
    let native = host.native();
    native.ensure(&spec).await.unwrap();
    let pools = native.pools();
    assert_eq!((pools[0].claims, pools[0].misses), (1, 0), "{pools:?}");
    let body = r#"{"command": "echo $(expr length $LONG_3)"}"#;
    let (status, said) = ask(&host, &spec, "POST /command", body).await;
    assert!(status == 200 && said.contains("100000"), "{status} {said}");
    native.remove(spec.id).await.unwrap();
}

/// An image in which execd finds nothing that it could start.
#[tokio::test]
async fn interpreters_that_an_image_lacks_leave_it_as_it_is() {
    let code = CodeAhead { languages: vec!["python".to_owned()], imports: Vec::new() };
    let pools = vec![PoolConfig { code, ..pool("lacking", 1) }];
    let Some(host) = Host::new(pools).await else { return };
    made::put(host.native().images(), "lacking", &[made::base()], RunConfiguration::default());
    is_full(&host.native()).await;
    let spec = images::on(&host, "lacking");
    host.native().ensure(&spec).await.unwrap();
    let body = r#"{"code": "1", "context": {"language": "python"}}"#;
    let (status, said) = ask(&host, &spec, "POST /code", body).await;
    assert!(status >= 400 && said.contains("python3 or python"), "{status} {said}");
    host.native().remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn interpreters_of_a_pool_run_before_they_are_asked_for() {
    let languages = vec!["python".to_owned()];
    let code = CodeAhead { languages, imports: vec!["json.tool".to_owned()] };
    let env = BTreeMap::from([("PYTHONPATH".to_owned(), "/expected".to_owned())]);
    let pools = vec![PoolConfig { code, env, ..pool("host", 1) }];
    let Some(host) = Host::new(pools).await else { return };
    let native = host.native();
    is_full(&native).await;
    let mut spec = host.spec();
    spec.env.insert("TOLD".to_owned(), "later".to_owned());
    spec.env.insert("PYTHONPATH".to_owned(), "/expected".to_owned());
    // More than what those have that wait, and of the other less.
    spec.resources.memory = Some(Memory::from_bytes(4 << 30));
    // Without control groups that is settled when a sandbox is started.
    spec.resources.pids = host.group_of("any").is_real().then_some(100);
    spec.resources.cpu = Some(Cpu::from_millis(500));
    native.ensure(&spec).await.unwrap();
    let code = "import os, sys; \
        (os.environ['TOLD'], 'json.tool' in sys.modules, '/expected' in sys.path)";
    let body = serde_json::json!({"code": code, "context": {"language": "python"}}).to_string();
    let (status, said) = ask(&host, &spec, "POST /code", &body).await;
    assert!(status == 200 && said.contains("('later', True, True)"), "{status} {said}");
    let pools = native.pools();
    assert_eq!((pools[0].claims, pools[0].misses, pools[0].failures), (1, 0, 0), "{pools:?}");
    native.remove(spec.id).await.unwrap();
}

/// The kernel would end the interpreter, and the sandbox would begin with a loss.
#[tokio::test]
async fn whoever_wants_less_memory_than_interpreters_take_gets_a_new_sandbox() {
    let code = CodeAhead { languages: vec!["python".to_owned()], imports: Vec::new() };
    let pools = vec![PoolConfig { code, ..pool("host", 1) }];
    let Some(host) = Host::new(pools).await else { return };
    let native = host.native();
    if !host.group_of("any").is_real() {
        // Nobody is limited then.
        return;
    }
    is_full(&native).await;
    let mut spec = host.spec();
    spec.resources.memory = Some(Memory::from_bytes(5 << 20));
    native.ensure(&spec).await.unwrap();
    let body = r#"{"command": "cat /proc/[0-9]*/comm"}"#;
    let (status, said) = ask(&host, &spec, "POST /command", body).await;
    assert!(status == 200 && said.contains("execd"), "{status} {said}");
    assert!(!said.contains("python"), "{said}");
    assert_eq!(native.list().await.unwrap()[0].oom_kills, 0);
    // The one that could not be used was replaced, and serves who wants more.
    is_full(&native).await;
    native.remove(spec.id).await.unwrap();
    assert_eq!(entries(&host, "pool"), 1);
}

#[tokio::test]
async fn what_the_pool_cannot_give_is_made_anew() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let specs: Vec<_> = (0..=SIZE).map(|_| host.spec()).collect();
    for spec in &specs {
        native.ensure(spec).await.unwrap();
    }
    let pools = native.pools();
    assert_eq!(pools[0].claims + pools[0].misses, SIZE as u64 + 1, "{pools:?}");
    assert_eq!(native.list().await.unwrap().len(), SIZE + 1);
    for spec in &specs {
        native.remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn those_that_wait_end_with_their_server_and_the_next_one_clears_them() {
    let Some(host) = host().await else { return };
    let claimed = host.spec();
    host.native().ensure(&claimed).await.unwrap();
    is_full(&host.native()).await;
    let next: Arc<dyn Runtime> = host.reopen().await;
    let listed: Vec<_> = next.list().await.unwrap().into_iter().map(|seen| seen.id).collect();
    assert_eq!(listed, [claimed.id], "the claimed one lives, and nothing else");
    is_full(&host.native()).await;
    assert_eq!(entries(&host, "pool"), SIZE, "nothing is left of the first server's");
    next.remove(claimed.id).await.unwrap();
}

#[tokio::test]
async fn a_warm_sandbox_that_ends_is_replaced() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let name = osb_sys::fs::names(host.directory.path().join("pool")).unwrap().remove(0);
    let group = host.group_of(&name);
    let mut processes = group.processes();
    // Where the server is not root, the first one has written down which one it is.
    let alive = host.directory.path().join("pool").join(&name).join("alive");
    if let Ok(text) = osb_sys::fs::read_to_string(alive) {
        processes.push(text.trim().parse::<osb_sys::process::Trace>().unwrap().pid());
    }
    assert!(!processes.is_empty());
    // Opened before any is killed: with the first one, the others end.
    let opened: Vec<_> =
        processes.into_iter().filter_map(|pid| osb_sys::process::open(pid).ok()).collect();
    for process in opened {
        osb_sys::process::kill(process).unwrap();
    }
    comes_to(&native, |pool| pool.failures == 1 && pool.ready == pool.target).await;
    assert!(group.processes().is_empty());
    let spec = host.spec();
    native.ensure(&spec).await.unwrap();
    native.remove(spec.id).await.unwrap();
}

async fn pool_of(image: &str) -> Option<Host> {
    Host::new(vec![pool(image, SIZE)]).await
}

#[tokio::test]
async fn a_pool_waits_for_its_image_and_gives_it_up_with_its_name() {
    let Some(host) = pool_of("later").await else { return };
    let native = host.native();
    let unknown = native.ensure(&images::on(&host, "later")).await;
    assert!(matches!(unknown, Err(osb_core::RuntimeError::UnknownImage(_))), "{unknown:?}");
    assert_eq!((native.pools()[0].ready, native.pools()[0].failures), (0, 0));
    made::put(native.images(), "later", &[made::base()], RunConfiguration::default());
    is_full(&native).await;
    // The same image by another of its names.
    let spec = images::on(&host, "docker.io/library/later:latest");
    native.ensure(&spec).await.unwrap();
    assert_eq!((native.pools()[0].claims, native.pools()[0].misses), (1, 0));
    native.remove(spec.id).await.unwrap();
    native.images().unname(&Reference::parse("later").unwrap()).unwrap();
    comes_to(&native, |pool| pool.ready == 0).await;
    // Until the last of those that waited is gone, it holds the image.
    for _ in 0..4000 {
        native.images().collect(&std::collections::BTreeSet::new()).unwrap();
        if native.images().list().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((native.images().list(), native.pools()[0].failures), (Vec::new(), 0));
    assert_eq!(entries(&host, "pool"), 0);
}

#[tokio::test]
async fn when_a_name_moves_those_that_wait_on_the_old_image_go() {
    let Some(host) = pool_of("moving").await else { return };
    let native = host.native();
    let put = |text: &str| {
        let layers = [made::base(), Layer::new().file("said", text).end()];
        made::put(native.images(), "moving", &layers, RunConfiguration::default())
    };
    let old = put("old");
    is_full(&native).await;
    let before = osb_sys::fs::names(host.directory.path().join("pool")).unwrap();
    put("new");
    for _ in 0..4000 {
        let now = osb_sys::fs::names(host.directory.path().join("pool")).unwrap();
        if !now.iter().any(|name| before.contains(name)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    is_full(&native).await;
    let new = images::on(&host, "moving");
    native.ensure(&new).await.unwrap();
    assert_eq!(host.read(&new, "/said").await.as_deref(), Some("new"));
    assert_eq!((native.pools()[0].claims, native.pools()[0].failures), (1, 0));
    // Whoever wants the old one gets it, and takes none from those who want the new one.
    let mut other = images::on(&host, "moving");
    other.image_digest = Some(osb_core::ImageDigest::new(old.as_str()));
    is_full(&native).await;
    native.ensure(&other).await.unwrap();
    assert_eq!(host.read(&other, "/said").await.as_deref(), Some("old"));
    assert_eq!((native.pools()[0].claims, native.pools()[0].ready), (1, SIZE));
    for spec in [new, other] {
        native.remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_claimed_sandbox_begins_as_its_image_says() {
    let Some(host) = pool_of("app").await else { return };
    let native = host.native();
    made::put(native.images(), "app", &[made::base()], images::as_app());
    is_full(&native).await;
    images::begins_as_app(&host, "app").await;
    assert_eq!((native.pools()[0].claims, native.pools()[0].misses), (1, 0));
}

#[tokio::test]
async fn a_pool_of_what_can_be_no_image_is_refused() {
    let Some(host) = Host::new(Vec::new()).await else { return };
    host.native().release().unwrap();
    let pools = vec![pool("No Image", 1)];
    let refused = Native::start(host.config(pools), osb_bundle::EXECD).await;
    assert!(matches!(refused, Err(osb_native::StartError::Pool(_))), "{refused:?}");
}
