use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{HeaderValue, Method, Version, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use osb_api::SandboxId;
use osb_core::SystemClock;
use rcgen::{CertifiedIssuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::TaskTracker;

use self::hosts::certified;
use super::*;
use crate::{
    By, CredentialOutcome, Verdict,
    vault::{Scope, Vault},
};

mod clients;
mod hosts;

const HOST: &str = "api.example.com";

/// Adds a header to what is sent, and one to what comes back.
struct Add;

#[async_trait]
impl Rules for Add {
    async fn treat(&self, mut request: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        if request.uri().path() == "/refused" {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "not this path"));
        }
        request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer s3cret"));
        let finish: Finish = Box::new(|mut response: Response<Body>| {
            response.headers_mut().insert("x-seen", HeaderValue::from_static("yes"));
            response
        });
        Ok((request, finish))
    }
}

struct To(Mutex<SocketAddr>, AtomicUsize);

#[async_trait]
impl Connect for To {
    async fn connect(&self) -> io::Result<Reached> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let address = *self.0.lock().unwrap();
        Ok(Reached { stream: TcpStream::connect(address).await?, kept: Default::default() })
    }
}

/// A host that tells what it got, in a protocol of its choice.
struct Service {
    address: SocketAddr,
    /// Who vouches for it.
    pem: String,
}

async fn service(protocols: &[&[u8]], name: &str) -> Service {
    let (acceptor, pem) = certified(protocols, name);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    TaskTracker::new().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            TaskTracker::new().spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = TokioIo::new(stream);
                if is_http2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(stream, service_fn(tell)).await.ok();
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    server.serve_connection(stream, service_fn(tell)).with_upgrades().await.ok();
                }
            });
        }
    });
    Service { address, pem }
}

async fn tell(mut request: Request<Incoming>) -> Result<Response<Body>, std::convert::Infallible> {
    let text = |text: String| -> Body {
        Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
    };
    if request.headers().contains_key(header::UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        TaskTracker::new().spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(&said).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut response = Response::new(text(String::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return Ok(response);
    }
    let ends = request.uri().path() == "/last";
    let (head, body) = request.into_parts();
    let key = head.headers.get("x-key").map(|key| key.to_str().unwrap().to_owned());
    if let Some(key) = key {
        let body = body.collect().await.unwrap().to_bytes();
        let all = format!("{key} {} {}", head.uri, String::from_utf8_lossy(&body));
        // Nobody finds a secret that is written backwards.
        let all = match head.uri.path() {
            "/backwards" => all.chars().rev().collect(),
            _ => all,
        };
        let mut response = Response::new(text(all));
        response.headers_mut().insert("x-key", HeaderValue::try_from(key).unwrap());
        return Ok(response);
    }
    let authority = head.headers.get("authorization").cloned();
    let length = body.collect().await.unwrap().to_bytes().len();
    let authority = authority.map_or_else(String::new, |it| it.to_str().unwrap().to_owned());
    let mut response =
        Response::new(text(format!("{} {} {authority} {length}", head.method, head.uri.path())));
    if ends {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// A vault that binds everything that is sent to the host.
fn vault() -> Arc<Vault> {
    let vault = Vault::new(Arc::default());
    let request = serde_json::from_value(serde_json::json!({
        "credentials": [{"name": "c", "source": {"value": "s3cr\"t"}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": [HOST]},
            "auth": {"type": "apiKey", "name": "X-Key", "credential": "c", "substitutions": [
                {"credential": "c", "placeholder": "__KEY__", "in": ["body", "query"]},
            ]},
        }],
    }));
    vault.create(request.unwrap(), Scope::Hosts, |_| true).unwrap();
    Arc::new(vault)
}

/// A client inside a sandbox whose connections are opened on their way to `service`.
struct Client {
    config: ClientConfig,
    interceptor: Interceptor,
    authority: Arc<Authority>,
    to: Arc<To>,
    rules: Arc<dyn Rules>,
    shares: Arc<Shares>,
}

impl Client {
    fn new(service: &Service, trusted: bool) -> Self {
        let extra = ExtraCa::parse(service.pem.as_bytes()).unwrap();
        let extra = trusted.then_some(extra);
        let interceptor = Interceptor::new(extra, Arc::new(SystemClock));
        let authority = Arc::new(Authority::new(&Root::new([1; 32]), SandboxId::random()).unwrap());
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::clone(&interceptor.provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let to = Arc::new(To(Mutex::new(service.address), AtomicUsize::new(0)));
        Self { config, interceptor, authority, to, rules: Arc::new(Add), shares: Arc::default() }
    }

    async fn connect(
        &self,
        protocols: &[&[u8]],
        name: &str,
    ) -> io::Result<tokio_rustls::client::TlsStream<tokio::io::DuplexStream>> {
        let (client, server) = tokio::io::duplex(16 << 10);
        let (interceptor, authority) = (self.interceptor.clone(), Arc::clone(&self.authority));
        let (to, rules) = (Arc::clone(&self.to), Arc::clone(&self.rules));
        let shares = Arc::clone(&self.shares);
        let host = Host { name: Name::parse(HOST).unwrap(), port: 443, scheme: Scheme::Https };
        TaskTracker::new().spawn(async move {
            interceptor.serve(server, host, &authority, to, rules, &shares).await.ok();
        });
        let mut config = self.config.clone();
        config.alpn_protocols = protocols.iter().map(|id| id.to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, client).await
    }

    async fn http1(&self) -> hyper::client::conn::http1::SendRequest<Body> {
        let stream = TokioIo::new(self.connect(&[b"http/1.1"], HOST).await.unwrap());
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        TaskTracker::new().spawn(connection.with_upgrades());
        sender
    }
}

fn request(method: Method, host: &str, path: &str, body: &'static str) -> Request<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    Request::builder().method(method).uri(path).header("host", host).body(body).unwrap()
}

async fn text(response: Response<Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn requests_are_changed_on_their_way_and_so_are_answers() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    let mut sender = client.http1().await;
    let response = sender.send_request(request(Method::POST, HOST, "/a", "12345")).await.unwrap();
    assert_eq!(response.headers()["x-seen"], "yes");
    assert_eq!(text(response).await, (StatusCode::OK, "POST /a Bearer s3cret 5".to_owned()));
    sender.ready().await.unwrap();
    let response = sender.send_request(request(Method::GET, HOST, "/refused", "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(client.to.1.load(Ordering::Relaxed), 1, "one connection is enough");
}

#[tokio::test]
async fn both_sides_speak_http_2_if_both_can() {
    let service = service(&[b"h2", b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    let stream = client.connect(&[b"h2", b"http/1.1"], HOST).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    TaskTracker::new().spawn(connection);
    // A body whose end nobody knows when it begins.
    let frames = futures_util::stream::iter(
        (0..1000).map(|_| Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[7; 1000])))),
    );
    let body = StreamBody::new(frames).boxed_unsync();
    let uri = format!("https://{HOST}/b");
    let large = Request::builder().method("PUT").uri(&uri).body(body).unwrap();
    let response = sender.send_request(large).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(text(response).await.1, "PUT /b Bearer s3cret 1000000");
    let other = request(Method::GET, "other.example.com", &uri, "");
    let response = sender.send_request(other).await.unwrap();
    assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
    let head = request(Method::HEAD, HOST, &format!("https://{HOST}/refused"), "");
    let response = sender.send_request(head).await.unwrap();
    assert_eq!(text(response).await, (StatusCode::FORBIDDEN, String::new()));
}

#[tokio::test]
async fn a_client_of_http_2_that_asks_for_nothing_is_not_kept_for_ever() {
    let service = service(&[b"h2"], HOST).await;
    let client = Client::new(&service, true);
    let stream = TokioIo::new(client.connect(&[b"h2"], HOST).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = TaskTracker::new().spawn(connection);
    let ask = request(Method::GET, HOST, &format!("https://{HOST}/"), "");
    assert_eq!(sender.send_request(ask).await.unwrap().status(), StatusCode::OK);
    tokio::time::pause();
    let ended = tokio::time::timeout(Duration::from_hours(1), connection).await;
    assert!(ended.expect("it was kept").is_ok());
    assert!(sender.is_closed());
}

/// Never lets a request pass, and knows where it waits.
#[derive(Default)]
struct Hold {
    began: tokio::sync::Notify,
    held: Arc<()>,
    task: std::sync::OnceLock<Option<tokio::task::Id>>,
}

#[async_trait]
impl Rules for Hold {
    async fn treat(&self, _: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        let _held = Arc::clone(&self.held);
        self.task.set(tokio::task::try_id()).unwrap();
        self.began.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn requests_of_http_2_are_part_of_their_connection_and_end_with_it() {
    let service = service(&[b"h2"], HOST).await;
    let client = Client::new(&service, true);
    let rules = Arc::new(Hold::default());
    let (inside, outside) = tokio::io::duplex(16 << 10);
    let host = Host { name: Name::parse(HOST).unwrap(), port: 443, scheme: Scheme::Https };
    let (to, held) = (Arc::clone(&client.to), Arc::clone(&rules));
    let shares = Shares::default();
    let serving = client.interceptor.serve(outside, host, &client.authority, to, held, &shares);
    let mut config = client.config.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let asking = async {
        let name = ServerName::try_from(HOST).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, inside).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        TaskTracker::new().spawn(connection);
        let ask = request(Method::GET, HOST, &format!("https://{HOST}/"), "");
        TaskTracker::new().spawn(async move { sender.send_request(ask).await });
        rules.began.notified().await;
    };
    tokio::select! {
        () = asking => {}
        _ = serving => unreachable!("somebody still asks"),
    }
    assert_eq!(Arc::strong_count(&rules.held), 1, "what was begun has gone on");
    assert_eq!(*rules.task.get().unwrap(), tokio::task::try_id());
}

#[tokio::test]
async fn a_client_of_http_2_alone_is_told_if_the_host_has_none() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    assert!(
        client
            .connect(&[b"h2"], HOST)
            .await
            .is_ok_and(|stream| { stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice()) })
    );
    let stream = client.connect(&[b"h2", b"http/1.1"], HOST).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
}

#[tokio::test]
async fn a_host_that_nobody_trusts_gets_nothing() {
    let stranger = service(&[b"http/1.1"], HOST).await;
    let impostor = service(&[b"http/1.1"], "other.example.com").await;
    let clients = [(Client::new(&stranger, false), true), (Client::new(&impostor, true), false)];
    for (client, helps) in clients {
        let mut sender = client.http1().await;
        let response = sender.send_request(request(Method::GET, HOST, "/", "")).await.unwrap();
        let (status, text) = text(response).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        assert!(text.contains("no trusted connection to api.example.com:443"), "{text}");
        assert!(text.contains("certificate"), "{text}");
        assert_eq!(text.contains("extra-ca"), helps, "{text}");
    }
}

#[tokio::test]
async fn what_is_for_another_host_is_refused() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    assert!(client.connect(&[b"http/1.1"], "other.example.com").await.is_err());
    let mut sender = client.http1().await;
    let others = ["other.example.com", "x@api.example.com"].map(str::to_owned);
    // Some choose by the text whom they answer for.
    let ends = [":8443", ":99999", ":0443", ":", ".", ".evil"].map(|end| format!("{HOST}{end}"));
    for host in others.iter().chain(&ends) {
        sender.ready().await.unwrap();
        let response = sender.send_request(request(Method::GET, host, "/", "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    sender.ready().await.unwrap();
    let response = sender.send_request(request(Method::TRACE, HOST, "/", "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    sender.ready().await.unwrap();
    let response =
        sender.send_request(request(Method::GET, "API.example.com:443", "/", "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_host_that_was_down_or_hangs_up_is_called_again() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    *client.to.0.lock().unwrap() = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut sender = client.http1().await;
    let response = sender.send_request(request(Method::GET, HOST, "/", "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    *client.to.0.lock().unwrap() = service.address;
    for path in ["/last", "/after"] {
        sender.ready().await.unwrap();
        let response = sender.send_request(request(Method::GET, HOST, path, "")).await.unwrap();
        assert_eq!(text(response).await.1, format!("GET {path} Bearer s3cret 0"));
    }
    assert_eq!(client.to.1.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_connection_can_become_a_websocket_and_nothing_else() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    let mut sender = client.http1().await;
    let ask = |protocol| {
        let mut ask = request(Method::GET, HOST, "/ws", "");
        let listed = HeaderValue::from_static("keep-alive, Upgrade");
        ask.headers_mut().insert(header::CONNECTION, listed);
        ask.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(protocol));
        ask
    };
    for protocol in ["h2c", "echo", "h2c, websocket"] {
        sender.ready().await.unwrap();
        let response = sender.send_request(ask(protocol)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{protocol}");
    }
    sender.ready().await.unwrap();
    let response = sender.send_request(ask("WebSocket")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()[header::UPGRADE], "websocket");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"hello");
}

#[tokio::test]
async fn credentials_are_put_in_on_the_way_out_and_taken_out_on_the_way_back() {
    let service = service(&[b"http/1.1"], HOST).await;
    let mut client = Client::new(&service, true);
    let host = Host { name: Name::parse(HOST).unwrap(), port: 443, scheme: Scheme::Https };
    let told = Arc::<Mutex<Vec<_>>>::default();
    let heard = told.clone();
    let tell = Arc::new(move |asked, ruling| told.lock().unwrap().push((asked, ruling)));
    client.rules =
        Arc::new(Credentials::new(SandboxId::random(), vault(), host.clone(), tell.clone()));
    let mut sender = client.http1().await;
    let ask = |path: &str| {
        let mut ask = request(Method::POST, HOST, path, r#"{"key": "__KEY__"}"#);
        ask.headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        ask
    };
    let response = sender.send_request(ask("/backwards?q=__KEY__")).await.unwrap();
    assert_eq!(response.headers()["x-key"], "[REDACTED]");
    let (_, text) = self::text(response).await;
    let seen: String = text.chars().rev().collect();
    assert_eq!(seen, r#"s3cr"t /backwards?q=s3cr%22t {"key": "s3cr\"t"}"#);
    sender.ready().await.unwrap();
    let response = sender.send_request(ask("/echo?q=__KEY__")).await.unwrap();
    let (_, text) = self::text(response).await;
    assert_eq!(text, r#"[REDACTED] /echo?q=[REDACTED] {"key": "[REDACTED]"}"#);
    // A method that the binding is not for.
    sender.ready().await.unwrap();
    let response = sender.send_request(request(Method::OPTIONS, HOST, "/a", "")).await.unwrap();
    assert_eq!(self::text(response).await.1, "OPTIONS /a  0");
    // A path that may be another one, and a host that nobody trusts.
    sender.ready().await.unwrap();
    let response = sender.send_request(ask("/a/../b")).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let mut client = Client::new(&service, false);
    client.rules = Arc::new(Credentials::new(SandboxId::random(), vault(), host, tell));
    let response = client.http1().await.send_request(ask("/x")).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);

    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let heard: Vec<_> = heard
        .iter()
        .map(|(asked, ruling)| {
            let used = asked.credentials.as_ref().unwrap();
            assert_eq!((&*used.names, &ruling.by), (&["c".into()][..], &By::Binding("b".into())));
            (&*asked.path, ruling.verdict, used.outcome)
        })
        .collect();
    let unsafe_path = "the host may take this path for another one than it is bound to";
    let unverified = "the host was not reached or not verified";
    assert_eq!(
        heard,
        [
            ("/backwards", Verdict::Allow, CredentialOutcome::Answered(200)),
            ("/echo", Verdict::Allow, CredentialOutcome::Answered(200)),
            ("/a/../b", Verdict::Deny, CredentialOutcome::Withheld(unsafe_path)),
            ("/x", Verdict::Deny, CredentialOutcome::Withheld(unverified)),
        ]
    );
}
