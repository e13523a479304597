use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::{
    StreamExt as _,
    stream::{FuturesUnordered, unfold},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    Attempt, By, Ruling, Verdict,
    decision::Ending,
    dial::{NoWay, Undialled, Way, keep, too_many},
    door::{Door, Target},
    opened,
    passage::{Pair, Passage, finish_on_close, reset_on_close},
    resolver,
    splice::{Broken, carry},
};

/// The port at which every address is a resolver.
pub(crate) const RESOLVER: u16 = 53;

/// Takes the connections of a sandbox and serves them until its door is closed.
///
/// All of them are one task. The runtime lets tasks take turns, so that a sandbox has one turn however
/// many connections it has, and the others wait no longer for theirs.
pub(crate) async fn accept(door: Arc<Door>, streams: TcpListener) {
    let mut serving = FuturesUnordered::new();
    // What is dropped while it waits would have taken from the sandbox's share for nothing.
    let arrivals = unfold(streams, async |streams| Some((arrival(&door, &streams).await, streams)));
    let mut arrivals = Box::pin(arrivals);
    loop {
        tokio::select! {
            () = door.closed.cancelled() => break,
            Some((stream, to)) = arrivals.next() => serving.push(serve(&door, stream, to)),
            Some(()) = serving.next() => {}
        }
    }
    drop(arrivals);
    // They are cut: each writes down how it ended.
    while serving.next().await.is_some() {}
}

/// The next connection, and where it is to go.
async fn arrival(door: &Door, streams: &TcpListener) -> (TcpStream, SocketAddr) {
    /// How long we wait when there are no descriptors or no memory left.
    const SHORTAGE: Duration = Duration::from_millis(100);
    loop {
        while let Err(wait) = door.arrivals.take(1.0) {
            sleep(door.turns.after(wait)).await;
        }
        match streams.accept().await.and_then(|(stream, _)| Ok((stream.local_addr()?, stream))) {
            Ok((to, stream)) => return (stream, to),
            Err(error) => {
                tracing::debug!(sandbox_id = %door.id, %error, "a connection could not be taken");
                sleep(SHORTAGE).await;
            }
        }
    }
}

/// Serves a connection, or refuses it at once.
pub(crate) async fn serve(door: &Arc<Door>, stream: TcpStream, to: SocketAddr) {
    let (address, port) = (to.ip().to_canonical(), to.port());
    if port == RESOLVER {
        return tokio::select! {
            () = door.closed.cancelled() => {}
            // Whoever asked and went away misses nothing.
            answered = answer(door, stream) => drop(answered),
        };
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
    pass(passage, stream).await;
}

/// Serves one connection from its arrival to its end.
async fn pass(passage: Arc<Passage>, inside: TcpStream) {
    let door = passage.door().clone();
    let (target, port) = (&passage.target, passage.port);
    let way = tokio::select! {
        way = Way::find(&door, target, port) => way,
        () = passage.cut() => {
            door.note(target.attempt(port), passage.why_cut());
            return reset_on_close(&inside);
        }
    };
    let way = match way {
        Ok(way) => way,
        Err(NoWay::Denied(ruling, at)) => {
            let attempt = target.attempt(port);
            door.note(Attempt { address: attempt.address.or(at), ..attempt }, ruling);
            return reset_on_close(&inside);
        }
        Err(NoWay::Lost(ruling)) => {
            let number = door.note(target.attempt(port), ruling);
            passage.end(number, None, Ending::Unreachable);
            return reset_on_close(&inside);
        }
    };
    passage.leads_by(&way.aliases);
    let number = door.note(target.attempt(port), way.ruling.clone());
    let seen = door.insight.of(&door.policy(), target, port);
    if seen.is_none() {
        // Whatever ends it, at any moment, breaks it off, unless both sides came to their end.
        reset_on_close(&inside);
    }
    let served = async {
        match seen {
            // Apart, since it takes much more memory than the others.
            Some(seen) => Box::pin(opened::serve(&passage, way, inside, seen)).await,
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
    let (outside, at) = match way.dial(|at| passage.may_reach(at)).await {
        Ok(connected) => connected,
        Err(Undialled::Denied(ruling)) => return (None, Ending::Cut(ruling)),
        Err(Undialled::Failed(error)) => {
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
            // What nobody reads counts as a connection until it is thrown away.
            if timeout(UNREAD, taken(&pair)).await.is_ok() {
                finish_on_close(&pair.inside);
            } else {
                reset_on_close(&pair.outside);
            }
            return (Some(at), Ending::Done);
        }
        Err(Broken::Refused(ruling)) => Ending::Cut(ruling),
        Err(Broken::Cut | Broken::Gone) => Ending::Done,
    };
    reset_on_close(&pair.outside);
    (Some(at), how)
}

/// How long both sides may take to read what is left, once each has sent all it had.
const UNREAD: Duration = Duration::from_secs(30);

/// Resolves once both sides have room for all that was sent to them.
async fn taken(pair: &Pair) {
    /// How often we look, if not all of it was taken at once.
    const LOOK: Duration = Duration::from_millis(100);
    for end in [&pair.inside, &pair.outside] {
        while osb_sys::tcp::unsent(end).is_ok_and(|bytes| bytes > 0) {
            sleep(LOOK).await;
        }
    }
}

/// Answers questions to the resolver that come by stream.
async fn answer(door: &Arc<Door>, mut stream: TcpStream) -> io::Result<()> {
    /// How long a client may be silent.
    const SILENCE: Duration = Duration::from_secs(10);
    /// No question is longer.
    const LONGEST: usize = 4096;
    let (Ok(_asker), Some(_place)) = (door.askers.try_acquire(), door.house.places.take(0)) else {
        resolver::note(door, None, too_many());
        reset_on_close(&stream);
        return Ok(());
    };
    loop {
        let question = timeout(SILENCE, async {
            let length = usize::from(stream.read_u16().await?);
            if length > LONGEST {
                // It is not read, and written down like all that is no question.
                return Ok(Vec::new());
            }
            let mut question = vec![0; length];
            stream.read_exact(&mut question).await?;
            io::Result::Ok(question)
        });
        let question = question.await??;
        // Who says nothing takes nothing from those who ask.
        let turn = timeout(SILENCE, door.asking.acquire()).await?.map_err(io::Error::other)?;
        let Some(answered) = resolver::answer(door, &question).await else { return Ok(()) };
        drop(turn);
        let length = u16::try_from(answered.bytes.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_be_bytes(), &*answered.bytes].concat();
        timeout(SILENCE, stream.write_all(&bytes)).await??;
    }
}

#[cfg(test)]
mod tests;
