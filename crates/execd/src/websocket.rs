//! WebSocket (RFC 6455), the server's side.
//!
//! What is here is what terminals need: no extensions, no subprotocols, messages of a bounded size.

mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod handshake;

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use frame::{Frame, Opcode};
pub(crate) use frame::{MESSAGE_LIMIT, Violation};
pub(crate) use handshake::Handshake;

/// How much room there is for each read.
const READ: usize = 4 << 10;
/// How much is written at once. Whoever does not take this much in [`WRITE_WITHIN`] takes nothing.
const WRITE: usize = 16 << 10;
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Why a connection is closed.
pub(crate) mod close {
    pub(crate) const NORMAL: u16 = 1000;
    pub(crate) const INTERNAL: u16 = 1011;
}

/// What a client sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Text(String),
    Binary(Bytes),
    /// To be answered with a pong of the same content.
    Ping(Bytes),
    Pong,
    /// The client closes; it gets its code back.
    Close(u16),
}

/// Why no message will follow.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The connection is gone.
    Broken,
    /// The client does not keep to the protocol, which the close code says.
    Violated(Violation),
}

/// Reads messages.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    stream: R,
    arrived: BytesMut,
    /// The message that the next continuation belongs to.
    partial: Option<(Opcode, BytesMut)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, arrived: BytesMut::new(), partial: None }
    }

    pub(crate) async fn message(&mut self) -> Result<Message, Ended> {
        loop {
            while let Some(frame) = frame::decode(&mut self.arrived).map_err(Ended::Violated)? {
                if let Some(message) = self.take(frame).map_err(Ended::Violated)? {
                    return Ok(message);
                }
            }
            self.arrived.reserve(READ);
            match self.stream.read_buf(&mut self.arrived).await {
                Ok(0) | Err(_) => return Err(Ended::Broken),
                Ok(_) => {}
            }
        }
    }

    /// Waits for the other side to be done, whatever it still says. A connection that is closed
    /// with unread bytes is reset, and the reset may overtake our last words.
    pub(crate) async fn drain(&mut self) {
        loop {
            match self.message().await {
                Ok(Message::Close(_)) | Err(Ended::Broken) => return,
                Ok(_) => {}
                // What follows is no protocol, and ends with the connection.
                Err(Ended::Violated(_)) => break,
            }
        }
        loop {
            self.arrived.clear();
            self.arrived.reserve(READ);
            if !matches!(self.stream.read_buf(&mut self.arrived).await, Ok(1..)) {
                return;
            }
        }
    }

    fn take(&mut self, frame: Frame) -> Result<Option<Message>, Violation> {
        let Frame { last, opcode, payload } = frame;
        let (opcode, whole) = match (opcode, self.partial.take()) {
            (Opcode::Continuation, Some((opcode, mut so_far))) => {
                if so_far.len() + payload.len() > MESSAGE_LIMIT {
                    return Err(Violation::TooLong);
                }
                so_far.unsplit(payload);
                (opcode, so_far)
            }
            (Opcode::Text | Opcode::Binary, Some(_)) | (Opcode::Continuation, None) => {
                return Err(Violation::Protocol);
            }
            // In the middle of another message is where control frames are allowed.
            (control, partial) => {
                self.partial = partial;
                (control, payload)
            }
        };
        if !last {
            self.partial = Some((opcode, whole));
            return Ok(None);
        }
        Ok(match opcode {
            Opcode::Continuation => None,
            Opcode::Text => {
                let text = String::from_utf8(whole.into()).map_err(|_| Violation::NotText)?;
                Some(Message::Text(text))
            }
            Opcode::Binary => Some(Message::Binary(whole.freeze())),
            Opcode::Ping => Some(Message::Ping(whole.freeze())),
            Opcode::Pong => Some(Message::Pong),
            Opcode::Close => Some(Message::Close(frame::close_code(&whole)?)),
        })
    }
}

/// Writes messages. Each either arrives in time or fails.
#[derive(Debug)]
pub(crate) struct Writer<W> {
    stream: W,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) fn new(stream: W) -> Self {
        Self { stream }
    }

    pub(crate) async fn text(&mut self, text: &str) -> io::Result<()> {
        self.send(Opcode::Text, &[text.as_bytes()]).await
    }

    /// Writes one message with the parts as its content.
    pub(crate) async fn binary(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.send(Opcode::Binary, parts).await
    }

    pub(crate) async fn ping(&mut self) -> io::Result<()> {
        self.send(Opcode::Ping, &[]).await
    }

    pub(crate) async fn pong(&mut self, content: &[u8]) -> io::Result<()> {
        self.send(Opcode::Pong, &[content]).await
    }

    /// Says that nothing follows, and why.
    pub(crate) async fn close(&mut self, code: u16, reason: &str) -> io::Result<()> {
        self.send(Opcode::Close, &[&code.to_be_bytes(), reason.as_bytes()]).await?;
        timeout(WRITE_WITHIN, self.stream.shutdown()).await?
    }

    async fn send(&mut self, opcode: Opcode, parts: &[&[u8]]) -> io::Result<()> {
        let frame = frame::encode(opcode, parts);
        for piece in frame.chunks(WRITE) {
            timeout(WRITE_WITHIN, self.stream.write_all(piece)).await??;
        }
        timeout(WRITE_WITHIN, self.stream.flush()).await?
    }
}

#[cfg(test)]
mod tests;
