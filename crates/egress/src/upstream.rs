//! Our own resolution: what a name's addresses are is never the sandbox's word.

mod cache;
mod exchange;
mod hosts;

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use self::{cache::Cache, exchange::exchange, hosts::Hosts};
use crate::{
    Name,
    dns::{self, Query, Reply, kind},
    limits::Places,
};

/// Where names are resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Resolvers {
    /// Those of the host, as they are at the time, after the names that it has in its own file.
    #[default]
    Host,
    /// These, the first that answers, and nothing else.
    These(Vec<SocketAddr>),
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    Addresses(Arc<[IpAddr]>),
    /// The same, by way of other names of which it is an alias.
    Aliased(Arc<[IpAddr]>, Arc<[Name]>),
    /// There is no such name.
    Nothing,
    /// Nobody could say.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Upstream {
    resolvers: Resolvers,
    hosts: Hosts,
    cache: Cache,
    places: Places,
}

impl Upstream {
    /// The bounds between which we believe how long an answer is true.
    const TRUE_FOR: (u32, u32) = (5, 3600);
    /// How long we believe that there is no such name.
    const NOTHING_FOR: Duration = Duration::from_secs(10);

    pub(crate) fn new(resolvers: Resolvers, places: Places) -> Self {
        Self { resolvers, hosts: Hosts::default(), cache: Cache::default(), places }
    }

    /// The addresses of a name, both families, those of IPv6 only if this host can reach any.
    pub(crate) async fn resolve(&self, name: &Name) -> Resolved {
        if let Resolvers::Host = self.resolvers
            && let Some(addresses) = self.hosts.find(name)
        {
            return Resolved::Addresses(addresses);
        }
        self.cache.find(name, || self.ask(name)).await
    }

    /// Asks anew. The duration is how long it may be believed.
    async fn ask(&self, name: &Name) -> (Resolved, Duration) {
        let sixth = async { if has_ipv6() { self.question(name, kind::AAAA).await } else { None } };
        let (fourth, sixth) = tokio::join!(self.question(name, kind::A), sixth);
        let replies = [fourth, sixth];
        let (mut addresses, mut aliases) = (Vec::new(), Vec::new());
        let mut seconds = Self::TRUE_FOR.1;
        for reply in replies.iter().flatten() {
            addresses.extend_from_slice(&reply.addresses);
            aliases.extend_from_slice(&reply.aliases);
            seconds = seconds.min(reply.seconds.unwrap_or(seconds));
        }
        if !addresses.is_empty() {
            let seconds = u64::from(seconds.max(Self::TRUE_FOR.0));
            let resolved = match aliases.as_slice() {
                [] => Resolved::Addresses(addresses.into()),
                _ => Resolved::Aliased(addresses.into(), aliases.into()),
            };
            return (resolved, Duration::from_secs(seconds));
        }
        match &replies {
            [Some(reply), _] if reply.code == dns::Code::NoSuchName as u8 => {
                (Resolved::Nothing, Self::NOTHING_FOR)
            }
            [Some(reply), _] if reply.code == dns::Code::Fine as u8 => {
                (Resolved::Addresses(Arc::default()), Self::NOTHING_FOR)
            }
            _ => (Resolved::Failed, Duration::ZERO),
        }
    }

    async fn question(&self, name: &Name, kind: u16) -> Option<Reply> {
        let _place = self.places.take(0)?;
        let question = dns::ask(random_id()?, name, kind, true);
        let answer = exchange(&self.servers(), &question).await?;
        Reply::read(&answer, &question)
    }

    /// Asks another the question of a sandbox as it is, for records that are not addresses.
    pub(crate) async fn forward(&self, query: &Query) -> Option<Vec<u8>> {
        let _place = self.places.take(0)?;
        let question = query.to_ask(random_id()?)?;
        let answer = exchange(&self.servers(), &question).await?;
        query.adopt(answer)
    }

    fn servers(&self) -> Arc<[SocketAddr]> {
        match &self.resolvers {
            Resolvers::Host => self.hosts.servers(),
            Resolvers::These(servers) => servers.as_slice().into(),
        }
    }
}

/// Nobody who does not see our questions may answer them: without randomness none is asked.
fn random_id() -> Option<u16> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).ok()?;
    Some(u16::from_be_bytes(id))
}

/// Whether this host has a way to the Internet by IPv6. Nothing is sent.
pub(crate) fn has_ipv6() -> bool {
    // An address of the public Internet; which one does not matter.
    const SOMEWHERE: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1);
    let Ok(socket) = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) else { return false };
    socket.connect((SOMEWHERE, 9)).is_ok()
}

#[cfg(test)]
pub(crate) mod tests;
