//! Questions for names: the name is the one that is asked for, and the answer is to the question.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_egress::fuzz::{is_reply, question};

/// The labels of the first question, read simply.
fn asked(data: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*data.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(str::from_utf8(data.get(at..at + length)?).ok()?.to_ascii_lowercase());
        at += length;
    }
}

fuzz_target!(|data: &[u8]| {
    // Whatever comes back is somebody's who is hostile, too.
    is_reply(data, data);
    let Some((name, answer)) = question(data) else { return };
    assert!((12..=1232).contains(&answer.len()));
    assert_eq!(answer[..2], data[..2], "the answer to another question");
    assert!(answer[2] & 0x80 != 0, "an answer that is a question");
    let Some(name) = name else { return };
    let (expected, end) = asked(data).expect("a name that can be read");
    assert_eq!(name, expected);
    let asked = &data[12..end + 4];
    assert_eq!(&answer[12..12 + asked.len()], asked);
    assert!(is_reply(&answer, data) || answer[2] & 2 != 0, "nobody would take the answer");
});
