//! Opening streams into a sandbox.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use osb_api::{SandboxId, ports};
use osb_core::{Dialled, RuntimeError};

use super::Native;

impl Native {
    pub(super) async fn reach(&self, id: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        let pidfd = self.up(id)?;
        if port == ports::EXECD {
            return match self.place(id).connect() {
                Ok(stream) => Ok(Dialled::Unix(stream)),
                Err(error) if is_refusal(&error) => Err(RuntimeError::Refused { id, port }),
                Err(error) => Err(RuntimeError::failed("cannot reach execd", error)),
            };
        }
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            match self.connect(&pidfd, SocketAddr::new(address, port)).await {
                Ok(stream) => return Ok(Dialled::Tcp(stream)),
                Err(error) if is_refusal(&error) => {}
                Err(error) => {
                    return Err(RuntimeError::failed("cannot reach into the sandbox", error));
                }
            }
        }
        Err(RuntimeError::Refused { id, port })
    }

    async fn connect(&self, pidfd: &OwnedFd, to: SocketAddr) -> io::Result<std::net::TcpStream> {
        let socket = self.inner.sockets.tcp(pidfd, to)?;
        let socket = tokio::net::TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        stream.into_std()
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}
