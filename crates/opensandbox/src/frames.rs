use std::{collections::VecDeque, mem};

/// Cuts a byte stream into the JSON texts of its events.
///
/// Two spellings are in use and both are read: `data: {…}` lines closed by a blank line, as
/// server-sent events have them, and bare `{…}` lines. How the bytes were cut into chunks on the
/// way makes no difference.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// The `data:` lines of the event that is not complete yet.
    data: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
    limit: usize,
}

/// An event larger than anybody should send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub(crate) struct FrameTooLarge {
    limit: usize,
}

impl Frames {
    pub(crate) fn new(limit: usize) -> Self {
        Self { line: Vec::new(), data: Vec::new(), ready: VecDeque::new(), limit }
    }

    pub(crate) fn push(&mut self, mut chunk: &[u8]) -> Result<(), FrameTooLarge> {
        while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            let (head, tail) = chunk.split_at(end);
            self.extend_line(head)?;
            self.end_line()?;
            chunk = tail.strip_prefix(b"\n").unwrap_or(tail);
        }
        self.extend_line(chunk)
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// The stream has ended: what was still open is complete now.
    pub(crate) fn finish(&mut self) -> Result<(), FrameTooLarge> {
        self.end_line()?;
        self.end_event();
        Ok(())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), FrameTooLarge> {
        self.line.extend_from_slice(bytes);
        self.check_size()
    }

    fn end_line(&mut self) -> Result<(), FrameTooLarge> {
        let line = mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            self.end_event();
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        } else if line.starts_with(b"{") {
            self.ready.push_back(line.to_vec());
        }
        // Anything else is a comment or a field (`id:`, `event:`, `retry:`) that carries no event.
        self.check_size()
    }

    fn end_event(&mut self) {
        if !self.data.is_empty() {
            self.ready.push_back(mem::take(&mut self.data));
        }
    }

    fn check_size(&self) -> Result<(), FrameTooLarge> {
        if self.line.len() + self.data.len() > self.limit {
            Err(FrameTooLarge { limit: self.limit })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut frames = Frames::new(1024);
        for chunk in chunks {
            frames.push(chunk).unwrap();
        }
        frames.finish().unwrap();
        std::iter::from_fn(|| frames.pop()).map(|f| String::from_utf8(f).unwrap()).collect()
    }

    #[test]
    fn bare_and_data_frames_are_read() {
        assert_eq!(read(&[b"{\"a\":1}\n\n{\"b\":2}\n\n"]), ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!(read(&[b"data: {\"a\":1}\n\ndata:{\"b\":2}\n\n"]), ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!(read(&[b"data: {\"a\":1}\r\n\r\n"]), ["{\"a\":1}"]);
    }

    #[test]
    fn a_data_frame_may_span_lines() {
        assert_eq!(read(&[b"data: {\ndata: }\n\n"]), ["{\n}"]);
    }

    #[test]
    fn comments_and_other_fields_are_skipped() {
        assert_eq!(read(&[b": hello\nid: 3\nevent: x\ndata: {}\n\n"]), ["{}"]);
    }

    #[test]
    fn the_last_frame_needs_no_terminator() {
        assert_eq!(read(&[b"{}"]), ["{}"]);
        assert_eq!(read(&[b"data: {}"]), ["{}"]);
    }

    #[test]
    fn an_endless_frame_is_refused() {
        let mut frames = Frames::new(8);
        assert_eq!(frames.push(b"{12345"), Ok(()));
        assert_eq!(frames.push(b"6789"), Err(FrameTooLarge { limit: 8 }));
        let mut frames = Frames::new(8);
        assert!(frames.push(b"data:1234\ndata:5678\n").is_err());
    }

    #[derive(Debug, Clone)]
    enum Spelling {
        Bare,
        Data,
        DataCrlf,
    }

    fn spelling() -> impl Strategy<Value = Spelling> {
        prop_oneof![Just(Spelling::Bare), Just(Spelling::Data), Just(Spelling::DataCrlf)]
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(
            events in vec(("[a-zA-Z0-9é\u{2028}:, ]{0,20}", spelling()), 0..8),
            cuts in vec(any::<Index>(), 0..12),
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (text, spelling) in &events {
                let json = serde_json::json!({ "text": text }).to_string();
                bytes.extend_from_slice(match spelling {
                    Spelling::Bare => format!("{json}\n\n"),
                    Spelling::Data => format!("data: {json}\n\n"),
                    Spelling::DataCrlf => format!("data: {json}\r\n\r\n"),
                }.as_bytes());
                expected.push(json);
            }
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(&chunks), expected);
        }
    }
}
