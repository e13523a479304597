use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use osb_core::Dialled;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// A dialled stream in the hands of the event loop.
#[derive(Debug)]
pub(crate) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    pub(crate) fn new(dialled: Dialled) -> io::Result<Self> {
        match dialled {
            Dialled::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                TcpStream::from_std(stream).map(Self::Tcp)
            }
            Dialled::Unix(stream) => {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream).map(Self::Unix)
            }
        }
    }
}

/// Whether a connection has carried an answer before: one that has may have gone stale meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used(Arc<AtomicBool>);

impl Used {
    pub(crate) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().extra(Used::default())
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        written.map(|written| heard(written, buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        written.map(|written| heard(written, bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// A service may answer before it has read the whole request, and listen no more. What it does not
/// hear is lost, but its answer is not: whether there is one, reading tells.
fn heard(written: io::Result<usize>, all: usize) -> io::Result<usize> {
    match written {
        Err(error) if is_deaf(&error) => Ok(all),
        written => written,
    }
}

fn is_deaf(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_although_nobody_hears_the_rest_of_the_request() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut wire = Wire::new(Dialled::Unix(ours)).unwrap();
        wire.write_all(b"head").await.unwrap();
        theirs.write_all(b"enough").unwrap();
        drop(theirs);
        wire.write_all(b"body").await.unwrap();
        let mut read = [0; 6];
        wire.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"enough");
        assert!(wire.read_u8().await.is_err(), "and then nothing comes");
    }
}
