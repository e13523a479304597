//! Whom we believe to be whom they say.

use std::{collections::HashMap, io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::sync::OnceCell;

use crate::{Origin, RegistryError, Settings};

type Certificates = Vec<CertificateDer<'static>>;
/// Made when it is needed: to read whom the host trusts takes a while.
type Config = OnceCell<Arc<ClientConfig>>;

/// Authorities: those of the host, those of the operator, and those of single registries.
#[derive(Debug)]
pub(crate) struct Trust {
    extra: Certificates,
    /// By host and port: authorities, and what comes of them.
    own: HashMap<(String, u16), (Certificates, Config)>,
    everybody: Config,
}

impl Trust {
    pub(crate) fn new(settings: &Settings) -> Result<Self, RegistryError> {
        let extra = match &settings.extra_ca {
            Some(pem) => certificates(pem, "extra-ca")?,
            None => Vec::new(),
        };
        let mut own = HashMap::new();
        for (origin, pem) in settings.authorities() {
            let read = certificates(pem, &format!("the ca of {origin}"))?;
            own.insert((origin.host().to_owned(), origin.port()), (read, Config::new()));
        }
        Ok(Self { extra, own, everybody: Config::new() })
    }

    pub(crate) async fn config(&self, origin: &Origin) -> io::Result<Arc<ClientConfig>> {
        match self.own.get(&(origin.host().to_owned(), origin.port())) {
            Some((own, config)) => config.get_or_try_init(|| self.load(own.clone())).await.cloned(),
            None => self.everybody.get_or_try_init(|| self.load(Vec::new())).await.cloned(),
        }
    }

    async fn load(&self, own: Certificates) -> io::Result<Arc<ClientConfig>> {
        let further = self.extra.iter().cloned().chain(own).collect();
        tokio::task::spawn_blocking(|| read(further)).await.map_err(io::Error::other)?
    }
}

fn read(further: Certificates) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // Those of the host that cannot be read are not trusted, and the others are.
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "cannot read whom the host trusts");
    }
    roots.add_parsable_certificates(native.certs);
    roots.add_parsable_certificates(further);
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // Blobs side by side are faster on connections of their own.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &str, what: &str) -> Result<Certificates, RegistryError> {
    let wrong = |problem: &str| RegistryError::Settings(format!("{what} is not usable: {problem}"));
    let mut usable = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| wrong(&error.to_string()))?;
        usable.add(certificate.clone()).map_err(|error| wrong(&error.to_string()))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(wrong("there is no certificate in it, as PEM"));
    }
    Ok(certificates)
}
