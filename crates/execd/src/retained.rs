//! Output that is kept for whoever asks later, within a bound.

mod place;

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use osb_core::agent::output;

/// What fits in this many bytes stays in memory: most programs say little, and a file for each
/// of them would cost a descriptor.
const EARLY: usize = 4 << 10;

/// The most that [`stream`](Retained::stream) reads at once.
const PIECE: usize = 64 << 10;

/// The most gaps that are told apart.
const GAPS: usize = 16;

/// The last bytes of something endless, at most `limit` of them.
///
/// Every byte has the offset at which it was written, counted from the first byte ever, so a
/// reader can come back with a cursor. The bytes lie in a file without a name, which is used as a
/// ring: nobody can remove it, it never grows beyond the limit, and it is gone with this value.
/// What the disk does not take is lost; readers find a sentence in its place.
#[derive(Debug)]
pub(crate) struct Retained {
    limit: u64,
    /// Held while bytes are written, so that they are in order.
    writing: Mutex<()>,
    state: Mutex<State>,
    ring: OnceLock<Ring>,
}

#[derive(Debug, Default)]
struct State {
    start: u64,
    end: u64,
    /// The first bytes, until there is a ring.
    early: Vec<u8>,
    /// What could not be written, in order.
    gaps: Vec<Gap>,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    from: u64,
    to: u64,
}

#[derive(Debug)]
struct Ring {
    file: File,
    size: u64,
    /// Whether somebody else is to find what is in it, by a head.
    has_head: bool,
}

/// Some bytes in a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    /// The cursor with which to go on. It is not always the sum of what was asked for and the
    /// length: bytes may be gone.
    pub(crate) next: u64,
}

impl Retained {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit: limit.max(1),
            writing: Mutex::default(),
            state: Mutex::default(),
            ring: OnceLock::new(),
        }
    }

    /// The same in a file that others read, as [`output`] says.
    pub(crate) fn in_file(file: File) -> Self {
        let room = place::largest_file().saturating_sub(output::RING);
        let ring = Ring { file, size: room.clamp(1, output::LARGEST), has_head: true };
        let retained = Self::new(ring.size);
        Self { ring: OnceLock::from(ring), ..retained }
    }

    /// How many bytes were ever written: the cursor of what comes next.
    pub(crate) fn end(&self) -> u64 {
        self.state().end
    }

    /// The offset of the oldest byte that is still there.
    pub(crate) fn start(&self) -> u64 {
        self.state().start
    }

    /// Whether the bytes lie in a file, which takes a descriptor.
    pub(crate) fn has_file(&self) -> bool {
        self.ring.get().is_some()
    }

    /// Adds to the end. This writes to a file; see [`Retained::write`].
    pub(crate) fn append(&self, bytes: &[u8]) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.append_in_memory(bytes) {
            return;
        }
        let from = self.state().end;
        let length = bytes.len() as u64;
        let written = self.ring().and_then(|ring| {
            // Forgotten before they are overwritten: who reads them meanwhile looks at the start
            // again afterwards.
            let mut state = self.state();
            state.start = state.start.max((from + length).saturating_sub(ring.size));
            drop(state);
            ring.write(bytes, from)?;
            ring.tell(from + length);
            Ok(())
        });
        let mut state = self.state();
        state.end = from + length;
        if let Err(kept) = written {
            state.add_gap(Gap { from: from + kept, to: from + length });
        }
        let start = state.start;
        state.gaps.retain(|gap| gap.to > start);
    }

    /// As [`Retained::append`], without holding up the event loop; gives the buffer back.
    pub(crate) async fn write(self: &Arc<Self>, bytes: Vec<u8>) -> Vec<u8> {
        // Nobody else writes for longer than this takes, or the bytes are not for memory.
        if let Ok(_writing) = self.writing.try_lock()
            && self.append_in_memory(&bytes)
        {
            return bytes;
        }
        let retained = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            retained.append(&bytes);
            bytes
        });
        // The only failure is that the program ends.
        written.await.unwrap_or_default()
    }

    /// Reads at most `most` bytes from the cursor on, or from the oldest byte if that is later.
    /// This reads a file; see [`Retained::stream`].
    pub(crate) fn read(&self, cursor: u64, most: usize) -> io::Result<Piece> {
        loop {
            let state = self.state();
            let from = cursor.max(state.start);
            if from >= state.end {
                return Ok(Piece { bytes: Vec::new(), next: cursor });
            }
            if let Some(gap) = state.gaps.iter().find(|gap| gap.from <= from && from < gap.to) {
                return Ok(Piece { bytes: gap.notice(), next: gap.to });
            }
            let until = state.gaps.iter().map(|gap| gap.from).filter(|&gap| gap > from).min();
            let until = until.unwrap_or(state.end).min(from.saturating_add(most as u64));
            let Some(ring) = self.ring.get() else {
                let slice = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                let bytes = state.early.get(slice(from)..slice(until)).unwrap_or_default();
                return Ok(Piece { bytes: bytes.to_vec(), next: until });
            };
            drop(state);
            let mut bytes = vec![0; usize::try_from(until - from).unwrap_or(most)];
            ring.read(&mut bytes, from)?;
            let overwritten = self.start().saturating_sub(from);
            if overwritten == 0 {
                return Ok(Piece { bytes, next: until });
            }
            if from + overwritten < until {
                let kept = usize::try_from(overwritten).ok().and_then(|at| bytes.get(at..));
                return Ok(Piece { bytes: kept.unwrap_or_default().to_vec(), next: until });
            }
        }
    }

    /// What there is between a cursor and an end, in pieces that are read as they are taken.
    pub(crate) fn stream(
        self: Arc<Self>,
        cursor: u64,
        until: u64,
    ) -> impl Stream<Item = io::Result<Bytes>> + use<> {
        stream::try_unfold((self, cursor), move |(retained, cursor)| async move {
            let left = usize::try_from(until.saturating_sub(cursor)).unwrap_or(PIECE).min(PIECE);
            if left == 0 {
                return Ok(None);
            }
            let reader = Arc::clone(&retained);
            let read = move || reader.read(cursor, left);
            let piece = if retained.has_file() {
                tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??
            } else {
                read()?
            };
            let found = !piece.bytes.is_empty();
            Ok(found.then(|| (Bytes::from(piece.bytes), (retained, piece.next))))
        })
    }

    /// Adds to the end if there is no ring yet and no need for one. The caller holds the lock for
    /// writing.
    fn append_in_memory(&self, bytes: &[u8]) -> bool {
        let mut state = self.state();
        let length = state.early.len() + bytes.len();
        let fits = self.ring.get().is_none()
            && state.gaps.is_empty()
            && length <= EARLY
            && length as u64 <= self.limit;
        if fits {
            state.early.extend_from_slice(bytes);
            state.end += bytes.len() as u64;
        }
        fits
    }

    /// The ring, made now if there is none, with the first bytes in it. The error is how many of
    /// the bytes to append were kept: none.
    fn ring(&self) -> Result<&Ring, u64> {
        if let Some(ring) = self.ring.get() {
            return Ok(ring);
        }
        let file = place::unnamed_file().map_err(|_| 0_u64)?;
        let size = self.limit.min(place::largest_file());
        let ring = Ring { file, size, has_head: false };
        let early = self.state().early.clone();
        ring.write(&early, 0)?;
        let ring = self.ring.get_or_init(|| ring);
        self.state().early = Vec::new();
        Ok(ring)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_gap(&mut self, gap: Gap) {
        let full = self.gaps.len() >= GAPS;
        match self.gaps.last_mut() {
            // Gaps that are too many to tell apart become one, with what is between them.
            Some(last) if last.to == gap.from || full => last.to = gap.to,
            _ => self.gaps.push(gap),
        }
    }
}

impl Gap {
    fn notice(self) -> Vec<u8> {
        let lost = self.to - self.from;
        format!("\n[{lost} bytes of output are lost: there was no room to keep them]\n").into()
    }
}

impl Ring {
    /// Where it begins.
    fn base(&self) -> u64 {
        if self.has_head { output::RING } else { 0 }
    }

    /// Tells those who find the file how many bytes were ever written.
    fn tell(&self, end: u64) {
        if self.has_head {
            let head = output::Head { size: self.size, end };
            // Where there is no room for it, what was told before is still there.
            self.file.write_all_at(&head.to_bytes(), 0).ok();
        }
    }

    /// Writes what fits of the bytes whose first has this offset. The error is how many bytes of
    /// their beginning were kept.
    fn write(&self, bytes: &[u8], from: u64) -> Result<(), u64> {
        let skipped = (bytes.len() as u64).saturating_sub(self.size);
        let mut rest = bytes.get(usize::try_from(skipped).unwrap_or(0)..).unwrap_or_default();
        let mut offset = from + skipped;
        while !rest.is_empty() {
            let place = offset % self.size;
            let room = usize::try_from(self.size - place).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            self.file.write_all_at(now, self.base() + place).map_err(|_| offset - from)?;
            offset += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn read(&self, bytes: &mut [u8], from: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (bytes, from);
        while !rest.is_empty() {
            let place = offset % self.size;
            let room = usize::try_from(self.size - place).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(rest.len().min(room));
            self.file.read_exact_at(now, self.base() + place)?;
            offset += now.len() as u64;
            rest = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
