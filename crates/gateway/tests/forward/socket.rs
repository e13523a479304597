use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use osb_core::testkit::Line;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::UnixStream,
};

/// The service's end of a stream, which breaks with its sandbox wherever it is handed on to.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: UnixStream,
    _line: Line,
}

impl Socket {
    pub(crate) fn new(line: Line) -> Self {
        let stream = line.to_stream().expect("a stream");
        stream.set_nonblocking(true).expect("a stream that does not block");
        let stream = UnixStream::from_std(stream).expect("a stream for the event loop");
        Self { stream, _line: line }
    }

    /// Reads to the end of a head without a body; whether there was one.
    pub(crate) async fn read_head(&mut self) -> bool {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes as much as the other side takes.
    pub(crate) async fn say(&mut self, text: &str) {
        // Tests break connections on purpose.
        self.write_all(text.as_bytes()).await.ok();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
