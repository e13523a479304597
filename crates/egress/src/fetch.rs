//! Fetching a file for somebody who builds an image, as a sandbox with his policy could.

use std::{fmt, io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use osb_api::SandboxId;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    By, Egress, Name, Policy, Readings, Ruling, Verdict,
    dial::{NoWay, Undialled, Way},
    door::{Door, Target},
    opened::Insight,
};

/// How many hosts may send us on to another.
const REDIRECTS: usize = 10;
/// How long nothing may come.
const SILENCE: Duration = Duration::from_mins(1);

/// Why there is no file. All but the last are for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{0}")]
    Address(String),
    #[error("{host} may not be reached: {why}")]
    Denied { host: String, why: String },
    #[error("{host} was not reached: {why}")]
    Unreached { host: String, why: String },
    #[error("{host} answered {status}")]
    Status { host: String, status: StatusCode },
    #[error("what came cannot be kept")]
    Unkept(#[source] io::Error),
}

impl Egress {
    /// Fetches what is at `url` with a policy, and gives it to `keep` as it comes. Decisions are
    /// those of `id`, and are written down as such.
    pub async fn fetch(
        &self,
        id: SandboxId,
        policy: Arc<Policy>,
        url: &str,
        keep: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<(), FetchError> {
        let door = self.errand(id, policy);
        let mut place = Place::parse(url)?;
        for _ in 0..=REDIRECTS {
            let (response, connection) = place.ask(&door).await?;
            let status = response.status();
            if status.is_redirection() {
                place = place.next(response.headers())?;
                continue;
            }
            if status != StatusCode::OK {
                return Err(FetchError::Status { host: place.host, status });
            }
            let kept = receive(&place.host, response.into_body(), keep).await;
            drop(connection);
            return kept;
        }
        Err(FetchError::Address(format!("{url} leads from one place to the next, and never ends")))
    }
}

async fn receive(
    host: &str,
    mut body: Incoming,
    keep: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
) -> Result<(), FetchError> {
    let broken = |why: String| FetchError::Unreached { host: host.to_owned(), why };
    loop {
        let frame = timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| broken("nothing comes any more".to_owned()))?;
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|error| broken(format!("it broke off: {error}")))?;
        if let Some(data) = frame.data_ref() {
            keep(data).map_err(FetchError::Unkept)?;
        }
    }
}

/// Where something is.
struct Place {
    host: String,
    port: u16,
    is_tls: bool,
    target: String,
}

impl Place {
    fn parse(url: &str) -> Result<Self, FetchError> {
        let wrong = || FetchError::Address(format!("{url} is no address of http or https"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|it| !it.as_str().contains('@'));
        let authority = authority.ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        if host.is_empty() { Err(wrong()) } else { Ok(Self { host, port, is_tls, target }) }
    }

    /// Where an answer sends us.
    fn next(&self, headers: &HeaderMap) -> Result<Self, FetchError> {
        let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let Some(location) = location else {
            return Err(FetchError::Address(format!("{} sends us on, but not where", self.host)));
        };
        let scheme = if self.is_tls { "https" } else { "http" };
        let next = if location.starts_with("//") {
            Self::parse(&format!("{scheme}:{location}"))?
        } else if location.starts_with('/') {
            Self::parse(&format!("{scheme}://{}{location}", self.authority()))?
        } else {
            Self::parse(location)?
        };
        if self.is_tls && !next.is_tls {
            let why = format!("{} sends us on to a place without TLS", self.host);
            return Err(FetchError::Address(why));
        }
        Ok(next)
    }

    /// The authority, without a port that goes without saying.
    fn host(&self) -> String {
        let authority = self.authority();
        let port = if self.is_tls { ":443" } else { ":80" };
        authority.strip_suffix(port).map(str::to_owned).unwrap_or(authority)
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn denied(&self, ruling: &Ruling) -> FetchError {
        let why = match &ruling.by {
            By::Rule(rule) => format!("the rule {rule} of the policy"),
            By::Operator(rule) => format!("the operator's rule {rule}"),
            By::Guard(_) => "it is at an address that is not public".to_owned(),
            By::Default | By::Mismatch | By::Limit | By::Binding(_) => {
                "the policy does not allow it".to_owned()
            }
        };
        FetchError::Denied { host: self.host.clone(), why }
    }

    fn unreached(&self, why: &dyn fmt::Display) -> FetchError {
        FetchError::Unreached { host: self.host.clone(), why: why.to_string() }
    }

    /// Asks the policy, connects, and asks for the file.
    async fn ask(&self, door: &Door) -> Result<(Response<Incoming>, Connection), FetchError> {
        let target =
            match self.host.parse::<IpAddr>() {
                Ok(address) => Target::Address(address.to_canonical()),
                Err(_) => Target::Name(Name::parse(&self.host).map_err(|_| {
                    FetchError::Address(format!("{} is no name of a host", self.host))
                })?),
            };
        let policy = door.policy();
        let deny = |ruling: Ruling| {
            let error = self.denied(&ruling);
            door.note(target.attempt(self.port), ruling);
            error
        };
        if let Target::Name(name) = &target {
            let path = self.target.split('?').next().unwrap_or("/");
            let readings = Readings::new("GET", path, &HeaderMap::new());
            let ruling = policy.request(name, self.port, &readings);
            if ruling.verdict == Verdict::Deny {
                return Err(deny(ruling));
            }
        }
        let way = Way::find(door, &target, self.port).await.map_err(|no_way| match no_way {
            NoWay::Denied(ruling, _) => deny(ruling),
            NoWay::Lost(_) => self.unreached(&"it has no address"),
        })?;
        let may_reach = |at| match target.judge_at(&policy, at) {
            Ruling { verdict: Verdict::Allow, .. } => Ok(()),
            ruling => Err(ruling),
        };
        let (stream, _) = way.dial(may_reach).await.map_err(|undialled| match undialled {
            Undialled::Denied(ruling) => deny(ruling),
            Undialled::Failed(error) => self.unreached(&error),
        })?;
        door.note(target.attempt(self.port), way.ruling.clone());
        if !self.is_tls {
            return self.send(stream).await;
        }
        let name =
            ServerName::try_from(self.host.clone()).map_err(|error| self.unreached(&error))?;
        let config = door.house.interceptor.trusted().await;
        let config = config.map_err(|error| self.unreached(&error))?;
        let secured = timeout(SILENCE, TlsConnector::from(config).connect(name, stream)).await;
        let secured = secured.map_err(|_| self.unreached(&"it does not begin TLS in time"))?;
        self.send(secured.map_err(|error| self.unreached(&error))?).await
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(Response<Incoming>, Connection), FetchError> {
        let request = Request::get(self.target.as_str())
            .header(header::HOST, self.host())
            .header(header::USER_AGENT, HeaderValue::from_static("opensandbox-build"))
            .header(header::ACCEPT, HeaderValue::from_static("*/*"))
            .header(header::CONNECTION, HeaderValue::from_static("close"))
            .body(Empty::<Bytes>::new())
            .map_err(|error| self.unreached(&error))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.unreached(&error))?;
        let tasks = tokio_util::task::TaskTracker::new();
        let connection = tasks.spawn(async {
            // Whoever reads the answer hears of it.
            connection.await.ok();
        });
        let connection = AbortOnDropHandle::new(connection);
        let answer = timeout(SILENCE, sender.send_request(request)).await;
        let answer = answer.map_err(|_| self.unreached(&"it does not answer in time"))?;
        Ok((answer.map_err(|error| self.unreached(&error))?, connection))
    }
}

/// Ends with whoever has it.
type Connection = AbortOnDropHandle<()>;

impl Egress {
    /// A door that nothing comes by but what we fetch ourselves.
    fn errand(&self, id: SandboxId, policy: Arc<Policy>) -> Door {
        Door::new(id, policy, Insight::new(None), self.house.clone())
    }
}

#[cfg(test)]
mod tests;
