//! Event framing: any text is one frame, no client can cut it in two, and it is read back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_api::execd::{Event, Failure};

/// Everything at which some client ends a line.
const LINE_BREAKS: [char; 10] =
    ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];

fuzz_target!(|text: &str| {
    let failure =
        Failure { ename: text.into(), evalue: text.into(), traceback: vec![text.into(); 2] };
    for event in [Event::stdout(text, 1), Event::init(text, -1), Event::error(failure, i64::MAX)] {
        let mut frame = Vec::new();
        event.frame(&mut frame);
        let frame = String::from_utf8(frame).expect("a frame is text");
        let json = frame.strip_suffix("\n\n").expect("a frame ends with an empty line");
        assert!(!json.contains(LINE_BREAKS), "{json:?}");
        assert_eq!(serde_json::from_str::<Event>(json).expect("a frame is JSON"), event);
    }
});
