use std::sync::Mutex;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::testing::{LOOPBACK, TestHouse, only, policy};

/// Answers each connection with the next of these.
async fn serve(answers: Vec<String>) -> (u16, TaskTracker) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert_ne!(stream.read(&mut request).await.unwrap(), 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (port, tasks)
}

async fn fetch(policy: Arc<Policy>, url: &str) -> Result<String, FetchError> {
    let house = TestHouse::start(policy.clone()).await;
    let kept = Mutex::new(Vec::new());
    let mut keep = |data: &[u8]| {
        kept.lock().unwrap().extend_from_slice(data);
        Ok(())
    };
    house.egress.fetch(SandboxId::random(), policy, url, &mut keep).await?;
    Ok(String::from_utf8(kept.into_inner().unwrap()).unwrap())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn what_the_policy_names_is_fetched_and_nothing_else() {
    let (port, _tasks) = serve(vec![OK.to_owned()]).await;
    let url = format!("http://a.test:{port}/a?b");
    assert_eq!(fetch(only(&["a.test", LOOPBACK]), &url).await.unwrap(), "hello");
    let methods = r#"{"egress":[{"action":"allow","target":"a.test","methods":["POST"]}]}"#;
    // The last may reach the name, but not where it leads.
    for denied in
        [only(&[LOOPBACK]), only(&["b.test", LOOPBACK]), policy(methods), only(&["a.test"])]
    {
        let error = fetch(denied, &url).await.unwrap_err();
        assert!(matches!(error, FetchError::Denied { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_asked_about_again() {
    let (end, _tasks) = serve(vec![OK.to_owned()]).await;
    let moved =
        |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    let (port, _more) = serve(vec![
        moved(&format!("http://a.test:{end}/b")),
        moved(&format!("http://b.test:{end}/b")),
        moved("ftp://a.test/"),
    ])
    .await;
    let url = format!("http://a.test:{port}/a");
    let policy = only(&["a.test", LOOPBACK]);
    assert_eq!(fetch(policy.clone(), &url).await.unwrap(), "hello");
    let error = fetch(policy.clone(), &url).await.unwrap_err();
    assert!(matches!(&error, FetchError::Denied { host, .. } if host == "b.test"), "{error}");
    let error = fetch(policy, &url).await.unwrap_err();
    assert!(matches!(error, FetchError::Address(_)), "{error}");
}

#[tokio::test]
async fn what_is_no_file_is_said_to_be_none() {
    let (port, _tasks) =
        serve(vec!["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()]).await;
    let error = fetch(only(&["a.test", LOOPBACK]), &format!("http://a.test:{port}/a")).await;
    assert!(matches!(error, Err(FetchError::Status { status: StatusCode::NOT_FOUND, .. })));
    for url in ["ftp://x/", "http://", "http://user:password@x/", "x", "http://a b/"] {
        assert!(fetch(only(&["x"]), url).await.is_err(), "{url}");
    }
}
