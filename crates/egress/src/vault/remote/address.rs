use std::{fmt, io, net::IpAddr, path::PathBuf, sync::Arc};

use http::Uri;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use crate::{ExtraCa, extra_ca};

/// Where a store is, and how it is spoken to.
pub(super) enum Address {
    /// On this host, where nobody is between.
    Plain(Host),
    /// Anywhere, if it proves who it is.
    Tls(Host, ServerName<'static>, Arc<ClientConfig>),
    Unix(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    name: String,
    port: u16,
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("{0:?} is neither https://host:port nor http://127.0.0.1:port nor unix:/path")]
    Form(String),
    #[error("{0:?} is plain HTTP and not on this host: everybody on the way could read secrets")]
    Elsewhere(String),
    #[error("no TLS: {0}")]
    Tls(String),
    #[error("{0:?} is no namespace")]
    Namespace(String),
}

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Address {
    const PORT: u16 = 8200;

    pub(super) fn parse(text: &str, extra: Option<&ExtraCa>) -> Result<Self, BadAddress> {
        let form = || BadAddress::Form(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return path.is_absolute().then_some(Self::Unix(path)).ok_or_else(form);
        }
        let uri: Uri = text.parse().map_err(|_| form())?;
        let name = uri.host().ok_or_else(form)?.trim_matches(['[', ']']).to_owned();
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || has_user {
            return Err(form());
        }
        let host = Host { port: uri.port_u16().unwrap_or(Self::PORT), name };
        match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host.name.clone()).map_err(|_| form())?;
                Ok(Self::Tls(host, name, Arc::new(config(extra)?)))
            }
            Some("http") if host.is_local() => Ok(Self::Plain(host)),
            Some("http") => Err(BadAddress::Elsewhere(text.to_owned())),
            _ => Err(form()),
        }
    }

    /// What the store is called in a request.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Plain(Host { name, port }) | Self::Tls(Host { name, port }, ..) => {
                if name.contains(':') {
                    format!("[{name}]:{port}")
                } else {
                    format!("{name}:{port}")
                }
            }
            Self::Unix(_) => "localhost".to_owned(),
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Plain(host) => Ok(Box::new(host.connect().await?)),
            Self::Tls(host, name, config) => {
                let stream = host.connect().await?;
                let connector = TlsConnector::from(Arc::clone(config));
                Ok(Box::new(connector.connect(name.clone(), stream).await?))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

impl Host {
    fn is_local(&self) -> bool {
        self.name == "localhost"
            || self.name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect((self.name.as_str(), self.port)).await
    }
}

fn config(extra: Option<&ExtraCa>) -> Result<ClientConfig, BadAddress> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BadAddress::Tls(error.to_string()))?;
    Ok(versions.with_root_certificates(extra_ca::roots(extra)).with_no_client_auth())
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(host) => f.debug_tuple("Plain").field(host).finish(),
            Self::Tls(host, ..) => f.debug_tuple("Tls").field(host).finish_non_exhaustive(),
            Self::Unix(path) => f.debug_tuple("Unix").field(path).finish(),
        }
    }
}
