//! Work that waits for a disk, and whoever asked for it.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::{JoinError, spawn_blocking};

/// The one who asked for work that goes on where nobody can end it. It looks now and then whether he
/// is still there, and ends by itself if he is not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asker(Arc<AtomicBool>);

impl Asker {
    /// One who has left already.
    #[cfg(test)]
    pub(crate) fn left() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Fails if nobody waits any more.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }

    /// Writes for as long as somebody waits.
    pub(crate) fn watch<W>(&self, to: W) -> Watched<W> {
        Watched { asker: self.clone(), to }
    }
}

/// Says that the one who asked has left.
struct Leaving(Asker);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// What is written for somebody.
#[derive(Debug)]
pub(crate) struct Watched<W> {
    asker: Asker,
    to: W,
}

impl<W> Watched<W> {
    pub(crate) fn into_inner(self) -> W {
        self.to
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.asker.check()?;
        self.to.write(content)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Does what waits for a disk where nobody waits for it. Once the future is dropped, the work hears
/// of it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Asker) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let asker = Asker::default();
    let _leaving = Leaving(asker.clone());
    spawn_blocking(move || work(&asker)).await
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_ends_when_nobody_waits_for_it() {
        let (start, begun) = tokio::sync::oneshot::channel();
        let (end, ended) = mpsc::channel();
        let copying = blocking(move |asker| {
            start.send(()).unwrap();
            let copied = io::copy(&mut io::repeat(1), &mut asker.watch(io::sink()));
            end.send(copied.unwrap_err().to_string()).unwrap();
        });
        tokio::select! {
            _ = copying => panic!("it has no end"),
            begun = begun => begun.unwrap(),
        }
        let said = tokio::task::spawn_blocking(move || ended.recv().unwrap()).await.unwrap();
        assert_eq!(said, "nobody waits for it any more");
    }

    #[tokio::test]
    async fn work_that_is_waited_for_goes_on() {
        let written = blocking(|asker| {
            let mut to = asker.watch(Vec::new());
            to.write_all(b"all of it").and_then(|()| asker.check()).map(|()| to.into_inner())
        });
        assert_eq!(written.await.unwrap().unwrap(), b"all of it");
    }
}
