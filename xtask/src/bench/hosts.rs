//! The world that a measured sandbox reaches: hosts on the loopback of this machine.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::question;

/// Where the hosts are; not where programs of the machine usually listen.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 83, 0, 1);
/// What the resolver calls them.
pub(crate) const NAME: &str = "host.bench.test";
/// What the host of HTTPS wants to hear.
pub(crate) const TOKEN: &str = "a-secret-of-the-benchmark";
const CHUNK: usize = 256 * 1024;
/// What it answers.
const BODY: &str = "{\"things\":[1,2,3]}";

/// They serve until this program ends.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) resolver: SocketAddr,
    /// Says one byte to everybody, and hangs up.
    pub(crate) greeter: SocketAddr,
    /// Sends without end.
    pub(crate) source: SocketAddr,
    /// Takes everything, and says when it has it.
    pub(crate) sink: SocketAddr,
    /// Answers requests; at the port that HTTPS has, if that is free and may be taken.
    pub(crate) tls: Option<SocketAddr>,
    /// Who vouches for the last.
    pub(crate) authority: PathBuf,
}

impl Hosts {
    /// Starts them; the certificate is written below `place`.
    pub(crate) fn start(place: &Path) -> Result<Self> {
        let resolver = UdpSocket::bind((ADDRESS, 0))?;
        let at = resolver.local_addr()?;
        thread::spawn(move || resolve(&resolver));
        let authority = place.join("authority.pem");
        let config = certificate(&authority)?;
        let secure = TcpListener::bind((ADDRESS, 443)).ok();
        let tls = secure.as_ref().and_then(|it| it.local_addr().ok());
        if let Some(listener) = secure {
            serve(listener, move |stream| secured(stream, &config))?;
        }
        let listen = || TcpListener::bind((ADDRESS, 0));
        Ok(Self {
            resolver: at,
            greeter: serve(listen()?, |mut stream| stream.write_all(b"!"))?,
            source: serve(listen()?, |mut stream| {
                let chunk = vec![0; CHUNK];
                loop {
                    stream.write_all(&chunk)?;
                }
            })?,
            sink: serve(listen()?, |mut stream| {
                let mut buffer = vec![0; CHUNK];
                while stream.read(&mut buffer)? > 0 {}
                stream.write_all(b"!")
            })?,
            tls,
            authority,
        })
    }
}

fn resolve(socket: &UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let question = buffer.get(..length).unwrap_or_default();
        if let Some(answer) = question::answer(question, ADDRESS) {
            // Who does not hear it asks again.
            socket.send_to(&answer, from).ok();
        }
    }
}

/// Serves every connection in a thread of its own.
fn serve(
    listener: TcpListener,
    work: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> Result<SocketAddr> {
    let at = listener.local_addr()?;
    let work = Arc::new(work);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let work = Arc::clone(&work);
            // Clients go when they have what they want.
            thread::spawn(move || work(stream).ok());
        }
    });
    Ok(at)
}

/// Makes a certificate that vouches for itself.
fn certificate(authority: &Path) -> Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])
        .context("cannot make a certificate")?;
    osb_sys::fs::write(authority, made.cert.pem())?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::from(key))?;
    Ok(Arc::new(config))
}

/// Answers requests of HTTP over TLS that bring the token.
fn secured(stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    converse(StreamOwned::new(connection, stream), |asked| asked.contains(TOKEN))
}

/// Answers all requests of HTTP at this address; returns it.
pub(crate) fn answer(listener: TcpListener) -> Result<SocketAddr> {
    serve(listener, |stream| {
        stream.set_nodelay(true)?;
        converse(stream, |_| true)
    })
}

/// Answers requests on one connection, if they are as they should be.
fn converse(mut stream: impl Read + Write, is_right: impl Fn(&str) -> bool) -> io::Result<()> {
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        asked.extend_from_slice(buffer.get(..length).unwrap_or_default());
        let text = String::from_utf8_lossy(&asked);
        if !text.contains("\r\n\r\n") {
            continue;
        }
        let status = if is_right(&text) { "200 OK" } else { "401 Unauthorized" };
        let length = BODY.len();
        asked.clear();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{BODY}");
        stream.write_all(answer.as_bytes())?;
    }
}
