use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    thread,
};

use rustix::fs::{FileType, fstat};
use tokio::sync::{mpsc, oneshot};

/// How many pieces may wait to be written.
const WAITING: usize = 2;

/// The thread does nothing but write.
const STACK: usize = 64 << 10;

/// Somebody else's file or pipe, which may hold up whoever writes to it: a thread of its own does.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    pieces: mpsc::Sender<Vec<u8>>,
}

/// Resolves when all that an outlet was given is written, and nobody can give it more.
pub(crate) type Flushed = oneshot::Receiver<()>;

impl Outlet {
    /// Writes to what `file` is now. Nothing is written to `/dev/null`, and no thread waits to.
    pub(crate) fn to(file: impl AsFd) -> io::Result<Option<(Self, Flushed)>> {
        if is_null(&file)? {
            return Ok(None);
        }
        Self::into(File::from(file.as_fd().try_clone_to_owned()?)).map(Some)
    }

    pub(crate) fn into(mut file: impl Write + Send + 'static) -> io::Result<(Self, Flushed)> {
        let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(WAITING);
        let (done, flushed) = oneshot::channel();
        let write = move || {
            while let Some(piece) = waiting.blocking_recv() {
                // Nobody reads it any more.
                if file.write_all(&piece).is_err() {
                    break;
                }
            }
            // Whoever waited may have lost patience.
            let _ = done.send(());
        };
        thread::Builder::new().name("outlet".to_owned()).stack_size(STACK).spawn(write)?;
        Ok((Self { pieces }, flushed))
    }

    /// Waits for room; what nobody reads any more is dropped.
    pub(crate) async fn write(&self, piece: Vec<u8>) {
        // The only failure is that nobody reads.
        drop(self.pieces.send(piece).await);
    }

    /// Drops the piece if there is no room.
    pub(crate) fn try_write(&self, piece: Vec<u8>) {
        // Either nobody reads, or too slowly to be worth waiting for.
        drop(self.pieces.try_send(piece));
    }
}

fn is_null(file: impl AsFd) -> io::Result<bool> {
    let status = fstat(file)?;
    let device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    Ok(device && status.st_rdev == rustix::fs::makedev(1, 3))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn what_is_written_arrives_in_order_before_the_end_is_told() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (outlet, flushed) = Outlet::to(&writer).unwrap().unwrap();
        drop(writer);
        for number in 0..100_u8 {
            outlet.write(vec![number]).await;
        }
        drop(outlet);
        flushed.await.unwrap();
        let mut arrived = Vec::new();
        reader.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, (0..100).collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn a_reader_that_went_away_holds_nobody_up() {
        let (reader, writer) = io::pipe().unwrap();
        let (outlet, flushed) = Outlet::into(writer).unwrap();
        drop(reader);
        for _ in 0..1000 {
            outlet.write(vec![0; 4096]).await;
        }
        flushed.await.unwrap();
    }

    #[test]
    fn nothing_is_written_where_nothing_is_kept() {
        let null = osb_sys::fs::open("/dev/null").unwrap();
        assert!(Outlet::to(&null).unwrap().is_none());
        let zero = osb_sys::fs::open("/dev/zero").unwrap();
        assert!(!is_null(&zero).unwrap());
    }
}
