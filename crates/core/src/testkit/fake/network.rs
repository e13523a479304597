use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
};

use async_trait::async_trait;
use osb_api::SandboxId;

use super::{Call, FakeRuntime};
use crate::{Network, ObservedState, Outlets, RuntimeError};

/// Nothing is ever sent by these sandboxes, so nothing ever arrives at their outlets.
#[async_trait]
impl Network for FakeRuntime {
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError> {
        self.begin(Call::Outlets)?;
        match self.observed(id) {
            Some(ObservedState::Running | ObservedState::Paused) => {
                outlets().map_err(|source| RuntimeError::failed("open outlets", source))
            }
            Some(_) | None => Err(RuntimeError::NotFound(id)),
        }
    }
}

fn outlets() -> io::Result<Outlets> {
    let streams = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    streams.set_nonblocking(true)?;
    let datagram = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    Ok(Outlets {
        streams,
        datagrams: datagram()?,
        answers: (datagram()?.into(), datagram()?.into()),
    })
}
