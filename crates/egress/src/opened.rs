//! Connections that are looked into, because a vault has credentials for their host, or a policy
//! rules about what is asked of it.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use osb_api::{SandboxId, egress::Scheme as Bound};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, timeout},
};

use crate::{
    By, Name, Policy, Protocol, Ruling, Verdict,
    decision::Ending,
    dial::{Undialled, Way, keep},
    door::Target,
    intercept::{
        Authority, Connect, Credentials, Host, InterceptError, Judge, Reached, Root, Scheme, Shares,
    },
    passage::{Passage, reset_on_close},
    vault::Vault,
};

/// What it takes to look into the connections of one sandbox.
#[derive(Debug)]
pub(crate) struct Insight {
    pub(crate) vault: Option<Arc<Vault>>,
    /// Made when it is needed.
    authority: OnceLock<Authority>,
    shares: Shares,
}

/// A host whose connections are looked into.
pub(crate) struct Seen {
    name: Name,
    port: u16,
    /// Known by the port, or by the first byte.
    scheme: Option<Scheme>,
}

impl Insight {
    pub(crate) fn new(vault: Option<Arc<Vault>>) -> Self {
        Self { vault, authority: OnceLock::new(), shares: Shares::default() }
    }

    /// The host that a connection is for, if it must be looked into. Nobody gets credentials at
    /// other ports than those of the schemes.
    pub(crate) fn of(&self, policy: &Policy, target: &Target, port: u16) -> Option<Seen> {
        let Target::Name(name) = target else { return None };
        let (scheme, bound) = match port {
            443 => (Some(Scheme::Https), Some(Bound::Https)),
            80 => (Some(Scheme::Http), Some(Bound::Http)),
            _ => (None, None),
        };
        let active = self.vault.as_ref().map(|vault| vault.active());
        let binds = active.zip(bound).is_some_and(|(active, bound)| active.binds(bound, name));
        let looked_into = binds || policy.looks_into(name, port).is_some();
        looked_into.then(|| Seen { name: name.clone(), port, scheme })
    }

    fn authority(&self, root: &Root, id: SandboxId) -> io::Result<&Authority> {
        if let Some(authority) = self.authority.get() {
            return Ok(authority);
        }
        let made = Authority::new(root, id)?;
        Ok(self.authority.get_or_init(|| made))
    }
}

impl Seen {
    /// How long a client may take for its first byte.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// What TLS begins with.
    const HANDSHAKE: u8 = 22;

    async fn host(self, inside: &TcpStream) -> io::Result<Host> {
        let Self { name, port, scheme } = self;
        if let Some(scheme) = scheme {
            return Ok(Host { name, port, scheme });
        }
        let mut first = [0];
        timeout(Self::PATIENCE, inside.peek(&mut first)).await??;
        let is_tls = first == [Self::HANDSHAKE];
        Ok(Host { name, port, scheme: if is_tls { Scheme::Https } else { Scheme::Http } })
    }
}

/// Serves a connection by looking into it.
pub(crate) async fn serve(
    passage: &Arc<Passage>,
    way: Way,
    inside: TcpStream,
    seen: Seen,
) -> (Option<SocketAddr>, Ending) {
    let door = passage.door();
    let (interceptor, insight) = (&door.house.interceptor, &door.insight);
    let authority = insight.authority(&door.house.root, door.id);
    let (host, authority) = match (seen.host(&inside).await, authority) {
        (Ok(host), Ok(authority)) => (host, authority),
        (Err(error), _) | (_, Err(error)) => {
            tracing::debug!(target = ?passage.target, %error, "a connection was not looked into");
            reset_on_close(&inside);
            return (None, Ending::Done);
        }
    };
    let hosts = Arc::new(Hosts {
        way,
        passage: passage.clone(),
        at: OnceLock::new(),
        open: Arc::default(),
    });
    let vault = insight.vault.clone();
    let noted = passage.clone();
    let told = Arc::new(move |asked, ruling| noted.note(Protocol::Credential, asked, ruling));
    let credentials = vault.map(|vault| Credentials::new(door.id, vault, host.clone(), told));
    let rules = Judge::new(passage.clone(), host.clone(), credentials);
    // It works without, only less well.
    keep(&inside).ok();
    // Whatever ends before its time must not look complete; what was answered is sent by then.
    let client = Metered { stream: inside, passage: passage.clone(), rest: None };
    let (connect, rules, shares) = (hosts.clone(), Arc::new(rules), &insight.shares);
    let served = interceptor.serve(client, host, authority, connect, rules, shares).await;
    let how = match served {
        Ok(()) => Ending::Done,
        Err(InterceptError::Unreached) => Ending::Unreachable,
        Err(InterceptError::Unverified) => Ending::Unverified,
        Err(InterceptError::Mismatch { .. } | InterceptError::NotHttp) => {
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
    /// Each that is open has a copy.
    open: Arc<()>,
}

#[async_trait]
impl Connect for Hosts {
    async fn connect(&self) -> io::Result<Reached> {
        let changed = || io::Error::new(io::ErrorKind::PermissionDenied, "the policy has changed");
        // One at a time shares the place of the client's. The host decides how many more there are.
        let place = if Arc::strong_count(&self.open) > 1 {
            let place = self.passage.door().house.places.spare();
            Some(place.ok_or_else(|| io::Error::other("too many connections are open"))?)
        } else {
            None
        };
        let kept = (Arc::clone(&self.open), place);
        let dialled = self.way.dial(|at| self.passage.may_reach(at)).await;
        let (stream, at) = dialled.map_err(|undialled| match undialled {
            Undialled::Denied(_) => changed(),
            Undialled::Failed(error) => error,
        })?;
        if self.passage.settle(at, None).is_err() {
            reset_on_close(&stream);
            return Err(changed());
        }
        self.at.get_or_init(|| at);
        Ok(Reached { stream, kept })
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

    /// Once a connection is cut, nothing passes any more.
    fn check(&self) -> io::Result<()> {
        if self.passage.is_cut() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Pays for what has passed, by a rest if it was too much.
    fn pay(&mut self, bytes: usize) {
        let wait = self.passage.door().pay_seen(bytes);
        self.rest = wait.map(|wait| Box::pin(tokio::time::sleep(wait)));
    }
}

/// What is cut must not look complete.
impl Drop for Metered {
    fn drop(&mut self) {
        if self.passage.is_cut() {
            reset_on_close(&self.stream);
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
        self.check()?;
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
        self.check()?;
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::{LOOPBACK, TestHouse, only};

    #[tokio::test]
    async fn a_host_that_is_denied_meanwhile_is_not_dialled_again() {
        let house = TestHouse::start(only(&["a.test", LOOPBACK])).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Target::Name(Name::parse("a.test").unwrap());
        let passage = Arc::new(Passage::enter(&house.door, &target, port).unwrap());
        let way = Way::find(&house.door, &target, port).await.unwrap();
        let hosts = Hosts { way, passage, at: OnceLock::new(), open: Arc::default() };
        hosts.connect().await.unwrap();
        listener.accept().await.unwrap();
        assert!(house.egress.set_policy(house.door.id, only(&["b.test", LOOPBACK])));
        let error = hosts.connect().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let nobody = timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err(), "somebody was dialled");
    }
}
