use bytes::BytesMut;

use super::frame;

/// Whether a frame ends its message, what kind it is, and what it holds.
pub type Frame = (bool, u8, Vec<u8>);

/// The frames of a client whose bytes come in pieces, and the close code if it breaks the protocol.
pub fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<u16>) {
    let (mut arrived, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        arrived.extend_from_slice(piece);
        loop {
            match frame::decode(&mut arrived) {
                Ok(Some(frame)) => {
                    frames.push((frame.last, frame.opcode as u8, frame.payload.to_vec()));
                }
                Ok(None) => break,
                Err(violation) => return (frames, Some(violation.code())),
            }
        }
    }
    (frames, None)
}
