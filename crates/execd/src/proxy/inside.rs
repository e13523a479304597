use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Dialled, RuntimeError};
use osb_gateway::Dial;
use tokio::net::TcpStream;

/// Where services of the sandbox listen, seen from inside. Some take `localhost` for the second.
const LOCAL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Connects to services of the sandbox that we are in.
#[derive(Debug)]
pub(super) struct Inside;

#[async_trait]
impl Dial for Inside {
    async fn dial(&self, sandbox: SandboxId, port: u16) -> Result<Dialled, RuntimeError> {
        for address in LOCAL {
            match TcpStream::connect((address, port)).await {
                Ok(stream) => {
                    let stream = stream.into_std();
                    return stream.map(Dialled::Tcp).map_err(|error| failed(port, error));
                }
                // Refused, or this address does not exist here.
                Err(error) if address.is_ipv6() || is_refusal(&error) => {}
                Err(error) => return Err(failed(port, error)),
            }
        }
        Err(RuntimeError::Refused { id: sandbox, port })
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

fn failed(port: u16, error: io::Error) -> RuntimeError {
    RuntimeError::failed(format!("connect to port {port}"), error)
}
