//! Takes secrets out of a text that comes in pieces, a part of the work at a time.

use std::{borrow::Cow, sync::Arc, task::Poll};

use bytes::{Bytes, BytesMut};

use super::spellings::{Seen, Spellings, Work};

/// What is put in the place of a secret.
pub(super) const REDACTED: &[u8] = b"[REDACTED]";

/// A text on its way. What is passed on of a piece is passed on at once, however long it takes.
pub(super) struct Redaction {
    secrets: Arc<Spellings>,
    /// What was held back, and the last piece.
    text: BytesMut,
    /// All that begins before can be decided.
    limit: usize,
    /// So far it was gone through, and what of it is to be passed on is in `out`.
    seen: usize,
    out: Out,
}

/// A text without its secrets.
#[derive(Default)]
struct Out {
    clean: Option<Vec<u8>>,
    /// What of the text is in it, or instead of what there is something in it.
    copied: usize,
}

impl Redaction {
    pub(super) fn new(secrets: Arc<Spellings>) -> Self {
        Self { secrets, text: BytesMut::new(), limit: 0, seen: 0, out: Out::default() }
    }

    /// Takes the next piece, once the last was passed on.
    pub(super) fn take(&mut self, piece: &[u8]) {
        let held = self.text.len();
        if self.text.capacity() - held < piece.len() {
            // So that what is held back is not moved for every small piece.
            self.text.reserve(piece.len().max(held));
        }
        self.text.extend_from_slice(piece);
        self.limit = self.secrets.blind(&self.text, held);
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) {
        self.limit = self.text.len();
    }

    /// Goes on, and gives what can be passed on when all was gone through.
    pub(super) fn resume(&mut self, work: &mut Work) -> Poll<Bytes> {
        loop {
            match self.secrets.next(&self.text, self.seen..self.limit, work) {
                Seen::Secret(found) => {
                    self.seen = found.end;
                    self.out.replace(&self.text, found);
                }
                Seen::Tired(at) => {
                    self.seen = at;
                    return Poll::Pending;
                }
                Seen::Nothing => break,
            }
        }
        let out = std::mem::take(&mut self.out);
        let decided = self.text.split_to(self.limit.max(out.copied));
        (self.limit, self.seen) = (0, 0);
        Poll::Ready(match out.whole(&decided) {
            Cow::Borrowed(_) => decided.freeze(),
            Cow::Owned(clean) => clean.into(),
        })
    }
}

/// Takes the secrets out of a whole text, if that is not too much work.
pub(super) fn redacted<'t>(
    secrets: &Spellings,
    text: &'t [u8],
    work: &mut Work,
) -> Option<Cow<'t, [u8]>> {
    let (mut out, mut seen) = (Out::default(), 0);
    loop {
        match secrets.next(text, seen..text.len(), work) {
            Seen::Secret(found) => {
                seen = found.end;
                out.replace(text, found);
            }
            Seen::Tired(_) => return None,
            Seen::Nothing => return Some(out.whole(text)),
        }
    }
}

impl Out {
    fn replace(&mut self, text: &[u8], found: std::ops::Range<usize>) {
        let clean = self.clean.get_or_insert_with(|| Vec::with_capacity(text.len()));
        clean.extend_from_slice(text.get(self.copied..found.start).unwrap_or_default());
        clean.extend_from_slice(REDACTED);
        self.copied = found.end;
    }

    fn whole(self, text: &[u8]) -> Cow<'_, [u8]> {
        let Some(mut clean) = self.clean else { return Cow::Borrowed(text) };
        clean.extend_from_slice(text.get(self.copied..).unwrap_or_default());
        Cow::Owned(clean)
    }
}

/// Takes secrets out of a text that comes in pieces, with so much work at a time, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn redact<'a>(
    secrets: &[&[u8]],
    pieces: impl Iterator<Item = &'a [u8]>,
    letters: usize,
) -> Vec<u8> {
    let mut redaction = Redaction::new(Arc::new(Spellings::new(secrets.iter().copied())));
    let mut out = Vec::new();
    for piece in pieces.map(Some).chain([None]) {
        match piece {
            Some(piece) => redaction.take(piece),
            None => redaction.end(),
        }
        loop {
            if let Poll::Ready(passed) = redaction.resume(&mut Work::new(letters)) {
                out.extend_from_slice(&passed);
                break;
            }
        }
    }
    out
}
