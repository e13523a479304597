//! A server that does what a test wants it to, which may be anything.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

/// A request that somebody sent.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What the server does next.
pub(crate) enum Act {
    Send(Vec<u8>),
    /// These bytes without end.
    Repeat(Vec<u8>),
    /// One byte, again and again, with a pause in between.
    Drip(Duration),
    /// Nothing more, while the connection stays.
    Hang,
    /// The connection ends here.
    Close,
}

pub(crate) struct Stranger {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stranger {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1", answer).await
    }

    pub(crate) async fn start_at(
        host: &str,
        answer: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answer) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(answer));
        let tracker = TaskTracker::new();
        let (noted, tasks) = (Arc::clone(&seen), tracker.clone());
        tracker.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                tasks.spawn(async move { serve(stream, &noted, &*answer).await });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    noted: &Mutex<Vec<Seen>>,
    answer: &(dyn Fn(&Seen) -> Vec<Act> + Send + Sync),
) -> Option<()> {
    let mut waiting = Vec::new();
    loop {
        let seen = request(&mut stream, &mut waiting).await?;
        noted.lock().unwrap().push(seen.clone());
        for act in answer(&seen) {
            match act {
                Act::Send(bytes) => stream.write_all(&bytes).await.ok()?,
                Act::Repeat(bytes) => loop {
                    stream.write_all(&bytes).await.ok()?;
                },
                Act::Drip(pause) => loop {
                    stream.write_all(b"x").await.ok()?;
                    tokio::time::sleep(pause).await;
                },
                Act::Hang => std::future::pending().await,
                Act::Close => return None,
            }
        }
    }
}

async fn request(stream: &mut TcpStream, waiting: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        if let Some(at) = waiting.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(waiting).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(waiting.drain(..end).collect()).ok()?;
    let mut words = head.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut seen = Seen { method, path, head, body: Vec::new() };
    let length = seen.header("content-length").map_or(0, |it| it.parse().unwrap());
    while waiting.len() < length {
        if stream.read_buf(waiting).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = waiting.drain(..length).collect();
    Some(seen)
}

/// An answer with a body.
pub(crate) fn reply(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<Act> {
    let body = body.as_ref();
    let length = body.len().to_string();
    let mut all = head(status, &[headers, &[("content-length", &length)]].concat());
    all.extend_from_slice(body);
    vec![Act::Send(all)]
}

pub(crate) fn head(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("HTTP/1.1 {status}\r\n{}\r\n", headers.collect::<String>()).into_bytes()
}
