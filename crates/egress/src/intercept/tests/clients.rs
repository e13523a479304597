//! Clients that ask for more than others, or as few do.

use futures_util::poll;

use super::{hosts::certified, *};

/// A setting of HTTP/2 that the server has for a client.
async fn setting(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), which: u16) -> u32 {
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(begin).await.unwrap();
    let begin = stream.read_u32().await.unwrap();
    assert_eq!(begin & 0xff, 4, "it begins with its settings");
    let mut rest = vec![0; 5 + (begin >> 8) as usize];
    stream.read_exact(&mut rest).await.unwrap();
    let is_it = |setting: &&[u8]| setting[..2] == which.to_be_bytes();
    let setting = rest[5..].chunks(6).find(is_it).expect("it is not set");
    u32::from_be_bytes(setting[2..].try_into().unwrap())
}

#[tokio::test]
async fn the_more_connections_there_are_the_fewer_requests_each_may_have_under_way() {
    const STREAMS: u16 = 3;
    let service = service(&[b"h2"], HOST).await;
    let client = Client::new(&service, true);
    let mut open = Vec::new();
    let mut most = Vec::new();
    for _ in 0..30 {
        let mut stream = client.connect(&[b"h2"], HOST).await.unwrap();
        most.push(setting(&mut stream, STREAMS).await);
        open.push(stream);
    }
    assert_eq!(most[0], 100);
    assert!(most.iter().sum::<u32>() < 1100, "{most:?}");
    drop(open);
    // They end once they are read from.
    while setting(&mut client.connect(&[b"h2"], HOST).await.unwrap(), STREAMS).await < 100 {}
}

#[tokio::test]
async fn a_client_sends_little_ahead_of_what_its_host_takes() {
    const WINDOW: u16 = 4;
    let service = service(&[b"h2"], HOST).await;
    let client = Client::new(&service, true);
    let mut stream = client.connect(&[b"h2"], HOST).await.unwrap();
    assert_eq!(setting(&mut stream, WINDOW).await, 64 << 10);
}

#[tokio::test]
async fn a_client_that_speaks_of_http_1_0_alone_is_served() {
    let service = service(&[b"http/1.1"], HOST).await;
    let client = Client::new(&service, true);
    let mut stream = client.connect(&[b"http/1.0"], HOST).await.unwrap();
    stream.write_all(b"GET /a HTTP/1.0\r\nHost: api.example.com\r\n\r\n").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.0 200") && said.ends_with("GET /a Bearer s3cret 0"), "{said}");
}

/// Refuses everything, and counts how often.
#[derive(Default)]
struct Refuse(AtomicUsize);

#[async_trait]
impl Rules for Refuse {
    async fn treat(&self, _: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Refusal::new(StatusCode::FORBIDDEN, "no"))
    }
}

#[tokio::test]
async fn whoever_asks_without_waiting_leaves_room_for_others() {
    let nobody = Service { address: ([127, 0, 0, 1], 1).into(), pem: certified(&[], HOST).1 };
    let Client { interceptor, authority, to, shares, .. } = Client::new(&nobody, true);
    let (mut inside, outside) = tokio::io::duplex(4 << 20);
    let host = Host { name: Name::parse(HOST).unwrap(), port: 80, scheme: Scheme::Http };
    let rules = Arc::new(Refuse::default());
    let serving = interceptor.serve(outside, host, &authority, to, rules.clone(), &shares);
    tokio::pin!(serving);
    let ask = b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    inside.write_all(&ask.repeat(5000)).await.unwrap();
    inside.shutdown().await.unwrap();
    assert!(poll!(serving.as_mut()).is_pending());
    let refused = rules.0.load(Ordering::Relaxed);
    assert_eq!(refused, 1, "more than one was answered in one turn");
    serving.await.unwrap();
    assert_eq!(rules.0.load(Ordering::Relaxed), 5000);
}
