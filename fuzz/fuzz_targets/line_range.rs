//! Reading a file by lines: in whatever pieces it comes, the lines are those of the whole text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fn reference(text: &[u8], offset: usize, limit: Option<usize>) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = text
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| match line.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => line,
        })
        .collect();
    lines.drain(..(offset - 1).min(lines.len()));
    lines.truncate(limit.unwrap_or(usize::MAX));
    lines.join(&b'\n')
}

fuzz_target!(|data: &[u8]| {
    let [size, offset, limit, text @ ..] = data else { return };
    let pieces = text.chunks(usize::from(*size).max(1));
    let offset = u64::from(*offset).max(1);
    let limit = (*limit > 0).then_some(u64::from(*limit));
    let expected = reference(text, offset as usize, limit.map(|limit| limit as usize));
    assert_eq!(osb_execd::fuzz::line_range(pieces, offset, limit), expected);
});
