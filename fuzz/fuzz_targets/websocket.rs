//! The frames of terminals: no bytes break the reader, it gives the same in whatever pieces they
//! come, and what a client packs is what comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_execd::fuzz::frames;

/// A frame as clients write it: masked, and with the shortest form of its length.
fn packed(opcode: u8, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    assert_eq!(frames(bytes.chunks(size)), frames([bytes]));

    let Some((&mask, payload)) = bytes.split_first_chunk::<4>() else { return };
    for opcode in [0, 1, 2] {
        let frame = packed(opcode, mask, payload);
        let expected = (vec![(true, opcode, payload.to_vec())], None);
        assert_eq!(frames(frame.chunks(size)), expected);
    }
});
