//! The port at which published clients look whether code can be run.

use std::{
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tokio::{net::TcpListener, time::sleep};

use crate::environment::Environment;

/// Where they look, unless [`VARIABLE`] says otherwise.
const PORT: u16 = 44771;

const VARIABLE: &str = "JUPYTER_PORT";

/// How long to wait if a connection cannot be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// A port on loopback at which everybody is let in, and nobody is answered.
#[derive(Debug)]
pub(crate) struct Door(Option<TcpListener>);

impl Door {
    /// Opens the usual port, unless somebody has it already.
    pub(crate) fn open() -> Self {
        Self(listen(PORT).ok())
    }

    /// The same if the environment names no other.
    pub(crate) fn said_in(self, environment: &Environment) -> Self {
        let said = environment.base().get(std::ffi::OsStr::new(VARIABLE));
        let said = said.and_then(|port| port.to_str()?.parse().ok());
        match said {
            Some(port) if port != PORT && port != 0 => Self(listen(port).ok()),
            _ => self,
        }
    }

    /// Lets everybody in.
    pub(crate) async fn keep<Never>(self) -> Never {
        let Some(listener) = self.0 else { return pending().await };
        loop {
            if listener.accept().await.is_err() {
                sleep(PAUSE).await;
            }
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
