//! Authorities that the operator vouches for, beside those that the host trusts: companies sign what
//! is inside their network themselves.

use std::{path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use osb_core::Chain;
use osb_sys::fs;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::OperatorError;

/// Every sandbox is told of them when it starts.
const LARGEST: usize = 64 << 10;

/// Authorities that the server and its sandboxes trust. Copies share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraCa {
    certificates: Arc<[CertificateDer<'static>]>,
    pem: Arc<str>,
}

impl ExtraCa {
    /// Reads certificates of authorities, as PEM.
    pub fn read(path: &Path) -> Result<Self, OperatorError> {
        let wrong = |problem| OperatorError::ExtraCa { path: path.to_owned(), problem };
        let text = fs::read_small(path).map_err(|error| wrong(Chain(&error).to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut certificates = Vec::new();
        let mut usable = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            usable.add(certificate.clone()).map_err(|error| error.to_string())?;
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            return Err("there is no certificate in it, as PEM".to_owned());
        }
        // Only what was understood: somebody may have left a key beside it.
        let pem: String = certificates.iter().map(encode).collect();
        if pem.len() > LARGEST {
            return Err(format!(
                "the certificates in it are longer than {LARGEST} bytes: name a file with your own \
                 authorities only, since those that everybody knows are trusted already"
            ));
        }
        Ok(Self { certificates: certificates.into(), pem: pem.into() })
    }

    /// The certificates and nothing else.
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

/// Whom the server trusts: whom the host does, and whom the operator names.
pub(crate) fn roots(extra: Option<&ExtraCa>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Those of the host that cannot be read are not trusted, and the others are.
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "cannot read whom the host trusts");
    }
    roots.add_parsable_certificates(native.certs);
    let extra = extra.into_iter().flat_map(|extra| extra.certificates.iter().cloned());
    roots.add_parsable_certificates(extra);
    roots
}

fn encode(certificate: &CertificateDer<'_>) -> String {
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
        pem.extend(line.iter().map(|&letter| char::from(letter)));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn certificates_are_taken_and_nothing_else() {
        let ((one, key), (other, _)) = (authority(), authority());
        let text = format!("Corporate root\n{one}{key}{other}");
        let extra = ExtraCa::parse(text.as_bytes()).unwrap();
        assert_eq!(extra.certificates.len(), 2);
        assert!(!extra.pem().contains("KEY") && !extra.pem().contains("Corporate"));
        assert_eq!(ExtraCa::parse(extra.pem().as_bytes()), Ok(extra));
    }

    #[test]
    fn what_is_no_authority_is_refused_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("corp.pem");
        let (one, key) = authority();
        let broken = one.replace('M', "A");
        let many = authority().0.repeat(200);
        for text in [None, Some(""), Some(&key), Some(&broken), Some(&many)] {
            if let Some(text) = text {
                fs::write(&path, text).unwrap();
            }
            let error = ExtraCa::read(&path).unwrap_err().to_string();
            assert!(error.contains("egress.extra-ca") && error.contains("corp.pem"), "{error}");
            assert_eq!(error.contains("your own authorities only"), text == Some(&many), "{error}");
        }
    }
}
