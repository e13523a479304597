//! Requests that mean one thing to us and could mean another to whoever is behind us.

use std::{
    io::{Read, Write},
    sync::{Arc, Mutex},
};

use osb_core::testkit::Line;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::TestServer;

/// All that the services of a test were sent, one text for each connection.
type Sent = Arc<Mutex<Vec<String>>>;

/// Answers one request, and listens for whatever comes after it.
fn listen(sent: &Sent) -> impl Fn(Line) + Send + Sync + 'static {
    let sent = Arc::clone(sent);
    move |mut line| {
        let sent = Arc::clone(&sent);
        std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut byte = [0];
            while !is_whole(&all) && line.read(&mut byte).is_ok_and(|n| n == 1) {
                all.push(byte[0]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
            line.write_all(answer).ok();
            line.read_to_end(&mut all).ok();
            sent.lock().expect("a lock").push(String::from_utf8_lossy(&all).into_owned());
        });
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().expect("a length"))
}

/// Sends the bytes, and returns every status line that comes back.
async fn statuses(server: &TestServer, request: &str) -> Vec<u16> {
    let mut stream = TcpStream::connect(&server.address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = Vec::new();
    // A connection that is broken has said what it had to say.
    stream.read_to_end(&mut answer).await.ok();
    let text = String::from_utf8_lossy(&answer).into_owned();
    // The answer to the next request begins where the last body ended.
    text.split("HTTP/1.1 ").skip(1).map(|rest| rest[..3].parse().expect("a status")).collect()
}

#[tokio::test]
async fn whatever_is_hidden_in_a_request_does_not_reach_the_service() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let sent = Sent::default();
    server.world.runtime.listen(id.parse().expect("an id"), 8080, listen(&sent));
    let path = format!("/v1/sandboxes/{id}/proxy/8080/in");
    let host = "host: localhost\r\n";
    let hidden = "GET /hidden HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let post = format!("POST {path} HTTP/1.1\r\n{host}");
    let length = hidden.len() + 5;
    for (what, request, first) in [
        // The coding counts, so what follows is a request of its own, which is ours to answer.
        (
            "a length and a coding",
            format!(
                "{post}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n\
                 0\r\n\r\n{hidden}"
            ),
            &[200, 400][..],
        ),
        (
            "a coding and a length",
            format!(
                "{post}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n\
                 0\r\n\r\n{hidden}"
            ),
            &[200, 400],
        ),
        (
            "two lengths",
            format!("{post}content-length: 0\r\ncontent-length: {length}\r\n\r\n{hidden}"),
            &[400],
        ),
        ("a list of lengths", format!("{post}content-length: 0, 5\r\n\r\n{hidden}"), &[400]),
        ("a signed length", format!("{post}content-length: +0\r\n\r\n{hidden}"), &[400]),
        (
            "a coding that is none",
            format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
            &[400],
        ),
        (
            "a coding that is not the last",
            format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
            &[400],
        ),
        (
            "a coding in a folded line",
            format!("{post}transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n{hidden}"),
            &[400],
        ),
        (
            "a header in a folded line",
            format!("{post}x-a: 1\r\n content-length: 5\r\n\r\n{hidden}"),
            &[400],
        ),
        ("a space before the colon", format!("{post}content-length : 5\r\n\r\n{hidden}"), &[400]),
        ("a return inside a header", format!("{post}x-a: 1\rx-b: 2\r\n\r\n{hidden}"), &[400]),
        ("a zero inside a header", format!("{post}x-a: 1\0\r\n\r\n{hidden}"), &[400]),
        ("a zero in the path", format!("POST {path}\0 HTTP/1.1\r\n{host}\r\n{hidden}"), &[400]),
        (
            "a chunk with a sign",
            format!("{post}transfer-encoding: chunked\r\n\r\n-1\r\n\r\n{hidden}"),
            &[400, 502],
        ),
        (
            "a chunk that is too long for a number",
            format!("{post}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n{hidden}"),
            &[400, 502],
        ),
    ] {
        let statuses = statuses(&server, &request).await;
        let is_right = match statuses.as_slice() {
            // A connection that is closed without a word is a refusal, too.
            [] => first.contains(&400),
            [status] => first.contains(status),
            // Our own answer to what follows: there is no such path, and it has no key.
            [status, 401] => *status == 200 && first.contains(status),
            _ => false,
        };
        assert!(is_right, "{what}: {statuses:?}");
    }
    server.stop().await;
    // A connection may be there before the request turns out to be none.
    for text in sent.lock().expect("a lock").iter().filter(|text| !text.is_empty()) {
        assert!(text.starts_with("POST /in HTTP/1.1\r\n"), "{text:?}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "something was hidden: {text:?}");
        assert!(!text.contains("hidden"), "{text:?}");
    }
}

#[tokio::test]
async fn lines_without_returns_arrive_as_lines() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let sent = Sent::default();
    server.world.runtime.listen(id.parse().expect("an id"), 8080, listen(&sent));
    let request = format!(
        "GET /v1/sandboxes/{id}/proxy/8080/in HTTP/1.1\nhost: localhost\nconnection: close\n\n"
    );
    assert!(matches!(statuses(&server, &request).await.as_slice(), [200 | 400]));
    server.stop().await;
    for text in sent.lock().expect("a lock").iter() {
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
    }
}

#[tokio::test]
async fn paths_lead_where_their_bytes_say() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let sent = Sent::default();
    server.world.runtime.listen(id.parse().expect("an id"), 8080, listen(&sent));
    let base = format!("/v1/sandboxes/{id}");
    let end = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    for (path, status) in [
        (format!("{base}/proxy/8080/a%2Fb//c/%2e%2e/d?e=%2F"), 200),
        (format!("http://elsewhere.example{base}/proxy/8080/a%2Fb//c/%2e%2e/d?e=%2F"), 200),
        // Without the key, whatever could be something else is closed.
        (format!("{base}/proxy/8080/../../../sandboxes"), 401),
        (format!("{base}/proxy/8080/.."), 401),
        (format!("{base}/proxy%2F8080/"), 401),
        (format!("{base}//proxy/8080/"), 401),
        (format!("//v1/sandboxes/{id}/proxy/8080/"), 401),
        (format!("/v1/sandboxes/{id}%2Fproxy/8080/"), 401),
        (format!("/v1/./sandboxes/{id}/proxy/8080/"), 401),
        (format!("{base}/PROXY/8080/"), 401),
        (format!("{base}/proxy/80%380/"), 401),
        (format!("{base}/proxy/08080x/"), 401),
        (format!("{base}/proxy/8080-1-%31/"), 401),
    ] {
        let statuses = statuses(&server, &format!("GET {path} {end}")).await;
        assert_eq!(statuses, [status], "{path}");
    }
    server.stop().await;
    let sent = sent.lock().expect("a lock");
    assert_eq!(sent.len(), 2, "{sent:?}");
    for text in sent.iter() {
        assert!(text.starts_with("GET /a%2Fb//c/%2e%2e/d?e=%2F HTTP/1.1\r\n"), "{text:?}");
    }
}
