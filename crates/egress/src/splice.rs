use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use osb_sys::tcp::wake_at;
use rustix::{
    buffer::spare_capacity,
    net::{Shutdown, shutdown},
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};
use tokio::{
    io::Interest,
    net::TcpStream,
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    By, Ruling, Verdict,
    door::{Door, Target},
    passage::{Pair, Passage, Traffic},
    sniff::{Said, Seen, sniff, sniff_all},
};

/// Why bytes pass no longer, other than that both sides have sent all they had.
#[derive(Debug)]
pub(crate) enum Broken {
    /// One side is gone.
    Gone,
    /// The first bytes are for another host.
    Refused(Ruling),
    /// The connection was cut from outside.
    Cut,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// How long a client may take from its first byte until it has said whom it wants.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection lasts on which nothing passes, once one side has sent all it had.
const FORSAKEN: Duration = Duration::from_mins(15);
/// In how many parts it may say so.
const PARTS: usize = 64;
/// What is copied at once.
const BUFFER: usize = 16 * 1024;
/// After so many bytes in one direction the kernel passes on the rest, without copies to us.
const BULK: u64 = 256 * 1024;
/// What waits in the kernel between two ends.
const PIPE: usize = 256 * 1024;

/// Passes bytes both ways until both sides have sent all they had.
///
/// The host hears nothing before the sandbox has said whom it wants, if its protocol says so;
/// what the host sends is not held up.
pub(crate) async fn carry(passage: &Passage, pair: &Pair) -> Result<(), Broken> {
    let Pair { inside, outside } = pair;
    let door = passage.door();
    let house = &door.house.counters;
    let mut out = Flow::new(inside, [&passage.traffic.sent, &house.sent], door);
    let mut back = Flow::new(outside, [&passage.traffic.received, &house.received], door);
    // One side has sent all it had.
    let half = Notify::new();
    let outwards = async {
        let head = first_bytes(passage, inside).await?;
        write_all(outside, &head).await?;
        out.count(head.len()).await;
        drop(head);
        pour(&mut out, outside).await?;
        half.notify_one();
        Ok(())
    };
    let inwards = async {
        pour(&mut back, inside).await?;
        half.notify_one();
        Ok(())
    };
    tokio::select! {
        biased;
        () = passage.cut() => Err(Broken::Cut),
        both = async { tokio::try_join!(outwards, inwards) } => both.map(drop),
        () = forsaken(&half, &passage.traffic) => Err(Broken::Gone),
    }
}

/// Resolves once nothing has come from the other side for long, after the first had sent all it had.
async fn forsaken(half: &Notify, traffic: &Traffic) {
    half.notified().await;
    let mut seen = None;
    while seen != Some(traffic.all()) {
        seen = Some(traffic.all());
        sleep(FORSAKEN).await;
    }
}

/// Reads until it is clear for whom the bytes are, and whether they may go there. The first may come
/// as late as they like.
async fn first_bytes(passage: &Passage, inside: &TcpStream) -> Result<Vec<u8>, Broken> {
    let mut held = Vec::new();
    read(inside, &mut held).await?;
    let rest = timeout(PATIENCE, listen(passage, inside, &mut held)).await;
    rest.unwrap_or_else(|_| Err(Broken::Refused(mismatch())))?;
    Ok(held)
}

async fn listen(passage: &Passage, inside: &TcpStream, held: &mut Vec<u8>) -> Result<(), Broken> {
    for _ in 0..PARTS {
        let seen = sniff(held);
        if seen != Seen::Undecided {
            return verdict(passage, &seen).map_err(Broken::Refused);
        }
        if read(inside, held).await? == 0 {
            return match held.as_slice() {
                [] => Ok(()),
                all => verdict(passage, &sniff_all(all)).map_err(Broken::Refused),
            };
        }
    }
    Err(Broken::Refused(mismatch()))
}

/// Whether the first bytes are for whom the connection is.
fn verdict(passage: &Passage, seen: &Seen) -> Result<(), Ruling> {
    let said = match seen {
        Seen::Undecided | Seen::Nobody => return Ok(()),
        Seen::Ambiguous => return Err(mismatch()),
        Seen::Host(said) => said,
    };
    let ruling = match (&passage.target, said) {
        (Target::Name(name), Said::Name(said)) if name == said => return Ok(()),
        (Target::Name(_), _) => return Err(mismatch()),
        // Who connects to an address may ask there for whom he likes, but not for those that a
        // rule denies, and not past rules about requests.
        (_, Said::Name(said)) => {
            let policy = passage.door().policy();
            match policy.looks_into(said, passage.port) {
                Some(rule) => Ruling { verdict: Verdict::Deny, by: By::Rule(rule) },
                None => policy.name(said),
            }
        }
        (_, Said::Address(said)) => passage.door().policy().address(*said, passage.port),
    };
    match (ruling.verdict, &ruling.by) {
        (Verdict::Deny, By::Rule(_) | By::Operator(_)) => Err(ruling),
        _ => Ok(()),
    }
}

fn mismatch() -> Ruling {
    Ruling { verdict: Verdict::Deny, by: By::Mismatch }
}

/// What comes from one side: counted, and slowed down if it is too much or comes too often.
struct Flow<'a> {
    from: &'a TcpStream,
    counters: [&'a AtomicU64; 2],
    door: &'a Door,
    /// Nobody is woken for a few bytes.
    resting: bool,
}

impl<'a> Flow<'a> {
    /// What wakes us nevertheless.
    const ENOUGH: u16 = 32 * 1024;

    fn new(from: &'a TcpStream, counters: [&'a AtomicU64; 2], door: &'a Door) -> Self {
        Self { from, counters, door, resting: false }
    }

    /// Counts bytes that came, and rests if they were too many or came too often.
    async fn count(&mut self, bytes: usize) {
        for counter in self.counters {
            counter.fetch_add(bytes as u64, Relaxed);
        }
        if let Some(rest) = self.door.pay(bytes) {
            if !self.resting {
                self.resting = true;
                // It works without, only less well.
                wake_at(self.from, Self::ENOUGH).ok();
            }
            sleep(rest).await;
        }
    }

    /// Takes what there is, once there is something.
    ///
    /// After a rest there most likely is, and whoever sends that often makes us rest again: until
    /// nothing has come for once, we look without being woken.
    async fn take<T>(&mut self, mut take: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        if self.resting {
            match take() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                taken => return taken,
            }
            self.resting = false;
            wake_at(self.from, 1).ok();
        }
        self.from.async_io(Interest::READABLE, take).await
    }
}

/// Passes on everything that comes from one side, and then that nothing more comes.
async fn pour(flow: &mut Flow<'_>, to: &TcpStream) -> io::Result<()> {
    let from = flow.from;
    let mut copied = 0;
    // An idle connection holds no memory.
    let mut buffer = Vec::new();
    let mut place = None;
    while place.is_none() {
        buffer.clear();
        let length = flow.take(|| read_now(from, &mut buffer)).await?;
        if length == 0 {
            finish(to);
            return Ok(());
        }
        write_all(to, &buffer).await?;
        copied += length as u64;
        if copied >= BULK {
            // Where descriptors are rare, copies take their place.
            place = flow.door.house.places.spare();
        }
        if length < buffer.capacity() {
            buffer = Vec::new();
        }
        flow.count(length).await;
    }
    drop(buffer);
    let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // As large as it is, if the system lets nobody have larger ones.
    fcntl_setpipe_size(&pipe.1, PIPE).ok();
    loop {
        let length = flow.take(|| fill(from, &pipe.1)).await?;
        if length == 0 {
            finish(to);
            return Ok(());
        }
        drain(&pipe.0, to, length).await?;
        flow.count(length).await;
    }
}

/// Whoever is gone already needs not be told.
fn finish(to: &TcpStream) {
    shutdown(to, Shutdown::Write).ok();
}

/// Reads what there is behind what is in `buffer`, for which room is made once something comes.
async fn read(from: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    from.async_io(Interest::READABLE, || read_now(from, buffer)).await
}

fn read_now(from: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.reserve(BUFFER.saturating_sub(buffer.capacity()).max(BUFFER / 4));
    let read = rustix::io::read(from, spare_capacity(buffer));
    // It may have seemed only as if something came.
    if buffer.is_empty() {
        *buffer = Vec::new();
    }
    Ok(read?)
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = to.async_io(Interest::WRITABLE, || to.try_write(bytes)).await?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Moves what there is into a pipe, which is empty.
fn fill(from: &TcpStream, pipe: &OwnedFd) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(splice(from, None, pipe, None, PIPE, flags)?)
}

async fn drain(pipe: &OwnedFd, to: &TcpStream, mut length: usize) -> io::Result<()> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    while length > 0 {
        let moved = to
            .async_io(Interest::WRITABLE, || Ok(splice(pipe, None, to, None, length, flags)?))
            .await?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        length = length.saturating_sub(moved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::{TestHouse, only};

    #[tokio::test]
    async fn after_a_rest_a_single_byte_wakes_again() {
        let house = TestHouse::start(only(&[])).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (client, (accepted, _)) = (client.unwrap(), accepted.unwrap());
        let counters = [&AtomicU64::new(0), &AtomicU64::new(0)];
        let mut flow = Flow::new(&accepted, counters, &house.door);
        // Until it must rest, with all that it may send at once.
        while !flow.resting {
            flow.count(1).await;
        }
        let mut buffer = Vec::new();
        for byte in [b"a", b"b", b"c"] {
            {
                let mut taking = Box::pin(flow.take(|| read_now(&accepted, &mut buffer)));
                assert!(poll!(&mut taking).is_pending());
                write_all(&client, byte).await.unwrap();
                assert_eq!(taking.await.unwrap(), 1);
            }
            flow.count(1).await;
        }
        assert_eq!(buffer, b"abc");
    }

    #[tokio::test]
    async fn while_nothing_comes_no_memory_is_held() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let (accepted, _) = accepted.unwrap();
        // Readiness that turns out to be none, as it may.
        accepted.writable().await.unwrap();
        let mut buffer = Vec::new();
        assert!(poll!(Box::pin(read(&accepted, &mut buffer))).is_pending());
        assert_eq!(buffer.capacity(), 0);
    }
}
