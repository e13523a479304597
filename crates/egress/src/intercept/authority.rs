//! Who vouches for the hosts whose connections are opened.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use aws_lc_rs::hkdf;
use osb_api::SandboxId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber, date_time_ymd,
};
use rustls::{
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::Name;

/// How long a host's certificate is good for, and when a new one is made.
const GOOD_FOR: Duration = Duration::from_hours(24 * 30);
const MADE_ANEW_AFTER: Duration = Duration::from_hours(24 * 7);
/// Clocks differ.
const BACKDATED: Duration = Duration::from_hours(24);
/// How many hosts' certificates are kept for a sandbox.
const KEPT: usize = 256;
/// How many numbers are tried as a key. Nearly every number is one: that two in a row are not
/// happens to nobody.
const TRIES: u8 = 8;
/// A key of the curve P-256 in PKCS #8: this, and the number itself.
const PKCS8: [u8; 35] = [
    0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x27, 0x30, 0x25, 0x02, 0x01,
    0x01, 0x04, 0x20,
];

/// A secret of the server from which the keys of all authorities follow, so that none has to be
/// kept: a server that was started again has the same ones.
#[derive(Clone)]
pub struct Root(Zeroizing<[u8; 32]>);

impl Root {
    pub const LENGTH: usize = 32;

    pub fn new(secret: [u8; Self::LENGTH]) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// One that nobody has had before.
    pub fn random() -> io::Result<Self> {
        let mut secret = [0; Self::LENGTH];
        fill(&mut secret)?;
        Ok(Self::new(secret))
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root(…)")
    }
}

/// Vouches for hosts, to one sandbox. Its key never leaves the server.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// The one key of all of its hosts.
    hosts: Zeroizing<Vec<u8>>,
    leaves: Mutex<BTreeMap<Name, Leaf>>,
}

struct Leaf {
    certified: Arc<CertifiedKey>,
    made: SystemTime,
}

impl Authority {
    pub(crate) fn new(root: &Root, sandbox: SandboxId) -> io::Result<Self> {
        let key = key(root, sandbox, b"authority")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = called(&format!("OpenSandbox {sandbox}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Whoever checks dates finds them good for as long as any sandbox lives.
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2049, 12, 31));
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.pem();
        let hosts = Zeroizing::new(self::key(root, sandbox, b"hosts")?.serialize_der());
        Ok(Self { issuer: Issuer::new(params, key), certificate, hosts, leaves: Mutex::default() })
    }

    /// What the sandbox has to trust, as PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a host, with its key.
    pub(crate) fn vouch(
        &self,
        name: &Name,
        now: SystemTime,
        provider: &CryptoProvider,
    ) -> io::Result<Arc<CertifiedKey>> {
        let is_fresh =
            |leaf: &&Leaf| now.duration_since(leaf.made).is_ok_and(|age| age < MADE_ANEW_AFTER);
        if let Some(leaf) = self.leaves().get(name).filter(is_fresh) {
            return Ok(Arc::clone(&leaf.certified));
        }
        // Not under the lock: two may make one for the same host, and both are good.
        let certified = Arc::new(self.make(name, now, provider)?);
        let mut leaves = self.leaves();
        if leaves.len() >= KEPT && !leaves.contains_key(name) {
            leaves.pop_first();
        }
        leaves.insert(name.clone(), Leaf { certified: Arc::clone(&certified), made: now });
        Ok(certified)
    }

    fn make(
        &self,
        name: &Name,
        now: SystemTime,
        provider: &CryptoProvider,
    ) -> io::Result<CertifiedKey> {
        let mut params =
            CertificateParams::new(vec![name.to_string()]).map_err(io::Error::other)?;
        // Longer names do not fit there, and nobody looks at it any more.
        params.distinguished_name = called("OpenSandbox");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        // Without a word it would follow from the key, which all hosts share; there are clients that
        // refuse a second certificate with the same number.
        params.serial_number = Some(SerialNumber::from_slice(&serial()?));
        let now = OffsetDateTime::from(now);
        (params.not_before, params.not_after) = (now - BACKDATED, now + GOOD_FOR);
        let der = PrivatePkcs8KeyDer::from(self.hosts.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)
            .map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let key = provider
            .key_provider
            .load_private_key(PrivateKeyDer::from(der.clone_key()))
            .map_err(io::Error::other)?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }

    fn leaves(&self) -> std::sync::MutexGuard<'_, BTreeMap<Name, Leaf>> {
        // Whatever is in there was put there whole.
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let none = |_| io::Error::other("the machine has no randomness");
    aws_lc_rs::rand::fill(bytes).map_err(none)
}

/// A number that no other certificate has. It is positive, as it has to be.
fn serial() -> io::Result<[u8; 16]> {
    let mut serial = [0; 16];
    fill(&mut serial)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// The key that follows from the root for one purpose of one sandbox.
fn key(root: &Root, sandbox: SandboxId, purpose: &[u8]) -> io::Result<KeyPair> {
    let refused = |_| io::Error::other("a key could not be derived");
    let sandbox = sandbox.to_string();
    let derive = hkdf::Salt::new(hkdf::HKDF_SHA256, b"opensandbox egress").extract(&*root.0);
    for attempt in 0..TRIES {
        let info = [sandbox.as_bytes(), purpose, &[attempt]];
        let mut number = Zeroizing::new([0; Root::LENGTH]);
        derive
            .expand(&info, hkdf::HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut *number))
            .map_err(refused)?;
        let der = Zeroizing::new([PKCS8.as_slice(), &*number].concat());
        let der = PrivatePkcs8KeyDer::from(der.as_slice());
        if let Ok(key) = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256) {
            return Ok(key);
        }
    }
    Err(refused(aws_lc_rs::error::Unspecified))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_certificates_have_the_same_number() {
        let authority = Authority::new(&Root::new([7; 32]), SandboxId::random()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let vouch = |name: &str| {
            let name = Name::parse(name).unwrap();
            authority.vouch(&name, SystemTime::UNIX_EPOCH + GOOD_FOR, &provider).unwrap()
        };
        let (one, other) = (vouch("a.test"), vouch("b.test"));
        // The outer sequence, the inner one, the version; then the number with its length.
        let number = |key: &CertifiedKey| {
            let der = key.cert[0].as_ref();
            let at = der.windows(7).position(|it| it == [0xa0, 3, 2, 1, 2, 2, 16]).unwrap() + 7;
            der[at..at + 16].to_vec()
        };
        assert_ne!(number(&one), number(&other));
    }

    #[test]
    fn the_same_root_gives_the_same_authority_and_no_other() {
        let (root, id) = (Root::new([7; 32]), SandboxId::random());
        let spki = |root: &Root, id| key(root, id, b"authority").unwrap().public_key_raw().to_vec();
        assert_eq!(spki(&root, id), spki(&root, id));
        assert_ne!(spki(&root, id), spki(&root, SandboxId::random()));
        assert_ne!(spki(&root, id), spki(&Root::new([8; 32]), id));
    }
}
