use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use osb_sys::outlets::{self, Received};
use rustix::net::{SendFlags, send};
use tokio::{io::Interest, net::UdpSocket, task::coop::consume_budget, time::timeout};

use crate::{
    By, Ruling, Verdict,
    decision::Ending,
    dial::too_many,
    door::{Door, Target},
    passage::Passage,
    resolver,
    streams::RESOLVER,
};

/// The datagrams of a sandbox.
pub(crate) struct Datagrams {
    door: Arc<Door>,
    socket: UdpSocket,
    back: Arc<Back>,
}

/// The way back into the sandbox.
struct Back {
    answers: (OwnedFd, OwnedFd),
    flows: Mutex<HashMap<Flow, Arc<Open>>>,
}

/// A flow that is allowed.
struct Open {
    socket: UdpSocket,
    passage: Passage,
}

/// Datagrams from one socket of the sandbox to one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Flow {
    from: SocketAddr,
    to: SocketAddr,
}

/// The longest datagram.
const LONGEST: usize = 65535;
/// How long a flow is kept on which nothing comes back.
const SILENCE: Duration = Duration::from_mins(1);
/// The most flows of a sandbox.
const MOST: usize = 256;

impl Datagrams {
    pub(crate) fn new(
        door: Arc<Door>,
        socket: std::net::UdpSocket,
        answers: (OwnedFd, OwnedFd),
    ) -> io::Result<Self> {
        let back = Arc::new(Back { answers, flows: Mutex::default() });
        Ok(Self { door, socket: UdpSocket::from_std(socket)?, back })
    }

    /// Takes the datagrams of a sandbox until its door is closed.
    pub(crate) async fn receive(self) {
        let door = self.door.clone();
        tokio::select! {
            () = door.closed.cancelled() => {}
            Err(error) = self.receive_all() => {
                tracing::warn!(sandbox_id = %door.id, %error, "datagrams of a sandbox are lost");
            }
        }
    }

    async fn receive_all(&self) -> io::Result<()> {
        loop {
            self.socket.readable().await?;
            // Nothing is held while nothing comes.
            let mut buffer = vec![0; LONGEST];
            loop {
                // Whoever sends without end must not keep others from being served.
                consume_budget().await;
                self.door.datagrams.wait(1.0).await;
                let receive = || outlets::receive(&self.socket, &mut buffer);
                match self.socket.try_io(Interest::READABLE, receive) {
                    Ok(Received { from, to, length }) => {
                        self.take(Flow { from, to }, buffer.get(..length).unwrap_or_default());
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        tracing::debug!(sandbox_id = %self.door.id, %error, "a datagram is lost");
                    }
                }
            }
        }
    }

    fn take(&self, flow: Flow, bytes: &[u8]) {
        if flow.to.port() == RESOLVER {
            return self.resolve(flow, bytes.to_vec());
        }
        let open = self.back.flows().get(&flow).cloned();
        match open {
            Some(open) => open.send(bytes),
            None => self.begin(flow, bytes),
        }
    }

    fn resolve(&self, flow: Flow, question: Vec<u8>) {
        // Who asks too much at once hears nothing, and asks again later.
        let Ok(turn) = self.door.asking.clone().try_acquire_owned() else { return };
        let (door, back) = (self.door.clone(), self.back.clone());
        self.door.house.tasks.spawn(async move {
            let answered = tokio::select! {
                answered = resolver::answer(&door, &question) => answered,
                () = door.closed.cancelled() => None,
            };
            if let Some(answered) = answered {
                back.send(flow, &answered.datagram());
            }
            drop(turn);
        });
    }

    /// Judges the first datagram of a flow. What is not allowed vanishes.
    fn begin(&self, flow: Flow, bytes: &[u8]) {
        let (address, port) = (flow.to.ip(), flow.to.port());
        let target = match self.door.target(address) {
            Ok(Target::Address(address)) => Target::Datagrams(address),
            // Rules for datagrams name addresses.
            named => {
                let target = named.unwrap_or(Target::Datagrams(address));
                let attempt =
                    crate::Attempt { protocol: crate::Protocol::Udp, ..target.attempt(port) };
                self.door.note(attempt, Ruling { verdict: Verdict::Deny, by: By::Default });
                return;
            }
        };
        let full = self.back.flows().len() >= MOST;
        let passage = if full { None } else { Passage::enter(&self.door, &target, port) };
        let Some(passage) = passage else {
            self.door.note(target.attempt(port), too_many());
            return;
        };
        let ruling = target.judge(&self.door.policy(), port);
        let denied = ruling.verdict == Verdict::Deny;
        let number = self.door.note(target.attempt(port), ruling);
        if denied {
            return;
        }
        let Ok(socket) = connect(flow.to) else {
            return passage.end(number, Some(flow.to), Ending::Unreachable);
        };
        if let Err(ruling) = passage.settle(flow.to, None) {
            return passage.end(number, Some(flow.to), Ending::Cut(ruling));
        }
        let open = Arc::new(Open { socket, passage });
        open.send(bytes);
        self.back.flows().insert(flow, open.clone());
        let back = self.back.clone();
        self.door.house.tasks.spawn(async move {
            tokio::select! {
                () = back.answer_all(flow, &open) => {}
                () = open.passage.cut() => {}
            }
            back.flows().remove(&flow);
            open.passage.end(number, Some(flow.to), Ending::Done);
        });
    }
}

impl Open {
    /// What cannot be sent is lost, as datagrams may be.
    fn send(&self, bytes: &[u8]) {
        // A policy that cuts the flow is in force before the flow has ended.
        if self.passage.is_cut() || !fits(self.passage.door(), bytes.len()) {
            return;
        }
        // Without a look at whether there is room: of a new socket that is not known yet.
        if let Ok(length) = send(&self.socket, bytes, SendFlags::DONTWAIT) {
            self.passage.traffic.sent.fetch_add(length as u64, Relaxed);
            self.passage.door().house.counters.sent.fetch_add(length as u64, Relaxed);
        }
    }
}

impl Back {
    fn send(&self, flow: Flow, bytes: &[u8]) {
        // The sandbox may not take it, which is its own affair.
        drop(outlets::answer(&self.answers, flow.to, flow.from, bytes));
    }

    /// Passes on the answers of a flow until there are none any more.
    async fn answer_all(&self, flow: Flow, Open { socket, passage }: &Open) {
        while let Ok(Ok(())) = timeout(SILENCE, socket.readable()).await {
            consume_budget().await;
            passage.door().datagrams.wait(1.0).await;
            let mut bytes = Vec::with_capacity(LONGEST);
            match socket.try_recv_buf(&mut bytes) {
                Ok(length) if !fits(passage.door(), length) => {}
                Ok(length) => {
                    passage.traffic.received.fetch_add(length as u64, Relaxed);
                    passage.door().house.counters.received.fetch_add(length as u64, Relaxed);
                    self.send(flow, &bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Nobody listens there.
                Err(_) => return,
            }
        }
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Flow, Arc<Open>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the sandbox has bandwidth for a datagram, which then is taken. What does not fit is lost.
fn fits(door: &Door, length: usize) -> bool {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    door.bandwidth.as_ref().is_none_or(|bandwidth| bandwidth.take(length.into()).is_ok())
}

fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    UdpSocket::from_std(socket)
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::{
        Settings,
        testing::{LOOPBACK, TestHouse, only},
    };

    /// Datagrams that come to an ordinary socket, with which answers are lost.
    fn datagrams(house: &TestHouse) -> (Datagrams, std::net::UdpSocket) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let copy = || socket.try_clone().unwrap();
        let answers = (copy().into(), copy().into());
        (Datagrams::new(house.door.clone(), copy(), answers).unwrap(), socket)
    }

    #[tokio::test]
    async fn whoever_sends_without_end_leaves_room_for_others() {
        let house = TestHouse::start(only(&[])).await;
        let (datagrams, socket) = datagrams(&house);
        for _ in 0..200 {
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        }
        // So that the runtime knows of them.
        datagrams.socket.readable().await.unwrap();
        let received = datagrams.receive_all();
        tokio::pin!(received);
        assert!(poll!(received.as_mut()).is_pending());
        assert!(socket.recv(&mut [0]).is_ok(), "all of them were taken in one turn");
    }

    #[tokio::test]
    async fn datagrams_are_held_to_the_bandwidth_of_the_sandbox() {
        let settings = Settings { bandwidth: Some(1024), ..Settings::default() };
        let house = TestHouse::with(only(&[LOOPBACK]), settings).await;
        let (datagrams, _socket) = datagrams(&house);
        let host = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        host.set_nonblocking(true).unwrap();
        let flow = Flow { from: "198.18.0.1:9".parse().unwrap(), to: host.local_addr().unwrap() };
        for _ in 0..100 {
            datagrams.take(flow, &[0; 4096]);
        }
        let arrived = (0..100).take_while(|_| host.recv(&mut [0; 4096]).is_ok()).count();
        assert!((1..50).contains(&arrived), "{arrived} of 100 came through");
    }
}
