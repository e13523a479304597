//! What kernels say: no bytes break the reader, it gives the same in whatever pieces they come, and a
//! message comes out as it was packed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_execd::fuzz::{Said, kernel, packed};

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    let said = kernel(bytes.chunks(size));
    assert_eq!(said, kernel([bytes]));
    let nonsense = said.iter().position(|said| *said == Said::Nonsense);
    assert!(nonsense.is_none_or(|at| at + 1 == said.len()), "nothing is heard after nonsense");

    let parts: Vec<&[u8]> = bytes.chunks(size * 8).take(64).collect();
    if parts.is_empty() {
        return;
    }
    let message = packed(&parts);
    let expected = Said::Message(parts.iter().map(|part| part.to_vec()).collect());
    assert_eq!(kernel(message.chunks(size)).last(), Some(&expected));
});
