use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Weak},
    thread,
};

/// The sandbox's end of a dialled stream. It breaks when the sandbox ends.
///
/// A clone is the same end: the caller sees the stream close when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Line(Arc<UnixStream>);

impl Line {
    /// The stream itself, for event loops that want to own it. Keep the line for as long, or the
    /// end of the sandbox will not break the stream.
    pub fn to_stream(&self) -> io::Result<UnixStream> {
        self.0.try_clone()
    }

    /// Both ends of a new stream: the caller's and the sandbox's.
    pub(super) fn pair() -> io::Result<(UnixStream, Self)> {
        let (caller, sandbox) = UnixStream::pair()?;
        caller.set_nonblocking(true)?;
        Ok((caller, Self(Arc::new(sandbox))))
    }

    pub(super) fn hangup(&self) -> Hangup {
        Hangup(Arc::downgrade(&self.0))
    }
}

impl Read for Line {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buf)
    }
}

impl Write for Line {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

/// Breaks a [`Line`] without keeping it open.
#[derive(Debug)]
pub(super) struct Hangup(Weak<UnixStream>);

impl Hangup {
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        if let Some(stream) = self.0.upgrade() {
            // An end that is broken already is as good as one that we break.
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// Answers every HTTP request on the line with `200` and an empty object, from a thread that ends
/// with the line: all that most tests ask of execd.
pub fn answer_ok(line: Line) {
    // Without a thread the line is dropped, and the caller sees it close.
    thread::Builder::new().name("fake-execd".to_owned()).spawn(move || serve(line).ok()).ok();
}

fn serve(mut line: Line) -> io::Result<()> {
    let mut reader = BufReader::new(line.clone());
    while skip_request(&mut reader)? {
        line.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        )?;
    }
    Ok(())
}

/// Reads one request to its end; `false` when there is none.
fn skip_request(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut length = 0;
    let mut chunked = false;
    let mut first = true;
    loop {
        let mut text = String::new();
        if reader.read_line(&mut text)? == 0 {
            return Ok(false);
        }
        let text = text.trim_end().to_ascii_lowercase();
        if text.is_empty() && !first {
            break;
        }
        first = false;
        if let Some((name, value)) = text.split_once(':') {
            match name {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "transfer-encoding" => chunked = value.contains("chunked"),
                _ => {}
            }
        }
    }
    if chunked {
        return skip_chunks(reader).map(|()| true);
    }
    skip(reader, length).map(|()| true)
}

fn skip_chunks(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
        skip(reader, size + 2)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn skip(reader: &mut impl Read, length: u64) -> io::Result<()> {
    io::copy(&mut reader.take(length), &mut io::sink()).map(|_| ())
}
