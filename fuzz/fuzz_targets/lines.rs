//! The cutting of output into lines: in whatever pieces it comes, the events are those that the
//! whole text has.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The same, simply: one terminator of three kinds, blank lines kept, a last line without end too.
fn reference(output: &[u8]) -> Vec<String> {
    let mut lines = vec![Vec::new()];
    let mut bytes = output.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                lines.push(Vec::new());
            }
            b'\n' => lines.push(Vec::new()),
            byte => lines.last_mut().expect("there is one at least").push(byte),
        }
    }
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
    lines.iter().map(|line| if line.is_empty() { "\n".to_owned() } else { text(line) }).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, output)) = data.split_first() else { return };
    let pieces = output.chunks(usize::from(size).max(1));
    assert_eq!(osb_execd::fuzz::lines(pieces), reference(output));
});
