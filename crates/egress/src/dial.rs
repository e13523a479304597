use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rustix::net::sockopt;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    By, Ruling, Verdict,
    door::{Door, Target},
    limits::{Place, Places},
    upstream::Resolved,
};

/// The addresses at which a host may be reached, and who says so.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) ruling: Ruling,
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
                return Ok(Self { ruling, addresses, patience, places });
            }
        };
        let found = match door.house.upstream.resolve(name).await {
            Resolved::Addresses(found) => found,
            Resolved::Aliased(found, aliases) => {
                // No rule need allow what a name is an alias of, but none may deny it.
                let mut rulings = aliases.iter().map(|alias| policy.name_at(alias, port));
                let is_denied = |ruling: &Ruling| {
                    let by_a_rule = matches!(ruling.by, By::Rule(_) | By::Operator(_));
                    by_a_rule && ruling.verdict == Verdict::Deny
                };
                if let Some(denied) = rulings.find(is_denied) {
                    return Err(NoWay::Denied(denied, None));
                }
                found
            }
            Resolved::Nothing | Resolved::Failed => return Err(NoWay::Lost(ruling)),
        };
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
            _ => Ok(Self { ruling, addresses: alternate(addresses), patience, places }),
        }
    }

    /// Connects to the first that answers.
    pub(crate) async fn dial(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let connected = timeout(self.patience, self.race()).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn race(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut rest = self.addresses.iter().copied().take(Self::MOST);
        let mut racing = FuturesUnordered::new();
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            // The first has the place of its connection. Where there are hardly any others, each
            // address waits for the one before.
            let place = if racing.is_empty() { None } else { self.places.spare() };
            if racing.is_empty() || place.is_some() {
                match rest.next() {
                    Some(address) => racing.push(connect(address, place)),
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
    _place: Option<Place>,
) -> io::Result<(TcpStream, SocketAddr)> {
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
        Way { ruling, addresses, patience, places }
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
        let (_stream, at) = way(vec![down, up]).dial().await.unwrap();
        assert_eq!(at, up);
        assert!(way(vec![down]).dial().await.is_err());
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
        let (_stream, at) = way(vec![silent_at, up]).dial().await.unwrap();
        assert_eq!(at, up);
    }
}
