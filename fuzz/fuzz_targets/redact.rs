//! Taking secrets out of a body: in whatever pieces it comes, the answer is that of the whole, and a
//! secret that is between other things is not in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_egress::vault::redact;

fuzz_target!(|data: &[u8]| {
    // Lines of secrets, then a blank one, then the body. The first bytes say how large the pieces
    // are, and how much is done at once.
    let [size, letters, rest @ ..] = data else { return };
    let (mut secrets, mut rest) = (Vec::new(), rest);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() || secrets.len() == 16 {
            break;
        }
        secrets.push(line);
    }
    let whole = redact(&secrets, [rest].into_iter(), usize::MAX);
    let pieces = rest.chunks(usize::from(*size).max(1));
    assert_eq!(redact(&secrets, pieces, usize::from(*letters) * 16), whole);
    for secret in secrets {
        assert_eq!(redact(&[secret], [secret].into_iter(), usize::MAX), b"[REDACTED]");
    }
});
