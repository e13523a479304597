use super::state::{PARTS, State};
use crate::driven::Tongue;

/// The most that a shell's state may take. Of a larger one nothing is kept.
pub(super) const LIMIT: usize = 4 << 20;

/// Longer than any report.
const LONGEST: usize = 64;

/// What a shell says on its socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It has evaluated a text and is about to tell its state.
    Done { number: u32, status: i32 },
    /// It has ended, during or after the text with this number. Another takes its place.
    Ended { number: u32, status: i32 },
    /// All of the state is here: that after the last [`Report::Done`] or [`Report::Ended`]. It is
    /// nothing if it was too large or garbled.
    State(Option<State>),
}

/// Cuts what arrives into reports. Whatever arrives, it holds no more than [`LIMIT`] and a frame.
#[derive(Debug, Default)]
pub(super) struct Reports {
    frame: Vec<u8>,
    /// The frame has become too long, so its end is no frame either.
    lost: bool,
    /// The state so far, while it is told.
    parts: Option<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    content: Vec<Vec<u8>>,
    size: usize,
}

impl Tongue for Reports {
    type Said = Report;

    fn feed(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Report)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == 0) {
            let (frame, rest) = bytes.split_at(end);
            self.extend(frame);
            let frame = std::mem::take(&mut self.frame);
            self.lost = false;
            if let Some(report) = self.frame(frame) {
                emit(report);
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes);
    }
}

impl Reports {
    fn extend(&mut self, bytes: &[u8]) {
        let fits = match &mut self.parts {
            None => self.frame.len() + bytes.len() <= LONGEST,
            Some(parts) => {
                parts.size = parts.size.saturating_add(bytes.len());
                parts.size <= LIMIT
            }
        };
        if fits && !self.lost {
            self.frame.extend_from_slice(bytes);
        } else {
            self.lost = true;
            self.frame = Vec::new();
        }
    }

    fn frame(&mut self, frame: Vec<u8>) -> Option<Report> {
        let Some(parts) = &mut self.parts else {
            let report = headline(&frame)?;
            self.parts = Some(Parts::default());
            return Some(report);
        };
        if parts.content.len() < PARTS {
            parts.content.push(frame);
            return None;
        }
        let Parts { content, size } = self.parts.take()?;
        let whole = frame == b"E" && size <= LIMIT;
        Some(Report::State(whole.then(|| State::new(content)).flatten()))
    }
}

fn headline(frame: &[u8]) -> Option<Report> {
    let text = std::str::from_utf8(frame).ok()?;
    let (number, status) = text.get(1..)?.split_once(' ')?;
    // Before the first text there is no number.
    let number = if number.is_empty() { 0 } else { number.parse().ok()? };
    let status = status.parse().ok()?;
    match frame.first()? {
        b'S' => Some(Report::Done { number, status }),
        b'X' => Some(Report::Ended { number, status }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn reports<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Report> {
        let (mut reports, mut all) = (Reports::default(), Vec::new());
        for chunk in chunks {
            reports.feed(chunk, |report| all.push(report));
        }
        all
    }

    const STATE: &[u8] = b"declare -- a=\"1\"\n\0\0\0\0\0\0/tmp\n\0umask 0022\n\0E\0";

    #[test]
    fn a_report_is_followed_by_its_state() {
        let mut told = b"S 0\0".to_vec();
        told.extend(STATE);
        told.extend(b"X0000000007 3\0");
        told.extend(STATE);
        let reports = reports([told.as_slice()]);
        assert_eq!(reports.len(), 4);
        assert_eq!(reports[0], Report::Done { number: 0, status: 0 });
        assert!(matches!(reports[1], Report::State(Some(_))));
        assert_eq!(reports[2], Report::Ended { number: 7, status: 3 });
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let noise = vec![b'x'; LIMIT];
        let mut reports = Reports::default();
        let mut all = Vec::new();
        for chunk in [b"S 0\0".as_slice(), &noise, &noise, b"\0\0\0\0\0\0/\n\0umask 0\n\0E\0"] {
            reports.feed(chunk, |report| all.push(report));
            assert!(reports.frame.len() <= LIMIT);
        }
        assert_eq!(all, [Report::Done { number: 0, status: 0 }, Report::State(None)]);
    }

    #[test]
    fn noise_is_no_report() {
        assert_eq!(reports([b"S\0X 1 2\0hello\0S1 x\0\0S-1 0\0".as_slice()]), []);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_reports(
            noise in vec(prop_oneof![Just(0_u8), Just(b'S'), Just(b' '), Just(b'1'), any::<u8>()], 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut told = b"S0000000001 0\0".to_vec();
            told.extend(STATE);
            told.extend(noise);
            let (first, second) = told.split_at(cut.index(told.len()));
            prop_assert_eq!(reports([first, second]), reports([told.as_slice()]));
        }
    }
}
