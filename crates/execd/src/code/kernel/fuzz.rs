use super::frames::{Arrived, Frames, Socket, greeting, message};

/// What a kernel has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Greeting,
    Ready,
    Message(Vec<Vec<u8>>),
    TooLong(u64),
    Nonsense,
}

/// What a kernel says whose bytes come in pieces, after what all of them say first.
pub fn kernel<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Said> {
    let (mut frames, mut said) = (Frames::default(), Vec::new());
    let mut hear = |piece: &[u8]| frames.feed(piece, |arrived| said.push(arrived.into()));
    hear(&[greeting(), Socket::Dealer.ready()].concat());
    pieces.into_iter().for_each(hear);
    said
}

impl From<Arrived> for Said {
    fn from(arrived: Arrived) -> Self {
        match arrived {
            Arrived::Greeting => Self::Greeting,
            Arrived::Ready => Self::Ready,
            Arrived::Message(parts) => Self::Message(parts),
            Arrived::TooLong(bytes) => Self::TooLong(bytes),
            Arrived::Nonsense => Self::Nonsense,
        }
    }
}

/// A message as it goes to a kernel.
pub fn packed(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    message(parts, &mut bytes);
    bytes
}
