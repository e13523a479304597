//! The proxy to other ports.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use osb_api::{codes, headers};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};
use tokio_util::task::TaskTracker;

use crate::{
    daemon::{Body, Daemon, bytes, error, request},
    service::{Answer, Service, answer, pieces},
    websocket::WebSocket,
};

/// Answers with what was asked.
async fn repeat(request: Request<Incoming>) -> Response<Answer> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let headers: Vec<_> = parts
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), value.to_str().unwrap()]))
        .collect();
    let seen = json!({
        "method": parts.method.as_str(),
        "path": parts.uri.to_string(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let mut response = answer(seen.to_string());
    *response.status_mut() = StatusCode::IM_A_TEAPOT;
    response.headers_mut().append("set-cookie", "a=1".parse().unwrap());
    response.headers_mut().append("set-cookie", "b=2".parse().unwrap());
    response
}

/// Sends back what it gets, as it gets it.
async fn echo(request: Request<Incoming>) -> Response<Answer> {
    Response::new(request.into_body().boxed_unsync())
}

async fn seen(response: Response<Incoming>) -> Value {
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    serde_json::from_slice(&bytes(response).await).unwrap()
}

fn header<'a>(seen: &'a Value, name: &str) -> Option<&'a str> {
    let headers = seen["headers"].as_array().unwrap();
    headers.iter().find(|pair| pair[0] == name).map(|pair| pair[1].as_str().unwrap())
}

#[tokio::test]
async fn requests_arrive_as_they_were_sent() {
    let (daemon, service) = (Daemon::start(), Service::start(repeat).await);
    for (rest, path) in [
        ("", "/"),
        ("/", "/"),
        ("?a=b", "/?a=b"),
        ("/a%2Fb//c/../d;e?x=%20&y=/z&x", "/a%2Fb//c/../d;e?x=%20&y=/z&x"),
    ] {
        let mut asked = request(Method::PATCH, &service.path(rest), "the body");
        asked.headers_mut().insert("x-own", "kept".parse().unwrap());
        let response = daemon.send(asked).await;
        let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
        let seen = seen(response).await;
        assert_eq!((&seen["method"], &seen["path"]), (&json!("PATCH"), &json!(path)));
        assert_eq!(seen["body"], "the body");
        assert_eq!(header(&seen, "host"), Some("sandbox"));
        assert_eq!(header(&seen, "x-own"), Some("kept"));
        assert_eq!(header(&seen, "content-length"), Some("8"));
    }
}

#[tokio::test]
async fn services_learn_who_asks_and_not_how_it_was_let_in() {
    let daemon = Daemon::with(&[], &[("EXECD_ACCESS_TOKEN", "secret")]);
    let service = Service::start(repeat).await;
    let ask = |own: HeaderMap| {
        let mut asked = request(Method::GET, &service.path("/x"), "");
        asked.headers_mut().extend(own);
        asked.headers_mut().insert(headers::EXECD_TOKEN, "secret".parse().unwrap());
        asked.headers_mut().insert(headers::API_KEY, "key".parse().unwrap());
        asked.headers_mut().insert("connection", "x-hop".parse().unwrap());
        asked.headers_mut().insert("x-hop", "1".parse().unwrap());
        daemon.send(asked)
    };
    let direct = seen(ask(HeaderMap::new()).await).await;
    for hidden in [headers::EXECD_TOKEN, headers::API_KEY, "x-hop", "connection"] {
        assert_eq!(header(&direct, hidden), None);
    }
    assert_eq!(header(&direct, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(header(&direct, "x-forwarded-proto"), Some("http"));
    let told = [("x-forwarded-for", "198.51.100.7, 10.1.1.1"), ("x-forwarded-proto", "https")];
    let told = told.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let behind_another = seen(ask(HeaderMap::from_iter(told)).await).await;
    assert_eq!(header(&behind_another, "x-forwarded-for"), Some("198.51.100.7"));
    assert_eq!(header(&behind_another, "x-forwarded-proto"), Some("https"));
}

/// Asks with a body that is written piece by piece.
fn streaming(path: &str) -> (tokio::sync::mpsc::Sender<Bytes>, Request<Body>) {
    let (sender, body) = pieces();
    let asked = Request::post(path).header(header::HOST, "sandbox").body(body.boxed()).unwrap();
    (sender, asked)
}

async fn piece(body: &mut Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let (daemon, service) = (Daemon::start(), Service::start(echo).await);
    let (sender, asked) = streaming(&service.path("/"));
    let mut response = daemon.send(asked).await;
    assert_eq!(response.headers()[header::TRANSFER_ENCODING], "chunked");
    for word in ["one", "two", "three"] {
        sender.send(Bytes::from(word)).await.unwrap();
        assert_eq!(piece(response.body_mut()).await, word);
    }
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
}

#[tokio::test]
async fn events_are_not_held_back() {
    let daemon = Daemon::start();
    let (senders, mut started) = tokio::sync::mpsc::channel(1);
    let service = Service::start(move |_| {
        let senders = senders.clone();
        async move {
            let (sender, body) = pieces();
            senders.send(sender).await.unwrap();
            let mut response = Response::new(body.boxed_unsync());
            let kind = "text/event-stream".parse().unwrap();
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
    })
    .await;
    let mut response = daemon.get(&service.path("/events")).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let events = started.recv().await.unwrap();
    for _ in 0..3 {
        events.send(Bytes::from_static(b"data: x\n\n")).await.unwrap();
        assert_eq!(piece(response.body_mut()).await, "data: x\n\n");
    }
    // A client that leaves is noticed by the service.
    drop(response);
    tokio::time::timeout(std::time::Duration::from_secs(20), events.closed()).await.unwrap();
}

#[tokio::test]
async fn large_bodies_pass_without_being_kept() {
    const PIECES: usize = 512;
    let (daemon, service) = (Daemon::start(), Service::start(echo).await);
    let (sender, asked) = streaming(&service.path("/"));
    let mut response = daemon.send(asked).await;
    let content = Bytes::from(vec![7; 128 << 10]);
    let sending = async {
        for _ in 0..PIECES {
            sender.send(content.clone()).await.unwrap();
        }
        drop(sender);
    };
    let receiving = async {
        let mut length = 0;
        while let Some(frame) = response.body_mut().frame().await {
            length += frame.unwrap().into_data().unwrap().len();
        }
        length
    };
    let ((), length) = tokio::join!(sending, receiving);
    assert_eq!(length, PIECES * (128 << 10));
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
}

/// Agrees to speak WebSocket and says everything twice.
async fn parrot(mut request: Request<Incoming>) -> Response<Answer> {
    let upgrade = hyper::upgrade::on(&mut request);
    TaskTracker::new().spawn(async move {
        let stream = TokioIo::new(upgrade.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                socket.send(Message::text(format!("{text} {text}"))).await.unwrap();
            }
        }
    });
    let mut response = answer("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for name in ["connection", "upgrade", "sec-websocket-key"] {
        assert!(request.headers().contains_key(name), "{name}");
    }
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, "upgrade".parse().unwrap());
    headers.insert(header::UPGRADE, "websocket".parse().unwrap());
    let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".parse().unwrap();
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

#[tokio::test]
async fn web_sockets_pass() {
    let (daemon, service) = (Daemon::start(), Service::start(parrot).await);
    for prefix in ["", "/proxy/44772"] {
        let path = format!("{prefix}{}", service.path("/socket?x=1"));
        let mut client = WebSocket::open(&daemon, &path).await;
        for word in ["a", "bc"] {
            client.send(Message::text(word)).await;
            assert_eq!(client.message().await, Message::text(format!("{word} {word}")));
        }
        client.close().await;
    }
}

#[tokio::test]
async fn redirects_stay_below_the_proxy() {
    let daemon = Daemon::start();
    let service = Service::start(|_| async {
        let mut response = answer("");
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert(header::LOCATION, "/login".parse().unwrap());
        response
    })
    .await;
    let response = daemon.get(&service.path("/")).await;
    assert_eq!(response.headers()[header::LOCATION], service.path("/login").as_str());
}

#[tokio::test]
async fn our_own_port_is_us_however_deep() {
    let (daemon, service) = (Daemon::start(), Service::start(repeat).await);
    for path in ["/proxy/44772/ping", "/proxy/44772/proxy/44772/proxy/44772/ping"] {
        assert_eq!(daemon.get(path).await.status(), StatusCode::OK, "{path}");
    }
    let seen = seen(daemon.get(&format!("/proxy/44772{}", service.path("/x"))).await).await;
    assert_eq!(seen["path"], "/x");
}

#[tokio::test]
async fn a_service_may_listen_on_either_local_address() {
    let daemon = Daemon::start();
    let address = (std::net::Ipv6Addr::LOCALHOST, 0).into();
    if std::net::TcpListener::bind(address).is_err() {
        return println!("skipped: there is no IPv6 here");
    }
    let service = Service::on(address, repeat).await;
    assert_eq!(seen(daemon.get(&service.path("/six")).await).await["path"], "/six");
}

#[tokio::test]
async fn what_cannot_be_reached_is_told() {
    let daemon = Daemon::start();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (status, body) = error(daemon.get(&format!("/proxy/{gone}/x")).await).await;
    assert_eq!((status, &*body.code), (StatusCode::BAD_GATEWAY, codes::BACKEND_CONNECTION_FAILED));
    assert_eq!(body.message, format!("nothing listens on port {gone}"));
    for path in ["/proxy", "/proxy/", "/proxy/0/", "/proxy/65536/", "/proxy/http/x", "/proxy/080/"]
    {
        let (status, body) = error(daemon.get(path).await).await;
        assert_eq!((status, &*body.code), (StatusCode::BAD_REQUEST, codes::INVALID_REQUEST_BODY));
    }
}

#[tokio::test]
async fn a_service_that_does_not_speak_http_is_told_apart() {
    let daemon = Daemon::start();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let speaking = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    };
    let path = format!("/proxy/{port}/");
    let ((), response) = tokio::join!(speaking, daemon.get(&path));
    let (status, body) = error(response).await;
    assert_eq!((status, &*body.code), (StatusCode::BAD_GATEWAY, codes::BACKEND_RESPONSE_FAILED));
}
