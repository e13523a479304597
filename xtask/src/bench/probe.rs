//! The program that measures from inside a sandbox, and outside of one for comparison.
//!
//! It is this very program, uploaded: static, so that it runs anywhere. It prints how many
//! nanoseconds each thing took, one number a line.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use super::{asker::Asker, hosts, question};

/// A resolver of every sandbox.
const RESOLVER: &str = "198.18.0.2:53";
const PATIENCE: Duration = Duration::from_secs(10);
/// What is moved at once where much is.
const CHUNK: usize = 256 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `address:port`, or `name:port` of a name that is asked of the resolver of sandboxes.
    to: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Connect and wait for the byte that the host says first.
    Connect { count: usize },
    /// Ask for the name.
    Ask { count: usize },
    /// Take so many bytes.
    Receive { bytes: u64 },
    /// Give so many bytes, until the host has them all.
    Send { bytes: u64 },
    /// Send requests on one connection, as a client of HTTPS.
    Request { count: usize, name: String, authority: PathBuf, token: String },
    /// Answer requests there, until somebody ends this.
    Answer,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let to = find(&options.to)?;
    let times = match &options.what {
        What::Answer => {
            hosts::answer(TcpListener::bind(to)?)?;
            loop {
                std::thread::park();
            }
        }
        What::Connect { count } => repeat(*count, || connect(to))?,
        What::Ask { count } => {
            let name = options.to.split(':').next().unwrap_or_default();
            let resolver = Resolver::open()?;
            repeat(*count, || resolver.ask(name).map(drop))?
        }
        What::Receive { bytes } => repeat(1, || receive(to, *bytes))?,
        What::Send { bytes } => repeat(1, || send(to, *bytes))?,
        What::Request { count, name, authority, token } => {
            let mut browser = browser(to, name, authority, token)?;
            browser.ask()?;
            repeat(*count, || browser.ask())?
        }
    };
    for time in times {
        println!("{}", time.as_nanos());
    }
    Ok(())
}

fn repeat(count: usize, mut work: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed());
    }
    Ok(times)
}

fn find(to: &str) -> Result<SocketAddr> {
    if let Ok(address) = to.parse() {
        return Ok(address);
    }
    let (name, port) = to.split_once(':').context("a name has a port")?;
    Ok(SocketAddr::new(Resolver::open()?.ask(name)?, port.parse()?))
}

struct Resolver(UdpSocket);

impl Resolver {
    fn open() -> Result<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(RESOLVER)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(socket))
    }

    fn ask(&self, name: &str) -> Result<std::net::IpAddr> {
        self.0.send(&question::ask(name))?;
        let mut answer = [0; 512];
        let length = self.0.recv(&mut answer).context("the resolver is silent")?;
        question::address(answer.get(..length).unwrap_or_default())
            .with_context(|| format!("{name} has no address"))
    }
}

fn connect(to: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(to)?;
    Ok(stream.read_exact(&mut [0])?)
}

fn receive(to: SocketAddr, bytes: u64) -> Result<()> {
    let mut stream = TcpStream::connect(to)?;
    let mut buffer = vec![0; CHUNK];
    let mut came = 0;
    while came < bytes {
        let length = stream.read(&mut buffer)?;
        ensure!(length > 0, "only {came} bytes came");
        came += u64::try_from(length)?;
    }
    Ok(())
}

fn send(to: SocketAddr, bytes: u64) -> Result<()> {
    let mut stream = TcpStream::connect(to)?;
    let chunk = vec![0; CHUNK];
    let mut rest = bytes;
    while rest > 0 {
        let part = usize::try_from(rest).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(chunk.get(..part).unwrap_or_default())?;
        rest -= u64::try_from(part)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0]).context("the host has not had it all")
}

/// A client of HTTPS that keeps its connection.
fn browser(
    to: SocketAddr,
    name: &str,
    authority: &PathBuf,
    token: &str,
) -> Result<Asker<StreamOwned<ClientConnection, TcpStream>>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?).ok();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from(name)?.to_owned())?;
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    let request =
        format!("GET /v1/things HTTP/1.1\r\nhost: {name}\r\nauthorization: Bearer {token}\r\n\r\n");
    Ok(Asker::new(StreamOwned::new(tls, stream), request))
}
