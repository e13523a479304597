use std::fmt;

use osb_registry::{Algorithm, Digest, Verifier};

/// What a step is, with all that it depends on: of two steps with one key, one has to be done.
///
/// It is made of content and of what is said, and of nothing that differs from machine to machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey(Digest);

impl CacheKey {
    pub fn as_digest(&self) -> &Digest {
        &self.0
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key that is being made. Whatever is added has its length before it, so that no two lists of
/// things look alike.
#[derive(Debug)]
pub(crate) struct Key(Verifier);

impl Key {
    /// Changed whenever steps do something else than before for the same words.
    const VERSION: &str = "opensandbox build 1";

    pub(crate) fn new(kind: &str) -> Self {
        Self(Verifier::new(Algorithm::Sha256)).with(Self::VERSION).with(kind)
    }

    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(crate) fn with(mut self, part: impl AsRef<[u8]>) -> Self {
        self.add(part);
        self
    }

    pub(crate) fn with_number(self, number: u64) -> Self {
        self.with(number.to_le_bytes())
    }

    pub(crate) fn with_some(self, part: Option<impl AsRef<[u8]>>) -> Self {
        match part {
            Some(part) => self.with("some").with(part),
            None => self.with("none"),
        }
    }

    pub(crate) fn with_all<T: AsRef<[u8]>>(self, parts: impl ExactSizeIterator<Item = T>) -> Self {
        let mut key = self.with_number(parts.len() as u64);
        parts.for_each(|part| key.add(part));
        key
    }

    pub(crate) fn finish(self) -> CacheKey {
        CacheKey(self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_one_part_ends_matters() {
        let key = |parts: &[&str]| Key::new("x").with_all(parts.iter()).finish();
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["", "a"]), key(&["a", ""]));
        assert_ne!(
            Key::new("x").with_some(None::<&str>).finish(),
            Key::new("x").with_some(Some("")).finish()
        );
        assert_eq!(key(&["a"]), key(&["a"]));
    }

    /// Keys outlive this program: caches that others keep are found by them.
    #[test]
    fn keys_are_the_same_everywhere() {
        let key = Key::new("run").with("a").with_number(7).finish();
        let expected = "sha256:86e2ef067bc7850f3b331f8595badaf78d0b3c399663b8f6ab25d4961da4950d";
        assert_eq!(key.to_string(), expected);
    }
}
