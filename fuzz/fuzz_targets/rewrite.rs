//! The replacing of texts in a body: in whatever pieces it comes, the answer is that of the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The same, simply: at every position the longest text, the first of those that are equal.
fn reference(pairs: &[(&[u8], &[u8])], text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((&first, after)) = rest.split_first() {
        let fitting = pairs.iter().filter(|(find, _)| !find.is_empty() && rest.starts_with(find));
        // The last of several that are longest would be taken.
        match fitting.rev().max_by_key(|(find, _)| find.len()) {
            Some((find, put)) => {
                out.extend_from_slice(put);
                rest = &rest[find.len()..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

fuzz_target!(|data: &[u8]| {
    // Lines of texts, each with what to put in its place behind a `=`, then a blank one, then the
    // body. The first byte says how large the pieces are.
    let Some((&size, data)) = data.split_first() else { return };
    let (mut pairs, mut rest) = (Vec::new(), data);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() || pairs.len() == 16 {
            break;
        }
        let split = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        pairs.push((&line[..split], line.get(split + 1..).unwrap_or_default()));
    }
    let pieces = rest.chunks(usize::from(size).max(1));
    assert_eq!(osb_egress::vault::rewrite(&pairs, pieces), Ok(reference(&pairs, rest)));
});
