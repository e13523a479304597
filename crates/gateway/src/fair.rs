use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much may come before others have their turn.
const TURN: usize = 64 * 1024;

/// A stream from which nobody reads for long without a pause. A peer that sends without end what
/// means nothing, such as the zeros before a length, would otherwise keep a thread for itself: the
/// event loop counts how often a task reads, and not how much.
#[derive(Debug)]
pub struct Fair<S> {
    stream: S,
    /// What has come since the last pause.
    read: usize,
}

impl<S> Fair<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, read: 0 }
    }
}

impl<S: Connection> Connection for Fair<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Fair<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, read } = self.get_mut();
        if *read >= TURN {
            *read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(stream).poll_read(cx, buf);
        *read = if polled.is_ready() { *read + (buf.filled().len() - before) } else { 0 };
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Fair<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn who_reads_without_end_pauses_and_misses_nothing() {
        let endless = tokio::io::repeat(b'0').take(10 * TURN as u64);
        let mut stream = Fair::new(endless);
        let mut read = Vec::new();
        let mut reading = std::pin::pin!(stream.read_to_end(&mut read));
        let mut pauses = 0;
        let all = std::future::poll_fn(|cx| {
            let polled = reading.as_mut().poll(cx);
            pauses += usize::from(polled.is_pending());
            polled
        });
        assert_eq!(all.await.unwrap(), 10 * TURN);
        assert!(pauses > 1, "{pauses}");
    }
}
