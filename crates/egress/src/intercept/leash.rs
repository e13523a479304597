//! Hosts that say much and mean nothing.
//!
//! What comes before the head of an answer costs a host nothing and is shown to nobody: hints, and
//! frames that concern only the connection. So a host may say only so much that is of no use.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{Body, BoxError, Reached};
use crate::limits::Place;

/// What is read from a host until others have their turn.
const TURN: usize = 64 << 10;
/// What a host may say that is of no use.
const USELESS: u64 = 256 << 10;
/// What it may say more because it was asked for something: a head, and what was on its way when the
/// client lost interest.
const ASKED: u64 = 320 << 10;
/// What it may say more with every piece of an answer that was of use, beside twice its length.
const PIECE: u64 = 512;
/// It may say one byte more for so many that it was sent: it must tell how much it has taken.
const SENT: u64 = 16;

/// How much a host has said that was of no use, and how much it may.
#[derive(Debug)]
pub(super) struct Leash {
    useless: AtomicU64,
    most: AtomicU64,
}

impl Leash {
    pub(super) fn new() -> Self {
        Self { useless: AtomicU64::new(0), most: AtomicU64::new(USELESS) }
    }

    /// Lets it say more ahead of what is taken from it.
    pub(super) fn lengthen(&self, ahead: u32) {
        self.most.fetch_add(ahead.into(), Relaxed);
    }

    /// It was asked for something.
    pub(super) fn ask(&self) {
        self.forgive(ASKED);
    }

    /// Its answer, of which every piece is of use.
    pub(super) fn answer(self: &Arc<Self>, response: Response<Incoming>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // From here on everything is passed on.
            self.most.store(u64::MAX, Relaxed);
        }
        response.map(|body| Useful { body, leash: Arc::clone(self) }.boxed_unsync())
    }

    fn hear(&self, bytes: usize) -> io::Result<()> {
        let useless = self.useless.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        if useless > self.most.load(Relaxed) {
            return Err(io::Error::other("it said too much that is no answer"));
        }
        Ok(())
    }

    fn forgive(&self, bytes: u64) {
        let less = |useless: u64| Some(useless.saturating_sub(bytes));
        // It always is some number.
        self.useless.fetch_update(Relaxed, Relaxed, less).ok();
    }
}

/// The connection to a host on a [`Leash`].
pub(super) struct Leashed {
    stream: TcpStream,
    _kept: (Arc<()>, Option<Place>),
    leash: Arc<Leash>,
    /// What was read since others had their turn.
    read: usize,
}

impl Leashed {
    pub(super) fn new(Reached { stream, kept }: Reached, leash: Arc<Leash>) -> Self {
        Self { stream, _kept: kept, leash, read: 0 }
    }
}

impl AsyncRead for Leashed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN {
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, into) else {
            self.read = 0;
            return Poll::Pending;
        };
        read?;
        let read = into.filled().len() - before;
        self.read += read;
        Poll::Ready(self.leash.hear(read))
    }
}

impl Leashed {
    fn sent(&self, written: usize) -> usize {
        self.leash.forgive(written as u64 / SENT);
        written
    }
}

impl AsyncWrite for Leashed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, from))?;
        Poll::Ready(Ok(self.sent(written)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, from))?;
        Poll::Ready(Ok(self.sent(written)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of an answer, which is what a host was asked for.
struct Useful {
    body: Incoming,
    leash: Arc<Leash>,
}

impl http_body::Body for Useful {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.leash.forgive(2 * data.len() as u64 + PIECE);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
