//! Addresses that open one port of one sandbox until some moment, to whoever has them.

use std::{fmt, io, path::Path};

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use osb_api::SandboxId;
use osb_sys::fs::PathError;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::{error::ApiError, key};

/// In the data directory: the keys, one on each line. The first one signs, all are good.
const KEY_FILE: &str = "endpoint-key";
const MOST_KEYS: usize = 8;
/// The shortest key: as many characters as 256 bits have in hexadecimal are more than enough.
const SHORTEST_KEY: usize = 32;
/// The last second that can be signed for: it has seven digits to the base 36.
pub(crate) const LAST_EXPIRY: u64 = 36_u64.pow(7) - 1;

/// Signs, and knows its signatures again.
pub(crate) struct Signer {
    signing: SecretString,
    /// Earlier ones, whose signatures are still good.
    earlier: Vec<SecretString>,
}

/// Until when an address is good, and the proof. Shown as `{expires}-{signature}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    expires: u64,
    /// 128 bits: nobody finds one by trying.
    mac: u128,
}

/// Why a signature opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// It was good until then.
    Expired,
    Wrong,
}

impl Signer {
    /// Takes the keys of the data directory, and makes one if there is none.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, PathError> {
        let path = data_dir.join(KEY_FILE);
        let text = key::from_file(&path)?;
        let fit = |key: &str| key.len() >= SHORTEST_KEY;
        let mut keys = text.expose_secret().lines().map(str::trim);
        match keys.next().filter(|key| fit(key)) {
            Some(first) if keys.clone().all(fit) && keys.clone().count() < MOST_KEYS => {
                Ok(Self { signing: first.into(), earlier: keys.map(SecretString::from).collect() })
            }
            _ => {
                let rule = format!(
                    "it must have 1 to {MOST_KEYS} lines of {SHORTEST_KEY} characters or more"
                );
                Err(PathError::new("use the keys in", path, io::Error::other(rule)))
            }
        }
    }

    pub(crate) fn sign(&self, id: SandboxId, port: u16, expires: u64) -> Signature {
        Signature { expires, mac: mac(&self.signing, id, port, expires) }
    }

    /// Whether the signature opens this port now.
    pub(crate) fn check(
        &self,
        id: SandboxId,
        port: u16,
        signature: Signature,
        now: Timestamp,
    ) -> Result<(), Unsigned> {
        let presented = signature.mac.to_be_bytes();
        let is_ours = std::iter::once(&self.signing).chain(&self.earlier).any(|key| {
            let ours = mac(key, id, port, signature.expires).to_be_bytes();
            ours.ct_eq(&presented).into()
        });
        let expires = i64::try_from(signature.expires).unwrap_or(i64::MAX);
        match is_ours {
            false => Err(Unsigned::Wrong),
            true if now.as_second() > expires => Err(Unsigned::Expired),
            true => Ok(()),
        }
    }
}

fn mac(key: &SecretString, id: SandboxId, port: u16, expires: u64) -> u128 {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose_secret().as_bytes())
        .expect("invariant: a key may have any length");
    mac.update(format!("v1\nlong\n{id}\n{port}\n{}\n", base36(expires.into())).as_bytes());
    let digest = mac.finalize().into_bytes();
    digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl Signature {
    pub(super) fn parse(expires: &str, mac: &str) -> Result<Self, ApiError> {
        let expires = number(expires).and_then(|expires| u64::try_from(expires).ok());
        let both = expires.filter(|expires| *expires <= LAST_EXPIRY).zip(number(mac));
        let (expires, mac) = both.ok_or_else(ApiError::signature_invalid)?;
        Ok(Self { expires, mac })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", base36(self.expires.into()), base36(self.mac))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("earlier", &self.earlier.len()).finish_non_exhaustive()
    }
}

/// The number to the base 36 in lower case, which is all that a host name tells apart.
pub(super) fn base36(mut number: u128) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(number % 36).unwrap_or_default();
        digits.extend(char::from_digit(digit, 36));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// The number that was written like that.
pub(super) fn number(text: &str) -> Option<u128> {
    let is_written = text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    // One number has one spelling.
    let is_short = text == "0" || !text.starts_with('0');
    if !is_written || !is_short { None } else { u128::from_str_radix(text, 36).ok() }
}

#[cfg(test)]
mod tests {
    use osb_sys::fs;

    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        assert_eq!(base36(2_000_000_000), "x2qxvk");
        assert_eq!(base36(1_893_456_000), "vbbc00");
        assert_eq!(base36(u128::MAX).len(), 25);
        for value in [0, 1, 35, 36, u128::MAX] {
            assert_eq!(number(&base36(value)), Some(value));
        }
        let too_large = format!("{}0", base36(u128::MAX));
        for text in ["", "00", "01", "A", "+1", "-1", " 1", "ü", too_large.as_str()] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_signature_opens_one_port_of_one_sandbox_until_its_moment() {
        let dir = tempfile::tempdir().unwrap();
        let signer = Signer::open(dir.path()).unwrap();
        let (id, port, at) = (SandboxId::random(), 8080, 2_000_000_000_i64);
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        let signature = signer.sign(id, port, at.unsigned_abs());
        assert_eq!(signer.check(id, port, signature, second(at)), Ok(()));
        let late = signer.check(id, port, signature, second(at + 1));
        assert_eq!(late, Err(Unsigned::Expired));

        let wrong = Err(Unsigned::Wrong);
        assert_eq!(signer.check(SandboxId::random(), port, signature, second(0)), wrong);
        assert_eq!(signer.check(id, port + 1, signature, second(0)), wrong);
        for other in [
            Signature { expires: signature.expires + 1, ..signature },
            Signature { mac: signature.mac ^ 1, ..signature },
            Signature { mac: signature.mac / 36, ..signature },
            Signature { mac: 0, ..signature },
        ] {
            assert_eq!(signer.check(id, port, other, second(0)), wrong, "{other}");
        }
    }

    #[test]
    fn keys_are_kept_and_change_without_a_break() {
        let dir = tempfile::tempdir().unwrap();
        let (id, now) = (SandboxId::random(), Timestamp::UNIX_EPOCH);
        let first = Signer::open(dir.path()).unwrap().sign(id, 80, 1);
        let again = Signer::open(dir.path()).unwrap();
        assert_eq!(again.sign(id, 80, 1), first);

        let path = dir.path().join(KEY_FILE);
        let old = fs::read_to_string(&path).unwrap();
        let new = "a-new-key-that-is-as-long-as-it-must-be";
        fs::write(&path, format!("{new}\n{old}")).unwrap();
        let both = Signer::open(dir.path()).unwrap();
        assert_ne!(both.sign(id, 80, 1), first);
        assert_eq!(both.check(id, 80, first, now), Ok(()));
        fs::write(&path, new).unwrap();
        let one = Signer::open(dir.path()).unwrap();
        assert_eq!(one.check(id, 80, first, now), Err(Unsigned::Wrong));

        for bad in ["", "short", &format!("{new}\n\n{new}"), &format!("{new}\n").repeat(9)] {
            fs::write(&path, bad).unwrap();
            assert!(Signer::open(dir.path()).is_err(), "{bad:?} was accepted");
        }
    }
}
