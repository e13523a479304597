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
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
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
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
