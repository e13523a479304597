use std::io::{Read, Write};

use anyhow::{Result, bail, ensure};

/// A client of HTTP/1.1 that asks the same again and again on one connection, and needs next to
/// nothing for it.
pub(crate) struct Asker<S> {
    stream: S,
    request: String,
    answer: Vec<u8>,
}

impl<S: Read + Write> Asker<S> {
    pub(crate) fn new(stream: S, request: String) -> Self {
        Self { stream, request, answer: Vec::new() }
    }

    /// Asks, and reads the answer.
    pub(crate) fn ask(&mut self) -> Result<()> {
        self.stream.write_all(self.request.as_bytes())?;
        self.answer.clear();
        let mut buffer = [0; 4096];
        while !self.is_complete()? {
            let length = self.stream.read(&mut buffer)?;
            ensure!(length > 0, "the host has hung up");
            self.answer.extend_from_slice(buffer.get(..length).unwrap_or_default());
        }
        Ok(())
    }

    /// Whether the answer is here.
    fn is_complete(&self) -> Result<bool> {
        let text = std::str::from_utf8(&self.answer)?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(false) };
        ensure!(head.starts_with("HTTP/1.1 200"), "the host says {head}");
        let head = head.to_ascii_lowercase();
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            match name {
                "content-length" => return Ok(body.len() >= value.parse()?),
                "transfer-encoding" => return Ok(body.ends_with("0\r\n\r\n")),
                _ => {}
            }
        }
        bail!("the answer does not say how long it is: {head}")
    }
}
