use std::collections::VecDeque;

use super::process::Channel;

/// The last bytes that a terminal printed, for clients that come back.
///
/// Every byte has the offset at which it was printed, counted from the first byte ever. Clients
/// that are attached are served from here too, so that nothing can be lost or sent twice between
/// what is replayed and what follows. The store grows as it is used.
#[derive(Debug, Default)]
pub(super) struct History {
    bytes: VecDeque<u8>,
    end: u64,
    /// Where the output of another channel begins, for what an attached client has not got yet.
    turns: VecDeque<(u64, Channel)>,
}

/// The most that is kept.
pub(super) const KEPT: usize = 1 << 20;

impl History {
    /// How many bytes there ever were.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    pub(super) fn append(&mut self, channel: Channel, bytes: &[u8]) {
        let kept = bytes.get(bytes.len().saturating_sub(KEPT)..).unwrap_or_default();
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(KEPT);
        drop(self.bytes.drain(..surplus.min(self.bytes.len())));
        self.bytes.extend(kept);
        if self.turns.back().is_none_or(|(_, last)| *last != channel) {
            self.turns.push_back((self.end, channel));
        }
        self.end += bytes.len() as u64;
    }

    /// All bytes from `since` on that are still there, with the offset of the first.
    pub(super) fn since(&self, since: u64) -> (u64, Vec<u8>) {
        let from = since.clamp(self.start(), self.end);
        (from, self.range(from, self.end))
    }

    /// At most `most` bytes of one channel from `cursor` on.
    pub(super) fn next(&mut self, cursor: u64, most: usize) -> Option<(Channel, Vec<u8>)> {
        self.forget_turns(cursor);
        let from = cursor.max(self.start());
        let channel = self.turns.front().map(|(_, channel)| *channel)?;
        let until = self.turns.get(1).map_or(self.end, |(turn, _)| *turn);
        let until = until.min(from.saturating_add(most as u64));
        (from < until).then(|| (channel, self.range(from, until)))
    }

    /// Forgets which channel the bytes before `cursor` came from. Without a client to be told,
    /// that is all of them.
    pub(super) fn forget_turns(&mut self, cursor: u64) {
        while self.turns.get(1).is_some_and(|(turn, _)| *turn <= cursor) {
            self.turns.pop_front();
        }
    }

    fn range(&self, from: u64, until: u64) -> Vec<u8> {
        let index = |offset: u64| usize::try_from(offset - self.start()).unwrap_or(usize::MAX);
        self.bytes.range(index(from)..index(until)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn channels_take_turns() {
        let mut history = History::default();
        history.append(Channel::Stdout, b"ab");
        history.append(Channel::Stdout, b"c");
        history.append(Channel::Stderr, b"de");
        history.append(Channel::Stdout, b"f");
        assert_eq!(history.next(0, 2), Some((Channel::Stdout, b"ab".to_vec())));
        assert_eq!(history.next(2, 9), Some((Channel::Stdout, b"c".to_vec())));
        assert_eq!(history.next(3, 9), Some((Channel::Stderr, b"de".to_vec())));
        assert_eq!(history.next(5, 9), Some((Channel::Stdout, b"f".to_vec())));
        assert_eq!(history.next(6, 9), None);
        assert_eq!(history.turns.len(), 1);
    }

    #[test]
    fn a_store_that_never_held_anything_answers_with_nothing() {
        let mut history = History::default();
        assert_eq!(history.since(7), (0, Vec::new()));
        assert_eq!(history.next(0, 9), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_is_kept_is_the_end_of_what_was_printed(
            lengths in proptest::collection::vec(0..(KEPT * 3 / 2), 1..6),
            since in 0..(KEPT as u64 * 4),
        ) {
            let mut history = History::default();
            let mut printed: Vec<u8> = Vec::new();
            for length in lengths {
                let from = printed.len();
                printed.extend((from..from + length).map(|at| u8::try_from(at % 251).unwrap()));
                history.append(Channel::Stdout, &printed[from..]);
            }
            let (offset, bytes) = history.since(since);
            let oldest = printed.len().saturating_sub(KEPT) as u64;
            prop_assert_eq!(offset, since.clamp(oldest, printed.len() as u64));
            prop_assert!(bytes == printed[usize::try_from(offset).unwrap()..]);
            prop_assert!(history.bytes.capacity() <= KEPT * 2);
        }
    }
}
