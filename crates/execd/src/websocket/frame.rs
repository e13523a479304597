use bytes::{Buf, BytesMut};

/// The most that a message may hold.
pub(crate) const MESSAGE_LIMIT: usize = 1 << 20;

const LAST: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// The most that a control frame may hold.
const CONTROL_LIMIT: usize = 125;

/// A piece of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Whether the message ends here.
    pub(super) last: bool,
    pub(super) opcode: Opcode,
    pub(super) payload: BytesMut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        let all =
            [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == bits)
    }

    fn is_control(self) -> bool {
        self as u8 >= Self::Close as u8
    }
}

/// How a client can break the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    Protocol,
    /// Text that is not UTF-8.
    NotText,
    /// More than [`MESSAGE_LIMIT`].
    TooLong,
}

impl Violation {
    /// The close code that stands for it.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Protocol => 1002,
            Self::NotText => 1007,
            Self::TooLong => 1009,
        }
    }
}

/// Takes the first frame out of the bytes that have arrived, once it is whole.
pub(super) fn decode(arrived: &mut BytesMut) -> Result<Option<Frame>, Violation> {
    let Some((&[first, second], rest)) = arrived.split_first_chunk::<2>() else { return Ok(None) };
    let opcode = Opcode::from_bits(first & 0x0f).ok_or(Violation::Protocol)?;
    let last = first & LAST != 0;
    // A client that does not mask could make a cache on the way take its frames for HTTP.
    if first & RESERVED != 0 || second & MASKED == 0 {
        return Err(Violation::Protocol);
    }
    let (length, length_bytes) = match second & !MASKED {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
            None => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (u64::from_be_bytes(*length), 8),
            None => return Ok(None),
        },
        short => (u64::from(short), 0),
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_LIMIT);
    let length = length.ok_or(Violation::TooLong)?;
    if opcode.is_control() && (!last || length > CONTROL_LIMIT) {
        return Err(Violation::Protocol);
    }
    let Some(&mask) = rest.get(length_bytes..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Ok(None);
    };
    let head = 2 + length_bytes + 4;
    if arrived.len() < head + length {
        return Ok(None);
    }
    arrived.advance(head);
    let mut payload = arrived.split_to(length);
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok(Some(Frame { last, opcode, payload }))
}

/// A whole message in one frame.
pub(super) fn encode(opcode: Opcode, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(length + 10);
    frame.push(LAST | opcode as u8);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame
}

/// The code in the payload of a close frame; an empty payload stands for a normal end.
pub(super) fn close_code(payload: &[u8]) -> Result<u16, Violation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() {
            Ok(super::close::NORMAL)
        } else {
            Err(Violation::Protocol)
        };
    };
    let code = u16::from_be_bytes(*code);
    let meant_for_the_wire = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if !meant_for_the_wire {
        return Err(Violation::Protocol);
    }
    std::str::from_utf8(reason).map_err(|_| Violation::NotText)?;
    Ok(code)
}
