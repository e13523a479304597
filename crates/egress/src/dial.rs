use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rustix::net::sockopt;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    By, Name, Policy, Ruling, Verdict,
    door::{Door, Target},
    limits::{Place, Places},
    upstream::Resolved,
};

/// The addresses at which a host may be reached, and who says so.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) ruling: Ruling,
    /// The other names by which one comes to them.
    pub(crate) aliases: Arc<[Name]>,
    addresses: Vec<SocketAddr>,
    patience: Duration,
    places: Places,
}

/// Why there is no way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoWay {
    /// Where it leads, if that is why.
    Denied(Ruling, Option<IpAddr>),
    /// It is allowed by this ruling, but it has no address.
    Lost(Ruling),
}

/// A connection to a host, and where it goes.
type Dialled = (TcpStream, SocketAddr);

/// Why nobody was connected to.
#[derive(Debug)]
pub(crate) enum Undialled {
    /// It was allowed when the way was found, and is not any more.
    Denied(Ruling),
    Failed(io::Error),
}

impl From<io::Error> for Undialled {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Way {
    /// How long an address has before the next is tried beside it.
    const STAGGER: Duration = Duration::from_millis(250);
    /// The most addresses that are tried.
    const MOST: usize = 8;

    /// Asks the policy, resolves, and asks again for every address.
    pub(crate) async fn find(door: &Door, target: &Target, port: u16) -> Result<Self, NoWay> {
        let policy = door.policy();
        let ruling = target.judge(&policy, port);
        if ruling.verdict == Verdict::Deny {
            return Err(NoWay::Denied(ruling, None));
        }
        let (patience, places) = (door.house.settings.connect_timeout, door.house.places.clone());
        let name = match target {
            Target::Name(name) => name,
            Target::Address(address) | Target::Datagrams(address) => {
                let addresses = vec![SocketAddr::new(*address, port)];
                return Ok(Self { ruling, aliases: Arc::default(), addresses, patience, places });
            }
        };
        let (found, aliases) = match door.house.upstream.resolve(name).await {
            Resolved::Addresses(found) => (found, Arc::default()),
            Resolved::Aliased(found, aliases) => (found, aliases),
            Resolved::Nothing | Resolved::Failed => return Err(NoWay::Lost(ruling)),
        };
        if let Some(denied) = denied_alias(&policy, &aliases, port) {
            return Err(NoWay::Denied(denied, None));
        }
        let mut addresses = Vec::new();
        let mut denied = None;
        for address in found.iter() {
            let at = SocketAddr::new(address.to_canonical(), port);
            match target.judge_at(&policy, at) {
                Ruling { verdict: Verdict::Allow, .. } => addresses.push(at),
                ruling => denied = Some((ruling, at.ip())),
            }
        }
        match denied {
            Some((denied, at)) if addresses.is_empty() => Err(NoWay::Denied(denied, Some(at))),
            _ if addresses.is_empty() => Err(NoWay::Lost(ruling)),
            _ => {
                let addresses = alternate(addresses);
                Ok(Self { ruling, aliases, addresses, patience, places })
            }
        }
    }

    /// Connects to the first that answers, of those that may be reached when it is their turn: the
    /// policy may have changed since the way was found.
    pub(crate) async fn dial(
        &self,
        may_reach: impl Fn(SocketAddr) -> Result<(), Ruling>,
    ) -> Result<Dialled, Undialled> {
        let connected = timeout(self.patience, self.race(may_reach)).await;
        connected.unwrap_or_else(|_| Err(Undialled::Failed(io::ErrorKind::TimedOut.into())))
    }

    async fn race(
        &self,
        may_reach: impl Fn(SocketAddr) -> Result<(), Ruling>,
    ) -> Result<Dialled, Undialled> {
        let mut rest = self.addresses.iter().copied().take(Self::MOST);
        let mut racing = FuturesUnordered::new();
        let mut failure = Undialled::Failed(io::ErrorKind::AddrNotAvailable.into());
        loop {
            // The first has the place of its connection. Where there are hardly any others, each
            // address waits for the one before.
            let place = if racing.is_empty() { None } else { self.places.spare() };
            if racing.is_empty() || place.is_some() {
                match rest.next() {
                    Some(address) => racing.push(connect(address, &may_reach, place)),
                    None if racing.is_empty() => return Err(failure),
                    None => {}
                }
            }
            tokio::select! {
                Some(result) = racing.next() => match result {
                    Ok(connected) => return Ok(connected),
                    Err(error) => failure = error,
                },
                () = sleep(Self::STAGGER), if rest.len() > 0 => {}
            }
        }
    }
}

async fn connect(
    address: SocketAddr,
    may_reach: &impl Fn(SocketAddr) -> Result<(), Ruling>,
    _place: Option<Place>,
) -> Result<Dialled, Undialled> {
    may_reach(address).map_err(Undialled::Denied)?;
    let stream = TcpStream::connect(address).await?;
    keep(&stream)?;
    Ok((stream, address))
}

/// Passes on at once what it is given, and notices when the other side is gone.
pub(crate) fn keep(stream: &TcpStream) -> io::Result<()> {
    const SILENCE: Duration = Duration::from_mins(1);
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 4)?;
    Ok(())
}

/// Both families in turn: if one leads nowhere the other is tried soon.
fn alternate(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (sixth, fourth): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
    let longest = sixth.len().max(fourth.len());
    (0..longest).flat_map(|n| [sixth.get(n), fourth.get(n)]).flatten().copied().collect()
}

/// The ruling against one of the names by which another leads to its addresses: no rule need allow
/// them, but none may deny them.
pub(crate) fn denied_alias(policy: &Policy, aliases: &[Name], port: u16) -> Option<Ruling> {
    let mut rulings = aliases.iter().map(|alias| policy.name_at(alias, port));
    rulings.find(|ruling| {
        let by_a_rule = matches!(ruling.by, By::Rule(_) | By::Operator(_));
        by_a_rule && ruling.verdict == Verdict::Deny
    })
}

/// What is refused because the sandbox has too many.
pub(crate) fn too_many() -> Ruling {
    Ruling { verdict: Verdict::Deny, by: By::Limit }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn way(addresses: Vec<SocketAddr>) -> Way {
        let ruling = Ruling { verdict: Verdict::Allow, by: By::Default };
        let (patience, places) = (Duration::from_secs(10), Places::new(100));
        Way { ruling, aliases: Arc::default(), addresses, patience, places }
    }

    #[test]
    fn families_take_turns() {
        let addresses: Vec<SocketAddr> =
            ["1.1.1.1:1", "[::1]:1", "1.1.1.2:1", "1.1.1.3:1"].map(|it| it.parse().unwrap()).into();
        let order = ["[::1]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"];
        assert_eq!(alternate(addresses), order.map(|it| it.parse().unwrap()));
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = listener.local_addr().unwrap();
        let down = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (_stream, at) = way(vec![down, up]).dial(|_| Ok(())).await.unwrap();
        assert_eq!(at, up);
        assert!(way(vec![down]).dial(|_| Ok(())).await.is_err());
    }

    #[tokio::test]
    async fn an_address_that_is_silent_does_not_hold_up_the_next() {
        // A listener whose queue is full answers nobody.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        let silent_at = silent.local_addr().unwrap();
        let _first = TcpStream::connect(silent_at).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = listener.local_addr().unwrap();
        let (_stream, at) = way(vec![silent_at, up]).dial(|_| Ok(())).await.unwrap();
        assert_eq!(at, up);
    }

    #[tokio::test]
    async fn an_address_that_is_denied_meanwhile_is_not_dialled() {
        let denied = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let denied_at = denied.local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = listener.local_addr().unwrap();
        let may_reach = |at| if at == denied_at { Err(too_many()) } else { Ok(()) };
        let (_stream, at) = way(vec![denied_at, up]).dial(may_reach).await.unwrap();
        assert_eq!(at, up);
        let none = way(vec![denied_at]).dial(may_reach).await.unwrap_err();
        assert!(matches!(none, Undialled::Denied(ruling) if ruling == too_many()));
        let nobody = timeout(Duration::ZERO, denied.accept()).await;
        assert!(nobody.is_err(), "somebody was dialled");
    }
}
