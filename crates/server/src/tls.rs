//! TLS on the port of the server: who it says it is, and the beginning of a connection.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_core::Chain;
use osb_sys::fs;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde::Deserialize;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::config::ConfigError;

/// How long a client may take for its part of the handshake.
const WITHIN: Duration = Duration::from_secs(10);
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// For those who forget the `s`, which every client shows better than a connection that breaks off.
const IN_THE_CLEAR: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
      content-length: 39\r\nconnection: close\r\n\r\nthis port speaks TLS: call it https://\n";

/// The table `[server.tls]` of the configuration file, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawTls {
    /// A file with the certificate of the server and those that lead to its authority, as PEM.
    /// Since 0.1.
    pub certificate: PathBuf,
    /// A file with the private key of the certificate, as PEM. Since 0.1.
    pub key: PathBuf,
}

/// Who the server says it is, read and checked. Copies share it.
#[derive(Debug, Clone)]
pub struct Identity(Arc<ServerConfig>);

impl RawTls {
    pub fn read(&self) -> Result<Identity, ConfigError> {
        let chain = certificates(&self.certificate)?;
        let key = fs::read_small(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| unusable("key", &self.key, "there is no private key in it, as PEM"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("certificate", &self.certificate, Chain(&error)))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| {
                if let rustls::Error::InconsistentKeys(_) = error {
                    unusable("key", &self.key, "it is not the key of server.tls.certificate")
                } else {
                    unusable("key", &self.key, Chain(&error))
                }
            })?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Identity(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = fs::read_small(path)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) | Err(_) => {
            Err(unusable("certificate", path, "there is no certificate in it, as PEM"))
        }
    }
}

fn unusable(key: &str, path: &Path, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::Invalid(format!("server.tls.{key} cannot be {}: {problem}", path.display()))
}

/// Takes connections as whoever the server is at the moment. Copies share it.
#[derive(Debug, Clone)]
pub(crate) struct Tls(Arc<RwLock<Identity>>);

/// What is spoken inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Tls {
    pub(crate) fn new(identity: Identity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    /// From the next connection on. Those that are open stay as they are.
    pub(crate) fn replace(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Protocol)> {
        timeout(WITHIN, self.shake_hands(stream)).await?
    }

    async fn shake_hands(
        &self,
        mut stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Protocol)> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first.iter().all(u8::is_ascii_uppercase) {
            stream.write_all(IN_THE_CLEAR).await?;
            return Err(io::Error::other("the client does not speak TLS"));
        }
        let Identity(config) = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        };
        Ok((stream, protocol))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    #[test]
    fn a_certificate_needs_its_own_key() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let make = || generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let CertifiedKey { cert, signing_key } = make();
        let certificate = write("cert.pem", cert.pem());
        let key = write("key.pem", signing_key.serialize_pem());
        let other = write("other.pem", make().signing_key.serialize_pem());
        let read = |certificate: &Path, key: &Path| {
            RawTls { certificate: certificate.to_owned(), key: key.to_owned() }.read()
        };
        assert!(read(&certificate, &key).is_ok());
        let none = dir.path().join("none.pem");
        for (certificate, key, said) in [
            (&certificate, &other, "not the key of"),
            (&key, &key, "no certificate"),
            (&certificate, &certificate, "no private key"),
            (&none, &key, "none.pem"),
            (&certificate, &none, "none.pem"),
        ] {
            let error = read(certificate, key).unwrap_err();
            assert!(Chain(&error).to_string().contains(said), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_ends_or_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        fs::write(&certificate, cert.pem()).unwrap();
        fs::write(&key, signing_key.serialize_pem()).unwrap();
        let tls = Tls::new(RawTls { certificate, key }.read().unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Nothing at all, or the first bytes of a record and no more.
        for said in [&b""[..], &[0x16, 3, 1]] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.write_all(said).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let error = tls.accept(stream).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            drop(client);
        }
    }

    #[test]
    fn what_is_said_in_the_clear_has_its_length() {
        let text = std::str::from_utf8(IN_THE_CLEAR).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
