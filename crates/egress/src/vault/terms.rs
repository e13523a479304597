//! What is asked of whoever fills a vault, beside what is always so.

use std::net::IpAddr;

use http::{HeaderMap, uri::Scheme};
use osb_api::egress::Match;

use crate::policy::range::Range;

/// How a secret may come to the server.
#[derive(Debug, Clone, Default)]
pub enum Transport {
    #[default]
    Any,
    /// Encrypted, as far as the server can know.
    Tls(Proxies),
}

/// Addresses of proxies whose `X-Forwarded-Proto` is believed.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Vec<Range>);

/// What is neither an address nor a range of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address and no range of addresses")]
pub struct BadProxy(String);

/// What a binding must say of the requests that it is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// Hosts; the rest has defaults.
    #[default]
    Hosts,
    /// Methods and paths, too, and not every path.
    Requests,
}

impl Proxies {
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadProxy> {
        let range = |text: &str| match Range::parse(text.trim()) {
            Some(Ok(range)) => Ok(range),
            Some(Err(_)) | None => Err(BadProxy(text.to_owned())),
        };
        texts.into_iter().map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl Transport {
    /// Whether a secret may come like this. Where the server itself speaks no TLS, what is not from
    /// this host is encrypted only if a proxy in front says so. One may also say that it was not.
    pub fn admits(&self, caller: IpAddr, scheme: &Scheme, headers: &HeaderMap) -> bool {
        let Self::Tls(Proxies(proxies)) = self else { return true };
        let address = caller.to_canonical();
        let mut said = headers.get_all("x-forwarded-proto").iter().peekable();
        let is_silent = said.peek().is_none();
        let is_tls = said.all(|said| said.as_bytes().eq_ignore_ascii_case(b"https"));
        let is_trusted = || proxies.iter().any(|range| range.contains(address));
        let is_ours = *scheme == Scheme::HTTPS || address.is_loopback();
        is_tls && (is_ours || !is_silent && is_trusted())
    }
}

impl Scope {
    /// Whether both are asked of, by either side.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == Self::Hosts { other } else { self }
    }

    /// Checks what a client wrote, before defaults are filled in.
    pub(super) fn check(self, requests: &Match) -> Result<(), &'static str> {
        let every = |path: &String| matches!(path.trim(), "/*" | "*");
        match self {
            Self::Requests if requests.methods.is_empty() => {
                Err("it must say for which methods it is: scoped matches are required here")
            }
            Self::Requests if requests.paths.is_empty() || requests.paths.iter().any(every) => {
                Err("it must say for which paths it is, and not /*: scoped matches are required \
                     here")
            }
            Self::Hosts | Self::Requests => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn where_tls_is_required_only_this_host_and_trusted_proxies_may_send() {
        let transport = Transport::Tls(Proxies::parse(["192.0.2.1", "10.1.0.0/16"]).unwrap());
        let comes = |scheme: &Scheme, address: &str, said: Option<&'static str>| {
            let address = address.parse().unwrap();
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert("x-forwarded-proto", HeaderValue::from_static(said));
            }
            transport.admits(address, scheme, &headers)
        };
        let admits = |address: &str, said| comes(&Scheme::HTTP, address, said);
        let encrypted = |said| comes(&Scheme::HTTPS, "198.51.100.1", said);
        assert!(encrypted(None) && encrypted(Some("https")) && !encrypted(Some("http")));
        assert!(admits("127.0.0.1", None) && admits("::ffff:127.0.0.1", None));
        assert!(admits("127.0.0.1", Some("https")) && !admits("127.0.0.1", Some("http")));
        assert!(!admits("::1", Some("https, http")) && !admits("::1", Some("")));
        assert!(admits("192.0.2.1", Some("https")) && admits("10.1.2.3", Some("HTTPS")));
        assert!(!admits("192.0.2.1", None) && !admits("192.0.2.1", Some("http")));
        assert!(!admits("192.0.2.2", Some("https")) && !admits("10.2.0.1", Some("https")));
        assert!(Proxies::parse(["proxy.example.com"]).is_err());
        assert!(Proxies::parse(["10.0.0.0/33"]).is_err());
    }

    #[test]
    fn a_scope_is_what_either_side_asks_for() {
        use Scope::{Hosts, Requests};
        assert_eq!(Hosts.and(Hosts), Hosts);
        assert!([Hosts.and(Requests), Requests.and(Hosts)].iter().all(|scope| *scope == Requests));
    }
}
