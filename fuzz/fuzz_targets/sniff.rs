//! The first bytes of a connection: what they tell does not change when more of them come, unless
//! the connection is refused already, and a name that they tell is in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_egress::fuzz::{Told, sniff};

fuzz_target!(|data: &[u8]| {
    let whole = sniff(data);
    // A sandbox decides in which pieces it sends.
    for end in [data.len() / 4, data.len() / 2, data.len().saturating_sub(1)] {
        match sniff(&data[..end]) {
            Told::Undecided | Told::Ambiguous => {}
            early => assert_eq!(early, whole, "more bytes, another host"),
        }
    }
    if let Told::Name(name) = whole {
        let lower = data.to_ascii_lowercase();
        assert!(lower.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
});
