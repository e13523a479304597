use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddrV4},
};

use tokio::{
    io::Interest,
    net::{TcpSocket, TcpStream},
};

use super::frames::{self, Arrived, Frames, Socket};
use crate::output::Turn;

/// The most that is read at once.
const READ: usize = 64 << 10;

/// What a message costs beside its bytes, as if it had so many more.
const MESSAGE: usize = 1 << 10;

/// Where connections come from.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// One connection with a socket of a kernel. It reads only when somebody wants to hear, so that
/// whatever else comes waits on the other side.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    frames: Frames,
    heard: VecDeque<Arrived>,
    /// What it has not taken yet of what it was told.
    outgoing: Vec<u8>,
    /// It may never stop, in the middle of a cell or before it has agreed to anything.
    turn: Turn,
}

impl Peer {
    /// Connects with a port of this machine, and agrees with whoever listens there.
    pub(super) async fn connect(port: u16, socket: Socket) -> io::Result<Self> {
        let socket_of_ours = TcpSocket::new_v4()?;
        // From another address than the kernel's: a socket that gets the port as its own which it
        // connects to would find itself there, and the kernel that port taken.
        socket_of_ours.bind(SocketAddrV4::new(HERE, 0).into())?;
        let there = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let stream = socket_of_ours.connect(there.into()).await?;
        stream.set_nodelay(true)?;
        let (frames, heard) = (Frames::default(), VecDeque::new());
        let mut peer =
            Self { stream, frames, heard, outgoing: frames::greeting(), turn: Turn::default() };
        for (expected, answer) in
            [(Arrived::Greeting, socket.ready()), (Arrived::Ready, socket.opening())]
        {
            if peer.hear().await? != expected {
                return Err(io::ErrorKind::InvalidData.into());
            }
            peer.outgoing.extend(answer);
            peer.write()?;
        }
        Ok(peer)
    }

    /// Sends a message, now or while somebody waits to hear.
    pub(super) fn say(&mut self, parts: &[impl AsRef<[u8]>]) -> io::Result<()> {
        frames::message(parts, &mut self.outgoing);
        self.write()
    }

    /// The next that arrives. Nothing is lost if nobody waits any more.
    pub(super) async fn hear(&mut self) -> io::Result<Arrived> {
        loop {
            self.turn.rest().await;
            if let Some(arrived) = self.heard.pop_front() {
                self.turn.spend(MESSAGE);
                return Ok(arrived);
            }
            let interest = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            self.write()?;
            self.stream.ready(interest).await?;
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                let heard = &mut self.heard;
                let bytes = buffer.get(..length).unwrap_or_default();
                self.turn.spend(length);
                self.frames.feed(bytes, |arrived| heard.push_back(arrived));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(length) => drop(self.outgoing.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
