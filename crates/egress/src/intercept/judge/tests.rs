use std::{convert::Infallible, io::ErrorKind, time::Duration};

use http_body_util::{Full, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    Decision, Ending,
    testing::{TestHouse, policy, rest},
};

/// A host that tells what it was asked. What it is asked at `/endless` it answers without an end.
async fn host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TaskTracker::new().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let served =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(tell));
            TaskTracker::new().spawn(served.with_upgrades());
        }
    });
    port
}

async fn tell(mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let text = format!("saw {} {}\n", request.method(), request.uri());
    if request.headers().contains_key("upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        TaskTracker::new().spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            stream.write_all(b"switched").await.unwrap();
            stream.read_u8().await.ok();
        });
        let builder = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let builder = builder.header("connection", "upgrade").header("upgrade", "websocket");
        return Ok(builder.body(whole(String::new())).unwrap());
    }
    if request.uri().path() == "/endless" {
        let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from(text)))]);
        let stream = futures_util::StreamExt::chain(first, futures_util::stream::pending());
        return Ok(Response::new(StreamBody::new(stream).boxed_unsync()));
    }
    Ok(Response::new(whole(text)))
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn rules(port: u16, rules: &str) -> Arc<crate::Policy> {
    policy(&rules.replace("PORT", &port.to_string()))
}

const GET_ONLY: &str = r#"{"egress":[
    {"action":"allow","target":"a.test","ports":[PORT],"methods":["GET"],"paths":["/x/*","/endless"]}
]}"#;

/// Asks, and reads until the text has come.
async fn ask(stream: &mut TcpStream, request: &str, until: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(until) {
        let read = stream.read_buf(&mut said).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&said));
    }
    String::from_utf8(said).unwrap()
}

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a.test:PORT\r\nContent-Length: 0\r\n\r\n")
}

fn requests(house: &TestHouse) -> Vec<(String, Ruling)> {
    let all = house.door.recent().into_iter().filter_map(|Decision { what, ruling, .. }| {
        let Asked { method, path, .. } = what.request?;
        Some((format!("{method} {path}"), ruling))
    });
    all.collect()
}

#[tokio::test]
async fn every_request_of_a_connection_is_judged() {
    let port = host().await;
    let house = TestHouse::start(rules(port, GET_ONLY)).await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    let request = |method, path| request(method, path).replace("PORT", &port.to_string());
    let said = ask(&mut stream, &request("GET", "/x/1?secret=2"), "saw").await;
    assert!(said.contains("saw GET /x/1?secret=2"), "{said}");
    let said = ask(&mut stream, &request("POST", "/x/1"), "}\n").await;
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    let body: serde_json::Value =
        serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["rule"], serde_json::Value::Null);
    let rule = json!({"action": "allow", "target": "a.test", "ports": [port],
        "methods": ["POST"], "paths": ["/x/1"]});
    assert_eq!(body["allowedBy"], rule, "{body}");
    let said = ask(&mut stream, &request("GET", "/y"), "}\n").await;
    assert!(said.contains("GET a.test/y is refused"), "{said}");
    let said = ask(&mut stream, &request("GET", "/x/../y"), "}\n").await;
    assert!(said.contains("read in more ways"), "{said}");
    let said = ask(&mut stream, &request("GET", "/x/2"), "saw").await;
    assert!(said.contains("saw GET /x/2"), "{said}");
    let requests = requests(&house);
    let seen: Vec<_> = requests.iter().map(|(asked, it)| (asked.as_str(), it.verdict)).collect();
    let expected = [
        ("GET /x/1", Verdict::Allow),
        ("POST /x/1", Verdict::Deny),
        ("GET /y", Verdict::Deny),
        ("GET /x/../y", Verdict::Deny),
        ("GET /x/2", Verdict::Allow),
    ];
    assert_eq!(seen, expected);
    assert_eq!(requests[0].1.by, By::Rule(format!("GET a.test:{port}/x/*,/endless").into()));
}

#[tokio::test]
async fn whoever_is_refused_for_a_header_is_told_so() {
    let port = host().await;
    let house = TestHouse::start(rules(port, GET_ONLY)).await;
    let mut stream = house.connect(house.address("a.test", port)).await;
    let request = |header: &str| {
        request("GET", "/x/1").replace("PORT", &port.to_string()).replace("\r\n\r\n", header)
    };
    let overriding = request("\r\nX-HTTP-Method-Override: delete\r\nX-Original-URL: /y?z\r\n\r\n");
    let said = ask(&mut stream, &overriding, "}\n").await;
    let body: serde_json::Value =
        serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
    let message = body["message"].as_str().unwrap();
    let told = "some servers read DELETE, /y instead, which its header x-http-method-override, \
                x-original-url says";
    assert!(message.contains(told), "{message}");
    // The rule that is named is one that is not there.
    assert_eq!(body["allowedBy"]["methods"], json!(["DELETE", "GET"]));
    assert_eq!(body["allowedBy"]["paths"], json!(["/x/1", "/y"]));
    let Decision { what, .. } = house.decided(|it| it.what.request.is_some()).await;
    let Asked { other_methods, other_paths, .. } = what.request.unwrap();
    assert_eq!((&*other_methods, &*other_paths), (&["DELETE".into()][..], &["/y".into()][..]));
    let said = ask(&mut stream, &request("\r\nX_Method: GET, PUT\r\n\r\n"), "}\n").await;
    assert!(said.contains("its header x_method can be read in more ways"), "{said}");
    assert!(!said.contains("allowedBy"), "{said}");
}

#[tokio::test]
async fn what_is_for_another_host_or_no_request_at_all_is_refused() {
    let port = host().await;
    let house = TestHouse::start(rules(port, GET_ONLY)).await;
    for (request, answer) in [
        ("GET /x/1 HTTP/1.1\r\nHost: b.test\r\n\r\n".to_owned(), "421"),
        (format!("GET http://b.test:{port}/x/1 HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"), "421"),
        ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n".to_owned(), "405"),
        (format!("TRACE /x/1 HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"), "405"),
    ] {
        let mut stream = house.connect(house.address("a.test", port)).await;
        let said = ask(&mut stream, &request, "}\n").await;
        assert!(said.starts_with(&format!("HTTP/1.1 {answer}")), "{said}");
    }
    let seen = requests(&house);
    assert!(seen.iter().all(|(_, ruling)| ruling.by == By::Mismatch), "{seen:?}");
    for bytes in ["SSH-2.0-OpenSSH_9.2\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\0\0\0\0\n"] {
        let mut stream = house.connect(house.address("a.test", port)).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        drop(rest(&mut stream).await);
        let strange = Ending::Cut(Ruling { verdict: Verdict::Deny, by: By::Mismatch });
        let is_it = |it: &Decision| it.end.as_ref().is_some_and(|end| end.how == strange);
        let decision = house.decided(is_it).await;
        assert_eq!(decision.what.protocol, Protocol::Tcp, "{bytes}");
    }
}

#[tokio::test]
async fn a_change_of_the_policy_counts_for_what_is_open() {
    let port = host().await;
    let plain = r#"{"egress":[{"action":"allow","target":"a.test"}]}"#;
    let house = TestHouse::start(rules(port, plain)).await;
    let request = |method, path| request(method, path).replace("PORT", &port.to_string());
    let mut unseen = house.connect(house.address("a.test", port)).await;
    ask(&mut unseen, &request("POST", "/"), "saw").await;
    house.door.set_policy(rules(port, GET_ONLY));
    assert_eq!(rest(&mut unseen).await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let mut kept = house.connect(house.address("a.test", port)).await;
    ask(&mut kept, &request("GET", "/x/"), "saw").await;
    let mut endless = house.connect(house.address("a.test", port)).await;
    ask(&mut endless, &request("GET", "/endless"), "saw").await;
    let mut socket = house.connect(house.address("a.test", port)).await;
    let upgrade = format!(
        "GET /x/s HTTP/1.1\r\nHost: a.test:{port}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    ask(&mut socket, &upgrade, "switched").await;
    let narrower = GET_ONLY.replace(r#""/x/*","/endless""#, r#""/x/""#);
    house.door.set_policy(rules(port, &narrower));
    for (name, stream) in [("endless", &mut endless), ("socket", &mut socket)] {
        let ended = tokio::time::timeout(Duration::from_secs(10), rest(stream)).await;
        assert!(ended.expect(name).is_err(), "{name} looks complete");
    }
    // Nothing was under way here, so the connection goes on under the new policy.
    let said = ask(&mut kept, &request("GET", "/x/1"), "}\n").await;
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    ask(&mut kept, &request("GET", "/x/"), "saw").await;
}

#[tokio::test]
async fn an_offer_of_another_form_of_http_is_not_passed_on() {
    let port = host().await;
    let house = TestHouse::start(rules(port, GET_ONLY)).await;
    for offer in ["h2c", "websocket, h2c", "HTTP/2.0", "TLS/1.2", "tcp"] {
        let mut stream = house.connect(house.address("a.test", port)).await;
        let request = format!(
            "GET /x/ HTTP/1.1\r\nHost: a.test:{port}\r\nConnection: upgrade\r\nUpgrade: {offer}\r\n\r\n"
        );
        let said = ask(&mut stream, &request, "saw").await;
        assert!(said.starts_with("HTTP/1.1 200"), "{offer}: {said}");
    }
}

#[tokio::test]
async fn rules_about_requests_are_not_passed_by_through_an_address() {
    let port = host().await;
    let open = r#"{"defaultAction":"allow","egress":[
        {"action":"deny","target":"a.test","ports":[PORT],"methods":["POST"]}]}"#;
    let house = TestHouse::start(rules(port, open)).await;
    let request = |method| request(method, "/").replace("PORT", &port.to_string());
    let mut stream = house.connect(([127, 0, 0, 1], port).into()).await;
    stream.write_all(request("GET").as_bytes()).await.unwrap();
    assert!(rest(&mut stream).await.is_err(), "it was passed on unseen");
    let mut stream = house.connect(house.address("a.test", port)).await;
    ask(&mut stream, &request("GET"), "saw").await;
    let said = ask(&mut stream, &request("POST"), "}\n").await;
    assert!(said.contains(&format!("`POST a.test:{port}`")), "{said}");
}

#[tokio::test]
async fn trailers_make_no_other_request() {
    let trailers = ["x-checksum", "x-http-method-override", "x_original_url"];
    let trailers = trailers.map(|name| (http::HeaderName::from_static(name), "/admin".parse()));
    let trailers = trailers.into_iter().map(|(name, value)| (name, value.unwrap())).collect();
    let frames = [Ok(Frame::data(Bytes::from("text"))), Ok(Frame::trailers(trailers))];
    let body = Trailed(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
    let whole = body.collect().await.unwrap();
    let names: Vec<_> = whole.trailers().unwrap().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-checksum"]);
    assert_eq!(whole.to_bytes(), "text");
}

#[test]
fn the_rules_of_the_operator_are_not_told() {
    let (theirs, ours) = (By::Operator("*.tracker.test".into()), By::Rule("a.test".into()));
    let (text, rule) = why(&theirs);
    assert!(!text.contains("tracker") && rule.is_none(), "{text}");
    let (text, rule) = why(&ours);
    assert!(text.contains("`a.test`") && rule == Some("a.test"), "{text}");
}
