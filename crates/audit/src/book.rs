use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};
use serde::{Deserialize, Serialize};

use crate::chain::{Chain, Hash};

/// How large a file becomes before the next is begun.
const LARGEST: u64 = 4 << 20;
/// The longest line that is read. What is written down is cut to less.
const LONGEST: u64 = 64 << 10;
const SUFFIX: &str = ".jsonl";

/// The kind of the first line of a file.
const BEGUN: &str = "begun";
/// The kind of a line that says how many others were not written down.
pub(crate) const MISSED: &str = "missed";
/// The kind of the last line of a book.
pub(crate) const FINISHED: &str = "finished";

/// What the first line of a file says.
#[derive(Debug, Serialize, Deserialize)]
struct Begun<'a> {
    /// The hash of the last line of the file before.
    previous: &'a str,
}

/// The end of what was written down about one sandbox.
#[derive(Debug)]
pub(crate) struct Book {
    directory: PathBuf,
    sandbox: SandboxId,
    /// The number of the last file, and its path.
    volume: u64,
    path: PathBuf,
    length: u64,
    chain: Chain,
    is_finished: bool,
}

/// Lines that are about to be written.
#[derive(Debug)]
pub(crate) struct Page {
    sandbox: SandboxId,
    chain: Chain,
    text: Vec<u8>,
    is_finished: bool,
}

/// The files of a book, oldest first.
pub(crate) fn volumes(directory: &Path) -> Result<Vec<(u64, PathBuf)>, PathError> {
    let number = |name: &String| name.strip_suffix(SUFFIX).and_then(|it| it.parse::<u64>().ok());
    let mut volumes: Vec<(u64, PathBuf)> = fs::names(directory)?
        .iter()
        .filter_map(|name| Some((number(name)?, directory.join(name))))
        .collect();
    volumes.sort_unstable();
    Ok(volumes)
}

impl Book {
    /// Opens the book of a sandbox at its end. What a crash left of a last line is cut off: nobody was
    /// told that it is written.
    pub(crate) fn open(directory: PathBuf, sandbox: SandboxId) -> Result<Self, PathError> {
        fs::create_private_dir_all(&directory)?;
        let mut volumes = volumes(&directory)?;
        let Some((volume, last)) = volumes.pop() else {
            return Ok(Self::begin(directory, sandbox, 1, Chain::NEW));
        };
        let mut end = read_end(&last, sandbox)?;
        if let Some(End { chain: None, .. }) = end {
            // Nothing of it was written: it goes on from the file before.
            let before = volumes.pop().map(|(_, before)| read_end(&before, sandbox)).transpose()?;
            let chain = before.map_or(Some(Chain::NEW), |before| before?.chain);
            end = chain.map(|chain| End { chain: Some(chain), length: 0, is_finished: false });
        }
        let Some(End { chain: Some(chain), length, is_finished }) = end else {
            // What cannot be read stays as it is. The chain is broken here, and whoever verifies it
            // sees it.
            tracing::error!(sandbox_id = %sandbox, file = %last.display(), "an audit file is damaged");
            return Ok(Self::begin(directory, sandbox, volume + 1, Chain::NEW));
        };
        let file = fs::append(&last, 0o600)?;
        file.set_len(length).map_err(|error| PathError::new("shorten", &last, error))?;
        Ok(Self { directory, sandbox, volume, path: last, length, chain, is_finished })
    }

    fn begin(directory: PathBuf, sandbox: SandboxId, volume: u64, chain: Chain) -> Self {
        let path = directory.join(format!("{volume:06}{SUFFIX}"));
        Self { directory, sandbox, volume, path, length: 0, chain, is_finished: false }
    }

    /// Where the file is that it is written to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The number and the hash of its last line.
    pub(crate) fn end(&self) -> (u64, Hash) {
        (self.chain.number, self.chain.hash)
    }

    /// Adds the lines that `fill` makes. After a failure nobody knows what there is of them: the
    /// book has to be opened again.
    pub(crate) fn write(
        &mut self,
        at: Timestamp,
        fill: impl FnOnce(&mut Page) -> serde_json::Result<()>,
    ) -> Result<(), PathError> {
        if self.length >= LARGEST {
            let directory = self.directory.clone();
            *self = Self::begin(directory, self.sandbox, self.volume + 1, self.chain);
        }
        let mut page = Page {
            sandbox: self.sandbox,
            chain: self.chain,
            text: Vec::new(),
            is_finished: self.is_finished,
        };
        let failed = |error| PathError::new("write", &self.path, error);
        let begun = if self.length == 0 { page.begin(at) } else { Ok(()) };
        begun.and_then(|()| fill(&mut page)).map_err(|error| failed(error.into()))?;
        fs::append(&self.path, 0o600)?.write_all(&page.text).map_err(failed)?;
        self.length += page.text.len() as u64;
        (self.chain, self.is_finished) = (page.chain, page.is_finished);
        Ok(())
    }
}

impl Page {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn add(
        &mut self,
        (at, kind): (Timestamp, &str),
        what: impl Serialize,
    ) -> serde_json::Result<()> {
        self.is_finished = kind == FINISHED;
        self.chain.add(&mut self.text, (at, self.sandbox, kind), what)
    }

    fn begin(&mut self, at: Timestamp) -> serde_json::Result<()> {
        let previous = &self.chain.hash.to_string();
        self.add((at, BEGUN), Begun { previous })
    }
}

/// How far a file can be read.
struct End {
    /// The chain at the end of its last whole line, if it has one.
    chain: Option<Chain>,
    length: u64,
    is_finished: bool,
}

/// Where a file ends; `None` if it is damaged.
fn read_end(path: &Path, sandbox: SandboxId) -> Result<Option<End>, PathError> {
    let mut lines = Lines::new(fs::open(path)?);
    let mut end = End { chain: None, length: 0, is_finished: false };
    loop {
        match lines.next_line() {
            Ok(None) => return Ok(Some(end)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
            Err(error) => return Err(PathError::new("read", path, error)),
            Ok(Some(line)) => {
                let next = match end.chain {
                    None => begin(None, sandbox, line),
                    Some(chain) => chain.follow(line),
                };
                let Some(chain) = next else { return Ok(None) };
                let length = end.length + line.len() as u64 + 1;
                end = End { chain: Some(chain), length, is_finished: is_last(line) };
            }
        }
    }
}

/// The chain that ends with the first line of a file; `None` if it is not of this sandbox, or does not
/// follow what was in the file before.
pub(crate) fn begin(before: Option<Chain>, sandbox: SandboxId, line: &[u8]) -> Option<Chain> {
    #[derive(Deserialize)]
    struct First<'a> {
        sandbox: SandboxId,
        kind: &'a str,
        #[serde(borrow)]
        what: Begun<'a>,
    }
    let First { sandbox: whose, kind, what } = serde_json::from_slice(line).ok()?;
    let previous = Hash::parse(what.previous)?;
    let chain = previous.follow(line)?;
    let follows = before.is_none_or(|it| it.hash == previous && it.number + 1 == chain.number);
    (kind == BEGUN && whose == sandbox && follows).then_some(chain)
}

/// Whether a line says that nothing more comes.
pub(crate) fn is_last(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind<'a> {
        kind: &'a str,
    }
    serde_json::from_slice::<Kind<'_>>(line).is_ok_and(|line| line.kind == FINISHED)
}

/// The whole lines of a file, without their ends.
pub(crate) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
}

impl<R: io::Read> Lines<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from: BufReader::new(from), line: Vec::new() }
    }

    /// `None` at the end, also if the last line is not whole.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        use io::Read as _;
        self.line.clear();
        let read = self.from.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)?;
        if self.line.last() != Some(&b'\n') {
            let is_long = read as u64 == LONGEST;
            return if is_long { Err(io::ErrorKind::InvalidData.into()) } else { Ok(None) };
        }
        self.line.pop();
        Ok(Some(&self.line))
    }

    /// Whether there was something after the last whole line.
    pub(crate) fn is_torn(&self) -> bool {
        !self.line.is_empty()
    }
}
