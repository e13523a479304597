use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    By, Ruling, Verdict,
    decision::Ending,
    dial::{NoWay, Way, keep, too_many},
    door::{Door, Target},
    opened,
    passage::{Pair, Passage, finish_on_close, reset_on_close},
    resolver,
    splice::{Broken, carry},
};

/// The port at which every address is a resolver.
pub(crate) const RESOLVER: u16 = 53;

/// Takes the connections of a sandbox until its door is closed.
pub(crate) async fn accept(door: Arc<Door>, streams: TcpListener) {
    tokio::select! {
        () = door.closed.cancelled() => {}
        () = accept_all(&door, &streams) => {}
    }
}

async fn accept_all(door: &Arc<Door>, streams: &TcpListener) {
    /// How long we wait when there are no descriptors or no memory left.
    const SHORTAGE: Duration = Duration::from_millis(100);
    loop {
        door.arrivals.wait(1.0).await;
        match streams.accept().await.and_then(|(stream, _)| Ok((stream.local_addr()?, stream))) {
            Ok((to, stream)) => admit(door, stream, to),
            Err(error) => {
                tracing::debug!(sandbox_id = %door.id, %error, "a connection could not be taken");
                sleep(SHORTAGE).await;
            }
        }
    }
}

/// Begins to serve a connection, or refuses it at once.
pub(crate) fn admit(door: &Arc<Door>, stream: TcpStream, to: SocketAddr) {
    let (address, port) = (to.ip().to_canonical(), to.port());
    if port == RESOLVER {
        let door = door.clone();
        door.house.tasks.clone().spawn(async move {
            tokio::select! {
                () = door.closed.cancelled() => {}
                // Whoever asked and went away misses nothing.
                answered = answer(&door, stream) => drop(answered),
            }
        });
        return;
    }
    let Ok(target) = door.target(address) else {
        let ruling = Ruling { verdict: Verdict::Deny, by: By::Default };
        door.note(Target::Address(address).attempt(port), ruling);
        return reset_on_close(&stream);
    };
    let Some(passage) = Passage::enter(door, &target, port).map(Arc::new) else {
        door.note(target.attempt(port), too_many());
        return reset_on_close(&stream);
    };
    door.house.tasks.spawn(pass(passage, stream));
}

/// Serves one connection from its arrival to its end.
async fn pass(passage: Arc<Passage>, inside: TcpStream) {
    let door = passage.door().clone();
    let (target, port) = (&passage.target, passage.port);
    let way = tokio::select! {
        way = Way::find(&door, target, port) => way,
        () = passage.cut() => return reset_on_close(&inside),
    };
    let way = match way {
        Ok(way) => way,
        Err(NoWay::Denied(ruling)) => {
            door.note(target.attempt(port), ruling);
            return reset_on_close(&inside);
        }
        Err(NoWay::Lost(ruling)) => {
            let number = door.note(target.attempt(port), ruling);
            passage.end(number, None, Ending::Unreachable);
            return reset_on_close(&inside);
        }
    };
    let number = door.note(target.attempt(port), way.ruling.clone());
    let seen = door.insight.of(&door.policy(), target, port);
    if seen.is_none() {
        // Whatever ends it, at any moment, breaks it off, unless both sides came to their end.
        reset_on_close(&inside);
    }
    let served = async {
        match seen {
            Some(seen) => opened::serve(&passage, way, inside, seen).await,
            None => direct(&passage, &way, inside).await,
        }
    };
    let (at, how) = tokio::select! {
        done = served => done,
        () = passage.cut() => (None, Ending::Done),
    };
    passage.end(number, at, how);
}

/// Dials and passes on bytes.
async fn direct(passage: &Passage, way: &Way, inside: TcpStream) -> (Option<SocketAddr>, Ending) {
    let (outside, at) = match way.dial().await {
        Ok(connected) => connected,
        Err(error) => {
            tracing::debug!(target = ?passage.target, %error, "a host could not be reached");
            return (None, Ending::Unreachable);
        }
    };
    let pair = Arc::new(Pair { inside, outside });
    // It works without, only less well.
    keep(&pair.inside).ok();
    let carried = match passage.settle(at, Some(pair.clone())) {
        Ok(()) => carry(passage, &pair).await,
        Err(ruling) => Err(Broken::Refused(ruling)),
    };
    let how = match carried {
        Ok(()) => {
            finish_on_close(&pair.inside);
            return (Some(at), Ending::Done);
        }
        Err(Broken::Refused(ruling)) => Ending::Cut(ruling),
        Err(Broken::Cut | Broken::Gone) => Ending::Done,
    };
    reset_on_close(&pair.outside);
    (Some(at), how)
}

/// Answers questions to the resolver that come by stream.
async fn answer(door: &Arc<Door>, mut stream: TcpStream) -> io::Result<()> {
    /// How long a client may be silent.
    const SILENCE: Duration = Duration::from_secs(10);
    /// No question is longer.
    const LONGEST: usize = 4096;
    let Ok(_turn) = door.asking.clone().try_acquire_owned() else {
        reset_on_close(&stream);
        return Ok(());
    };
    loop {
        let question = timeout(SILENCE, async {
            let length = usize::from(stream.read_u16().await?);
            let mut question = vec![0; length.min(LONGEST)];
            stream.read_exact(&mut question).await?;
            io::Result::Ok(question)
        });
        let question = question.await??;
        let Some(answered) = resolver::answer(door, &question).await else { return Ok(()) };
        let length = u16::try_from(answered.bytes.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_be_bytes(), &*answered.bytes].concat();
        timeout(SILENCE, stream.write_all(&bytes)).await??;
    }
}

#[cfg(test)]
mod tests;
