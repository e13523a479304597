//! The reader of uploads: no bytes break it, it gives the same in whatever pieces they come, and
//! what a client packs is what comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use osb_execd::fuzz::form;

const BOUNDARY: &str = "opensandbox_b";

/// A form as the published clients write it.
fn packed(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for (number, content) in parts.iter().enumerate() {
        let name = if number % 2 == 0 { "metadata" } else { "file" };
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, data)) = data.split_first() else { return };
    let size = usize::from(size).max(1);

    let whole = form([data], BOUNDARY);
    let pieces = form(data.chunks(size), BOUNDARY);
    // Where it breaks off, the words may depend on the pieces; whether it does may not.
    assert_eq!(pieces.as_ref().ok(), whole.as_ref().ok());

    let parts: Vec<&[u8]> = data.split(|&byte| byte == b'|').collect();
    let body = packed(&parts);
    let boundaries = body.windows(BOUNDARY.len()).filter(|w| *w == BOUNDARY.as_bytes()).count();
    if boundaries == parts.len() + 1 {
        let read = form(body.chunks(size), BOUNDARY).expect("a whole form can be read");
        let contents: Vec<&[u8]> = read.iter().map(|(_, content)| content.as_slice()).collect();
        assert_eq!(contents, parts);
        assert!(read.iter().all(|(name, _)| name.is_some()));
    }
});
