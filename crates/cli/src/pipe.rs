//! From what writes to what is sent: an archive goes out while it is being made.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use tokio::{sync::mpsc, task};

/// How much is handed over at once, and how much waits for the other side.
const PIECE: usize = 256 << 10;
const PIECES: usize = 8;

/// Something that is being written on a thread of its own.
#[derive(Debug, Clone)]
pub(crate) struct Writing {
    problem: Arc<Mutex<Option<io::Error>>>,
}

impl Writing {
    /// What went wrong on this side, which whoever read sees only as an end that came too early.
    pub(crate) fn problem(&self) -> Option<io::Error> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What `write` writes, piece by piece. It waits when nobody takes the pieces, and is told that the
/// pipe is broken when nobody will.
pub(crate) fn written_by(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> (Writing, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let writing = Writing { problem: Arc::default() };
    let told = writing.clone();
    task::spawn_blocking(move || {
        let mut end = End { sender, piece: BytesMut::new() };
        let written = write(&mut end).and_then(|()| end.flush());
        let Err(error) = written else { return };
        if error.kind() == io::ErrorKind::BrokenPipe {
            return;
        }
        let ended = io::Error::other("what is sent could not be made");
        *told.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        // Otherwise the other side would take what there is for the whole.
        drop(end.sender.blocking_send(Err(ended)));
    });
    let stream = stream::unfold(pieces, async |mut pieces| Some((pieces.recv().await?, pieces)));
    (writing, stream)
}

struct End {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl Write for End {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let room = PIECE.saturating_sub(self.piece.len()).max(1);
        let content = content.get(..room).unwrap_or(content);
        self.piece.extend_from_slice(content);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = self.piece.split().freeze();
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn everything_arrives_in_pieces() {
        let (writing, stream) = written_by(|to| {
            for number in 0..3 {
                to.write_all(&vec![number; PIECE - 7])?;
            }
            Ok(())
        });
        let pieces: Vec<_> = stream.map(Result::unwrap).collect().await;
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 3 * (PIECE - 7));
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(pieces.concat().last(), Some(&2));
        assert!(writing.problem().is_none());
    }

    #[tokio::test]
    async fn a_problem_is_no_end() {
        let (writing, stream) = written_by(|to| {
            to.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        let mut stream = pin!(stream);
        assert!(stream.next().await.unwrap().is_err());
        assert_eq!(writing.problem().unwrap().to_string(), "no more");
    }

    #[tokio::test]
    async fn nobody_writes_for_nobody() {
        let (sender, ended) = std::sync::mpsc::channel();
        let (_, stream) = written_by(move |to| {
            let piece = vec![0; PIECE];
            let written = (0..1000).try_for_each(|_| to.write_all(&piece));
            sender.send(written.as_ref().unwrap_err().kind()).unwrap();
            written
        });
        drop(stream);
        let ended = task::spawn_blocking(move || ended.recv()).await.unwrap();
        assert_eq!(ended, Ok(io::ErrorKind::BrokenPipe));
    }
}
