//! Hosts that do what they should not.

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    runtime::Handle,
    task::JoinHandle,
};

use super::*;

/// More than any host may say for nothing, and than waits between two ends.
const MUCH: usize = 64 << 20;

/// What a host shows of itself, and who vouches for it.
pub(super) fn certified(protocols: &[&[u8]], name: &str) -> (TlsAcceptor, String) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|id| id.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), issuer.pem())
}

/// Reads until a head has ended.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Says the same until nobody listens, or until it was said often enough; how much that was.
async fn repeat(stream: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> usize {
    let pieces = piece.repeat(50_000 / piece.len());
    let mut said = 0;
    while said < MUCH && stream.write_all(&pieces).await.is_ok() {
        said += pieces.len();
    }
    said
}

/// A connection that is passed on without TLS, by whoever runs what this returns, and both its ends.
async fn plain() -> (impl Future<Output = Result<(), InterceptError>>, DuplexStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = Service { address: listener.local_addr().unwrap(), pem: certified(&[], HOST).1 };
    let (inside, outside) = tokio::io::duplex(16 << 10);
    let Client { interceptor, authority, to, rules, shares, .. } = Client::new(&service, true);
    let host = Host { name: Name::parse(HOST).unwrap(), port: 80, scheme: Scheme::Http };
    let serving =
        async move { interceptor.serve(outside, host, &authority, to, rules, &shares).await };
    (serving, inside, listener)
}

#[tokio::test]
async fn a_host_that_hints_without_end_is_no_longer_listened_to() {
    let (serving, mut inside, listener) = plain().await;
    let host = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        repeat(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n").await
    };
    let client = async {
        inside.write_all(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await.unwrap();
        let said = head(&mut inside).await;
        assert!(said.starts_with("HTTP/1.1 502"), "{said}");
        drop(inside);
    };
    let (_, said, ()) = tokio::join!(serving, host, client);
    assert!(said < MUCH, "all of it was taken");
}

#[tokio::test]
async fn hints_are_no_harm_to_long_answers() {
    let (serving, mut inside, listener) = plain().await;
    let length = 8 << 20;
    let host = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            head(&mut stream).await;
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(10);
            let answer = format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.write_all(&vec![b'x'; length]).await.unwrap();
        }
    };
    let client = async {
        for _ in 0..3 {
            inside.write_all(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await.unwrap();
            let said = head(&mut inside).await;
            assert!(said.starts_with("HTTP/1.1 200"), "{said}");
            inside.read_exact(&mut vec![0; length]).await.unwrap();
        }
        drop(inside);
    };
    let (served, (), ()) = tokio::join!(serving, host, client);
    served.unwrap();
}

#[tokio::test]
async fn the_connection_to_a_host_and_its_websocket_take_their_turn_with_the_client() {
    let (serving, mut inside, listener) = plain().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let host = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        assert_eq!(tasks(), 0, "the connection to the host has a turn of its own");
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(agreed.as_bytes()).await.unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(tasks(), 0, "the WebSocket has a turn of its own");
        stream.write_all(&said).await.unwrap();
        stream.write_all(&vec![7; 1 << 20]).await.unwrap();
    };
    let client = async {
        let ask = "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        inside.write_all(ask.as_bytes()).await.unwrap();
        assert!(head(&mut inside).await.starts_with("HTTP/1.1 101"));
        inside.write_all(b"hello").await.unwrap();
        let mut said = [0; 5];
        inside.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hello");
        assert_eq!(inside.read_to_end(&mut Vec::new()).await.unwrap(), 1 << 20);
        drop(inside);
    };
    let (served, (), ()) = tokio::join!(serving, host, client);
    served.unwrap();
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A host that speaks HTTP/2, and repeats a frame as soon as it was asked for something.
async fn repeating(piece: Vec<u8>) -> (Service, JoinHandle<usize>) {
    let (acceptor, pem) = certified(&[b"h2"], HOST);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let host = TaskTracker::new().spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = tokio::io::split(acceptor.accept(stream).await.unwrap());
        let asked = tokio::sync::Notify::new();
        let listening = async {
            read.read_exact(&mut [0; 24]).await?;
            loop {
                let begin = read.read_u32().await?;
                let mut rest = vec![0; 5 + (begin >> 8) as usize];
                read.read_exact(&mut rest).await?;
                if begin & 0xff == 1 {
                    asked.notify_one();
                }
            }
        };
        let saying = async {
            write.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            asked.notified().await;
            repeat(&mut write, &piece).await
        };
        let (said, _): (_, io::Result<()>) = tokio::join!(saying, listening);
        said
    });
    (Service { address, pem }, host)
}

#[tokio::test]
async fn a_host_of_http_2_that_means_nothing_is_no_longer_listened_to() {
    for (what, piece) in [
        ("hints", frame(1, 4, 1, b"\x08\x03100")),
        ("farewells", frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])),
        ("answers to nothing", frame(6, 1, 0, &[0; 8])),
        ("calls", frame(6, 0, 0, &[0; 8])),
        ("windows", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("settings", frame(4, 0, 0, &[])),
        ("priorities", frame(2, 0, 1, &[0; 5])),
        ("what nobody knows", frame(0xee, 0, 0, &[0; 8])),
    ] {
        let (service, host) = repeating(piece).await;
        let client = Client::new(&service, true);
        let stream = TokioIo::new(client.connect(&[b"h2"], HOST).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        TaskTracker::new().spawn(connection);
        let ask = request(Method::POST, HOST, &format!("https://{HOST}/"), "");
        let response = sender.send_request(ask).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{what}");
        assert!(host.await.unwrap() < MUCH, "all {what} were taken");
    }
}

#[tokio::test]
async fn what_a_host_says_when_it_goes_away_is_not_repeated() {
    // It is too much for it, and it quotes what it was sent.
    let why = [&[0, 0, 0, 0, 0, 0, 0, 11], b"bad header: s3cr\"t".as_slice()].concat();
    let (service, host) = repeating(frame(7, 0, 0, &why)).await;
    let mut client = Client::new(&service, true);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = Arc::clone(&told);
    let hears = Arc::new(move |asked: crate::Asked, _| hear.lock().unwrap().push(asked));
    let to = Host { name: Name::parse(HOST).unwrap(), port: 443, scheme: Scheme::Https };
    client.rules = Arc::new(Credentials::new(SandboxId::random(), vault(), to, hears));
    let stream = TokioIo::new(client.connect(&[b"h2"], HOST).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    TaskTracker::new().spawn(connection);
    let ask = request(Method::POST, HOST, &format!("https://{HOST}/"), "");
    let (status, said) = text(sender.send_request(ask).await.unwrap()).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(said.contains("did not answer") && said.contains("excessive load"), "{said}");
    assert!(!said.contains("header") && !said.contains("s3cr"), "{said}");
    let used = told.lock().unwrap().pop().unwrap().credentials.unwrap();
    assert_eq!(used.outcome, CredentialOutcome::Unanswered);
    drop((sender, host));
}

#[tokio::test]
async fn long_bodies_of_http_2_are_passed_on_both_ways() {
    let service = service(&[b"h2"], HOST).await;
    let client = Client::new(&service, true);
    let stream = TokioIo::new(client.connect(&[b"h2"], HOST).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    TaskTracker::new().spawn(connection);
    let pieces =
        (0..8_000).map(|_| Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b'x'; 1000]))));
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    let ask = Request::post(format!("https://{HOST}/")).header("x-key", "k").body(body).unwrap();
    let response = sender.send_request(ask).await.unwrap();
    assert!(text(response).await.1.ends_with(&"x".repeat(8_000_000)));
}
