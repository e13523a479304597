//! How ZMTP 3.0 cuts messages into frames, and what both sides say before the first one.

/// The most that one message may take. Of a longer one only that it came is known.
const LONGEST: usize = 32 << 20;

/// The most parts of one message.
const PARTS: usize = 64;

/// The most that a command may take: none that we know is longer than a line.
const COMMAND: usize = 4 << 10;

const MORE: u8 = 1;
const LONG: u8 = 2;
const IS_COMMAND: u8 = 4;

/// How long a greeting is.
const GREETING: usize = 64;

/// What a socket is, which decides what it says at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Socket {
    /// Sends to the other side, and hears what it answers.
    Dealer,
    /// Hears all that the other side says to everybody.
    Subscriber,
}

/// The first that both sides say.
pub(super) fn greeting() -> Vec<u8> {
    let mut greeting = vec![0; GREETING];
    let start = [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, b'N', b'U', b'L', b'L'];
    greeting.splice(..start.len(), start);
    greeting
}

impl Socket {
    /// What is to be said once the other side has greeted.
    pub(super) fn ready(self) -> Vec<u8> {
        let name: &[u8] = match self {
            Self::Dealer => b"DEALER",
            Self::Subscriber => b"SUB",
        };
        let mut command = b"\x05READY".to_vec();
        property(b"Socket-Type", name, &mut command);
        property(b"Identity", b"", &mut command);
        let mut ready = Vec::new();
        frame(IS_COMMAND, &command, &mut ready);
        ready
    }

    /// What is to be said once the other side is ready as well. Whoever says it before is hung up on.
    pub(super) fn opening(self) -> Vec<u8> {
        let mut opening = Vec::new();
        if self == Self::Subscriber {
            // To all that there is.
            frame(0, b"\x01", &mut opening);
        }
        opening
    }
}

fn property(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(name);
    out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(value);
}

fn frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    if let Ok(length) = u8::try_from(body.len()) {
        out.extend([flags, length]);
    } else {
        out.push(flags | LONG);
        out.extend((body.len() as u64).to_be_bytes());
    }
    out.extend(body);
}

/// Appends a message as its frames.
pub(super) fn message(parts: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    let last = parts.len().saturating_sub(1);
    for (number, part) in parts.iter().enumerate() {
        frame(if number < last { MORE } else { 0 }, part.as_ref(), out);
    }
}

/// What arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The other side has greeted.
    Greeting,
    /// The other side is ready.
    Ready,
    /// A message, part by part.
    Message(Vec<Vec<u8>>),
    /// A message that is too long to be looked at, of so many bytes.
    TooLong(u64),
    /// Something that nobody understands; there is nothing else any more.
    Nonsense,
}

/// Cuts what arrives into messages, of which it holds one at a time.
#[derive(Debug, Default)]
pub(super) struct Frames {
    stage: Stage,
    /// The parts of the message so far.
    parts: Vec<Vec<u8>>,
    /// How much of it has come, whether it was kept or not.
    size: u64,
    is_too_long: bool,
}

#[derive(Debug)]
enum Stage {
    Greeting(Vec<u8>),
    Head(Vec<u8>),
    Body {
        flags: u8,
        left: u64,
        body: Vec<u8>,
    },
    /// Nothing that comes can be understood any more.
    Lost,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Greeting(Vec::new())
    }
}

impl Frames {
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Arrived)) {
        while !bytes.is_empty() {
            match &mut self.stage {
                Stage::Lost => return,
                Stage::Greeting(greeting) => {
                    take(greeting, GREETING, &mut bytes);
                    if greeting.len() == GREETING {
                        let is_known = is_known(greeting);
                        self.stage = if is_known { Stage::Head(Vec::new()) } else { Stage::Lost };
                        emit(if is_known { Arrived::Greeting } else { Arrived::Nonsense });
                    }
                }
                Stage::Head(head) => {
                    take(head, 1, &mut bytes);
                    let flags = head.first().copied().unwrap_or_default();
                    take(head, if flags & LONG == 0 { 2 } else { 9 }, &mut bytes);
                    let left = match **head {
                        [_, length] if flags & LONG == 0 => u64::from(length),
                        [_, ref length @ ..] if length.len() == 8 => {
                            length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
                        }
                        _ => continue,
                    };
                    self.begin(flags, left, &mut emit);
                }
                Stage::Body { flags, left, body } => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, later) = bytes.split_at(length);
                    bytes = later;
                    *left -= length as u64;
                    if !self.is_too_long || *flags & IS_COMMAND != 0 {
                        body.extend_from_slice(now);
                    }
                    if *left == 0 {
                        let (flags, body) = (*flags, std::mem::take(body));
                        self.end(flags, body, &mut emit);
                    }
                }
            }
        }
    }

    fn begin(&mut self, flags: u8, left: u64, emit: &mut impl FnMut(Arrived)) {
        let is_command = flags & IS_COMMAND != 0;
        if flags & !(MORE | LONG | IS_COMMAND) != 0 || is_command && left > COMMAND as u64 {
            self.stage = Stage::Lost;
            return emit(Arrived::Nonsense);
        }
        if !is_command {
            self.size = self.size.saturating_add(left);
            if self.size > LONGEST as u64 || self.parts.len() >= PARTS {
                self.is_too_long = true;
                self.parts = Vec::new();
            }
        }
        // As it comes, not as it is announced: whoever announces much need not send it.
        self.stage = Stage::Body { flags, left, body: Vec::new() };
        if left == 0 {
            self.end(flags, Vec::new(), emit);
        }
    }

    fn end(&mut self, flags: u8, body: Vec<u8>, emit: &mut impl FnMut(Arrived)) {
        self.stage = Stage::Head(Vec::new());
        if flags & IS_COMMAND != 0 {
            // Others, such as the one to show that one lives, need no answer in this version.
            if body.starts_with(b"\x05READY") {
                emit(Arrived::Ready);
            } else if body.starts_with(b"\x05ERROR") {
                self.stage = Stage::Lost;
                emit(Arrived::Nonsense);
            }
            return;
        }
        if !self.is_too_long {
            self.parts.push(body);
        }
        if flags & MORE == 0 {
            let (parts, size) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.size));
            let is_too_long = std::mem::take(&mut self.is_too_long);
            emit(if is_too_long { Arrived::TooLong(size) } else { Arrived::Message(parts) });
        }
    }
}

/// Moves bytes until so many are there.
fn take(taken: &mut Vec<u8>, wanted: usize, bytes: &mut &[u8]) {
    let length = wanted.saturating_sub(taken.len()).min(bytes.len());
    let (now, later) = bytes.split_at(length);
    taken.extend_from_slice(now);
    *bytes = later;
}

/// Whether the other side speaks this version or a later one, without secrets: the connection does
/// not leave the sandbox, and messages are signed.
fn is_known(greeting: &[u8]) -> bool {
    let signature = greeting.first() == Some(&0xff) && greeting.get(9) == Some(&0x7f);
    let version = greeting.get(10).is_some_and(|major| *major >= 3);
    signature && version && greeting.get(12..17) == Some(b"NULL\0")
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// What a kernel says before its first message.
    fn beginning() -> Vec<u8> {
        [greeting(), Socket::Dealer.ready()].concat()
    }

    fn arrived<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Arrived> {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        for chunk in chunks {
            frames.feed(chunk, |it| all.push(it));
        }
        all
    }

    #[test]
    fn the_opening_is_what_the_protocol_says() {
        assert_eq!(&greeting()[..12], b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0");
        assert_eq!(&greeting()[12..33], b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(greeting().len(), 64);
        let ready = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03SUB\x08Identity\0\0\0\0";
        assert_eq!(Socket::Subscriber.ready(), ready);
        assert_eq!(Socket::Subscriber.opening(), b"\0\x01\x01");
        assert!(Socket::Dealer.opening().is_empty());
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let parts = [b"".to_vec(), b"<IDS|MSG>".to_vec(), vec![7; 255], vec![8; 256]];
        let mut bytes = beginning();
        message(&parts, &mut bytes);
        assert_eq!(
            arrived([&*bytes]),
            [Arrived::Greeting, Arrived::Ready, Arrived::Message(parts.to_vec())]
        );
    }

    #[test]
    fn of_what_is_too_long_only_the_length_is_known() {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        frames.feed(&beginning(), drop);
        let mut long = Vec::new();
        message(&[vec![0; 1 << 20], vec![1; LONGEST], b"end".to_vec()], &mut long);
        for chunk in long.chunks(1 << 16) {
            frames.feed(chunk, |it| all.push(it));
            assert!(frames.parts.iter().map(Vec::len).sum::<usize>() <= LONGEST);
        }
        let mut next = Vec::new();
        message(&[b"next"], &mut next);
        frames.feed(&next, |it| all.push(it));
        let length = (1 << 20) + LONGEST as u64 + 3;
        assert_eq!(all, [Arrived::TooLong(length), Arrived::Message(vec![b"next".to_vec()])]);
    }

    #[test]
    fn what_is_announced_takes_no_memory_before_it_comes() {
        let mut frames = Frames::default();
        frames.feed(&beginning(), drop);
        frames.feed(b"\x02\xff\xff\xff\xff\xff\xff\xff\xff", |it| panic!("{it:?}"));
        frames.feed(&[0; 100], |it| panic!("{it:?}"));
        let Stage::Body { body, .. } = &frames.stage else { panic!("{frames:?}") };
        assert_eq!(body.capacity(), 0);
    }

    #[test]
    fn many_small_parts_are_too_long() {
        let mut bytes = beginning();
        message(&vec![b""; PARTS + 1], &mut bytes);
        assert_eq!(arrived([&*bytes]), [Arrived::Greeting, Arrived::Ready, Arrived::TooLong(0)]);
    }

    #[test]
    fn whoever_speaks_otherwise_is_not_listened_to() {
        for noise in [
            b"HTTP/1.1 400 Bad Request\r\n".repeat(5),
            [&beginning()[..], b"\x08\x00"].concat(),
            [&beginning()[..], b"\x04\x07\x05ERROR\x00"].concat(),
            [&beginning()[..], b"\x06\0\0\0\0\0\xff\xff\xff"].concat(),
        ] {
            assert_eq!(arrived([&*noise, b"\0\x01x"]).last(), Some(&Arrived::Nonsense));
        }
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same(
            parts in vec(vec(any::<u8>(), 0..300), 1..6),
            noise in vec(any::<u8>(), 0..50),
            size in 1..200_usize,
        ) {
            let mut bytes = beginning();
            message(&parts, &mut bytes);
            bytes.extend(noise);
            let whole = arrived([&*bytes]);
            prop_assert_eq!(&whole[2], &Arrived::Message(parts));
            prop_assert_eq!(arrived(bytes.chunks(size)), whole);
        }
    }
}
