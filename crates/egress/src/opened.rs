//! Connections that are looked into, because a vault has credentials for their host.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use osb_api::egress::Scheme as Bound;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

use crate::{
    By, Ruling, Verdict,
    decision::Ending,
    dial::{Way, keep},
    door::Target,
    intercept::{Authority, Connect, Credentials, Host, InterceptError, Scheme},
    passage::{Passage, reset_on_close},
    vault::Vault,
};

/// What it takes to look into the connections of one sandbox.
#[derive(Debug)]
pub(crate) struct Insight {
    pub(crate) vault: Arc<Vault>,
    pub(crate) authority: Authority,
}

impl Insight {
    /// The host that a connection is for, if it must be looked into. Ports follow from schemes:
    /// at others nobody gets credentials.
    pub(crate) fn of(&self, target: &Target, port: u16) -> Option<Host> {
        let Target::Name(name) = target else { return None };
        let (scheme, bound) = match port {
            443 => (Scheme::Https, Bound::Https),
            80 => (Scheme::Http, Bound::Http),
            _ => return None,
        };
        let binds = self.vault.active().binds(bound, name);
        binds.then(|| Host { name: name.clone(), port, scheme })
    }
}

/// Serves a connection by looking into it.
pub(crate) async fn serve(
    passage: &Arc<Passage>,
    way: Way,
    inside: TcpStream,
    insight: &Insight,
    host: Host,
) -> (Option<SocketAddr>, Ending) {
    let interceptor = &passage.door().house.interceptor;
    let hosts = Arc::new(Hosts { way, passage: passage.clone(), at: OnceLock::new() });
    let rules = Credentials::new(insight.vault.clone(), host.clone());
    // It works without, only less well.
    keep(&inside).ok();
    // Whatever ends before its time must not look complete; what was answered is sent by then.
    let client = Metered { stream: inside, passage: passage.clone(), rest: None };
    let served =
        interceptor.serve(client, host, &insight.authority, hosts.clone(), Arc::new(rules)).await;
    let how = match served {
        Ok(()) => Ending::Done,
        Err(InterceptError::Mismatch { .. }) => {
            Ending::Cut(Ruling { verdict: Verdict::Deny, by: By::Mismatch })
        }
        Err(error) => {
            tracing::debug!(target = ?passage.target, %error, "a connection was not looked into");
            Ending::Done
        }
    };
    (hosts.at.get().copied(), how)
}

/// Opens connections to the host of a passage.
struct Hosts {
    way: Way,
    passage: Arc<Passage>,
    /// Where the first one went.
    at: OnceLock<SocketAddr>,
}

#[async_trait]
impl Connect for Hosts {
    async fn connect(&self) -> io::Result<TcpStream> {
        let (stream, at) = self.way.dial().await?;
        if self.passage.settle(at, None).is_err() {
            reset_on_close(&stream);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the policy has changed"));
        }
        self.at.get_or_init(|| at);
        Ok(stream)
    }
}

/// The sandbox's end of a connection, counted and held to its bandwidth.
struct Metered {
    stream: TcpStream,
    passage: Arc<Passage>,
    /// Until when nothing passes.
    rest: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    fn poll_rested(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
        }
        Poll::Ready(())
    }

    /// Pays for what has passed, by a rest if it was too much.
    fn pay(&mut self, bytes: usize) {
        let Some(bandwidth) = &self.passage.door().bandwidth else { return };
        #[expect(clippy::cast_precision_loss, reason = "nobody counts bandwidth that precisely")]
        if let Err(wait) = bandwidth.take(bytes as f64) {
            self.rest = Some(Box::pin(tokio::time::sleep(wait)));
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_rested(cx));
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        self.passage.traffic.sent.fetch_add(read as u64, Relaxed);
        self.passage.door().house.counters.sent.fetch_add(read as u64, Relaxed);
        self.pay(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_rested(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, from))?;
        self.passage.traffic.received.fetch_add(written as u64, Relaxed);
        self.passage.door().house.counters.received.fetch_add(written as u64, Relaxed);
        self.pay(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
