//! Outlets that are ordinary sockets on the loopback. Where something was to go stands before it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
};

use async_trait::async_trait;
use osb_api::SandboxId;

use super::{Call, FakeRuntime, Sandbox};
use crate::{Network, ObservedState, Outlets, RuntimeError, testkit::conformance::Transport};

/// What a sandbox sent: the answer comes here.
#[derive(Debug)]
pub enum Sent {
    Stream(TcpStream),
    Datagram(UdpSocket),
}

/// The outlets of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Those that nobody has asked for yet.
    kept: Option<Outlets>,
    /// Where they are, the streams and the datagrams.
    at: Option<(SocketAddr, SocketAddr)>,
}

impl FakeRuntime {
    /// Sends a line out of a sandbox, as one of its programs would, unless that is refused.
    pub fn send_out(
        &self,
        id: SandboxId,
        how: Transport,
        to: SocketAddr,
        line: &str,
    ) -> io::Result<Sent> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if to.ip().is_loopback() || to.ip().is_unspecified() {
            return Err(refused());
        }
        let (streams, datagrams) = {
            let mut state = self.state();
            let sandbox = state.sandboxes.get_mut(&id).ok_or_else(refused)?;
            if sandbox.ends.at.is_none() {
                sandbox.ends.kept = Some(sandbox.open()?);
            }
            sandbox.ends.at.ok_or_else(refused)?
        };
        let text = format!("{to} {line}\n");
        match how {
            Transport::Stream => {
                let mut stream = TcpStream::connect(streams)?;
                stream.write_all(text.as_bytes())?;
                stream.set_nonblocking(true)?;
                Ok(Sent::Stream(stream))
            }
            Transport::Datagram => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.send_to(text.as_bytes(), datagrams)?;
                socket.set_nonblocking(true)?;
                Ok(Sent::Datagram(socket))
            }
        }
    }

    /// Takes a line that has come to the outlets of a sandbox, if there is one, and answers it.
    /// Tells where it was to go, and what it says.
    pub fn take_in(
        outlets: &Outlets,
        how: Transport,
        answer: &str,
    ) -> Option<(SocketAddr, String)> {
        let mut text = String::new();
        match how {
            Transport::Stream => {
                let (mut stream, _) = outlets.streams.accept().ok()?;
                stream.set_nonblocking(false).ok()?;
                BufReader::new(&stream).read_line(&mut text).ok()?;
                stream.write_all(answer.as_bytes()).ok()?;
            }
            Transport::Datagram => {
                let mut buffer = [0; 1024];
                let (count, from) = outlets.datagrams.recv_from(&mut buffer).ok()?;
                buffer.get(..count)?.read_to_string(&mut text).ok()?;
                outlets.datagrams.send_to(answer.as_bytes(), from).ok()?;
            }
        }
        let (to, line) = text.trim_end().split_once(' ')?;
        Some((to.parse().ok()?, line.to_owned()))
    }
}

impl Sent {
    /// What came back, once something did.
    pub fn answer(&mut self) -> Option<String> {
        let mut buffer = [0; 1024];
        let count = match self {
            Self::Stream(stream) => stream.read(&mut buffer),
            Self::Datagram(socket) => socket.recv(&mut buffer),
        };
        let text = buffer.get(..count.ok()?)?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }
}

impl Sandbox {
    fn open(&mut self) -> io::Result<Outlets> {
        let streams = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        streams.set_nonblocking(true)?;
        datagrams.set_nonblocking(true)?;
        self.ends.at = Some((streams.local_addr()?, datagrams.local_addr()?));
        let answers = (datagrams.try_clone()?.into(), datagrams.try_clone()?.into());
        Ok(Outlets { streams, datagrams, answers })
    }
}

#[async_trait]
impl Network for FakeRuntime {
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError> {
        self.begin(Call::Outlets)?;
        let mut state = self.state();
        let sandbox = state.sandboxes.get_mut(&id).ok_or(RuntimeError::NotFound(id))?;
        if !matches!(sandbox.state, ObservedState::Running | ObservedState::Paused) {
            return Err(RuntimeError::NotFound(id));
        }
        let failed = |error| RuntimeError::failed("cannot open outlets", error);
        match sandbox.ends.kept.take() {
            Some(outlets) => Ok(outlets),
            None => sandbox.open().map_err(failed),
        }
    }
}
