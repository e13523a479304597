use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Request;
use osb_core::testkit::Call;
use osb_gateway::GatewayError;

use crate::site::{Site, answer, settle, text, text_of};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_second_request_costs_no_connection() {
    let site = Site::new();
    let id = site.service(async |_| answer("hello")).await;
    for _ in 0..20 {
        assert_eq!(site.get(id, "/").await.unwrap(), "hello");
        settle().await;
    }
    assert_eq!(site.runtime.calls(Call::Dial), 1);
}

#[tokio::test]
async fn sandboxes_never_share_a_connection() {
    let site = Site::new();
    let first = site.service(async |_| answer("first")).await;
    let second = site.service(async |_| answer("second")).await;
    for _ in 0..5 {
        assert_eq!(site.get(first, "/").await.unwrap(), "first");
        assert_eq!(site.get(second, "/").await.unwrap(), "second");
        settle().await;
    }
    assert_eq!(site.runtime.calls(Call::Dial), 2);
}

#[tokio::test]
async fn requests_at_once_have_connections_of_their_own() {
    let site = Site::new();
    let id = site.service(async |request| answer(request.uri().path().to_owned())).await;
    let paths: Vec<String> = (0..50).map(|number| format!("/{number}")).collect();
    let answers = futures_util::future::join_all(paths.iter().map(|path| site.get(id, path))).await;
    for (path, answer) in paths.iter().zip(answers) {
        assert_eq!(answer.unwrap(), *path);
    }
}

#[tokio::test]
async fn a_connection_that_the_service_closed_is_not_used() {
    let site = Site::new();
    let id = site.sandbox().await;
    site.raw_service(id, |mut stream| async move {
        stream.read_head().await;
        stream.say(OK).await;
    });
    for _ in 0..3 {
        let request = Request::post("/").body(text("")).unwrap();
        let response = site.forward(id, request).await.unwrap();
        assert_eq!(text_of(response).await.unwrap(), "ok");
        settle().await;
    }
    assert_eq!(site.runtime.calls(Call::Dial), 3);
}

/// A site whose service answers the first request of each connection and hangs up on the second.
async fn moody() -> (Site, osb_api::SandboxId, Arc<AtomicUsize>) {
    let site = Site::new();
    let id = site.sandbox().await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    site.raw_service(id, move |mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            stream.read_head().await;
            counter.fetch_add(1, Ordering::Relaxed);
            stream.say(OK).await;
            if stream.read_head().await {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (site, id, seen)
}

#[tokio::test]
async fn a_stale_connection_does_not_fail_what_may_be_repeated() {
    let (site, id, seen) = moody().await;
    for _ in 0..3 {
        assert_eq!(site.get(id, "/").await.unwrap(), "ok");
        settle().await;
    }
    // The second went wrong and was repeated on a connection for itself alone.
    assert_eq!((seen.load(Ordering::Relaxed), site.runtime.calls(Call::Dial)), (4, 3));
}

#[tokio::test]
async fn what_may_not_be_repeated_is_not() {
    let (site, id, seen) = moody().await;
    let post = || Request::post("/").body(text("")).unwrap();
    assert_eq!(text_of(site.forward(id, post()).await.unwrap()).await.unwrap(), "ok");
    settle().await;
    let error = site.forward(id, post()).await.unwrap_err();
    assert!(matches!(error, GatewayError::Broken { .. }), "{error:?}");
    assert!(!error.is_retry_safe());
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_first_connection_that_breaks_is_not_tried_again() {
    let site = Site::new();
    let id = site.sandbox().await;
    site.raw_service(id, |mut stream| async move {
        stream.read_head().await;
    });
    let error = site.get(id, "/").await.unwrap_err();
    assert!(matches!(error, GatewayError::Broken { .. }), "{error:?}");
    assert_eq!(site.runtime.calls(Call::Dial), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_let_go() {
    let site = Site::new();
    let id = site.sandbox().await;
    let (ended, mut end) = tokio::sync::mpsc::channel(1);
    site.raw_service(id, move |mut stream| {
        let ended = ended.clone();
        async move {
            stream.read_head().await;
            stream.say(OK).await;
            ended.send(stream.read_head().await).await.unwrap();
        }
    });
    assert_eq!(site.get(id, "/").await.unwrap(), "ok");
    assert_eq!(end.recv().await, Some(false), "the connection ended with a request");
}

#[tokio::test]
async fn few_idle_connections_are_kept() {
    let site = Site::new();
    let open = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&open);
    let id = site.sandbox().await;
    site.raw_service(id, move |mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::Relaxed);
            while stream.read_head().await {
                stream.say(OK).await;
            }
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    });
    for answer in futures_util::future::join_all((0..50).map(|_| site.get(id, "/"))).await {
        answer.unwrap();
    }
    settle().await;
    let kept = open.load(Ordering::Relaxed);
    assert!((1..=8).contains(&kept), "{kept} connections are kept");
}
