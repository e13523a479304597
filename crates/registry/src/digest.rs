use std::{fmt, io, str::FromStr, sync::Arc};

use aws_lc_rs::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What content hashes to, and how: `sha256:` or `sha512:`, then lower-case hexadecimal digits.
///
/// Content with a digest has a name that nobody can give to anything else. Copies are cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(Arc<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    Sha256,
    Sha512,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is sha256: with 64, or sha512: with 128 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Algorithm {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// How many hexadecimal digits there are.
    const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    fn implementation(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

impl Digest {
    /// That of `content`, by SHA-256, as everybody does.
    pub fn of(content: &[u8]) -> Self {
        Self::by(Algorithm::Sha256, content)
    }

    pub fn by(algorithm: Algorithm, content: &[u8]) -> Self {
        Self::new(algorithm, digest::digest(algorithm.implementation(), content).as_ref())
    }

    fn new(algorithm: Algorithm, hash: &[u8]) -> Self {
        let mut text = String::with_capacity(algorithm.as_str().len() + 1 + algorithm.digits());
        text.push_str(algorithm.as_str());
        text.push(':');
        for byte in hash {
            for nibble in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(nibble.into(), 16));
            }
        }
        Self(text.into())
    }

    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let known = [Algorithm::Sha256, Algorithm::Sha512].into_iter().any(|algorithm| {
            let digits = text.strip_prefix(algorithm.as_str()).and_then(|it| it.strip_prefix(':'));
            digits.is_some_and(|digits| digits.len() == algorithm.digits() && is_hex(digits))
        });
        if known { Ok(Self(text.into())) } else { Err(InvalidDigest) }
    }

    pub fn algorithm(&self) -> Algorithm {
        if self.0.starts_with("sha512") { Algorithm::Sha512 } else { Algorithm::Sha256 }
    }

    /// The digits alone.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        Self::parse(text)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Computes a digest of what is written to it, piece by piece.
#[derive(Clone)]
pub struct Verifier {
    algorithm: Algorithm,
    context: digest::Context,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Verifier {
    pub fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, context: digest::Context::new(algorithm.implementation()) }
    }

    pub fn update(&mut self, content: &[u8]) {
        self.context.update(content);
    }

    pub fn finish(self) -> Digest {
        Digest::new(self.algorithm, self.context.finish().as_ref())
    }
}

impl io::Write for Verifier {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.update(content);
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_digest_of_nothing_is_the_one_that_everybody_knows() {
        let empty = Digest::of(b"");
        assert_eq!(empty.as_str(), EMPTY);
        assert_eq!(format!("{}:{}", empty.algorithm().as_str(), empty.hex()), EMPTY);
        let long = Digest::by(Algorithm::Sha512, b"");
        assert!(long.as_str().starts_with("sha512:cf83e1357eefb8bd"), "{long}");
        assert_eq!((long.algorithm(), long.hex().len()), (Algorithm::Sha512, 128));
        assert_eq!(Digest::parse(long.as_str()), Ok(long));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let hex = EMPTY.strip_prefix("sha256:").unwrap();
        for text in [
            "",
            "sha256:",
            hex,
            &EMPTY[..EMPTY.len() - 1],
            &format!("{EMPTY}0"),
            &EMPTY.to_uppercase(),
            &format!("sha256:{}", hex.to_uppercase()),
            &format!("sha512:{hex}"),
            &format!("md5:{hex}"),
            &format!("sha256:../{}", &hex[3..]),
            &format!(" {EMPTY}"),
        ] {
            assert_eq!(Digest::parse(text), Err(InvalidDigest), "{text}");
            assert!(serde_json::from_value::<Digest>(text.into()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn pieces_hash_as_the_whole_does(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
        ) {
            for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
                let mut verifier = Verifier::new(algorithm);
                for piece in &pieces {
                    verifier.write_all(piece).unwrap();
                }
                let digest = verifier.finish();
                prop_assert_eq!(&digest, &Digest::by(algorithm, &pieces.concat()));
                let json = serde_json::to_string(&digest).unwrap();
                prop_assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
            }
        }
    }
}
