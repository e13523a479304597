use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use crate::dns::{Code, Reply};

/// How long one server has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often all servers are asked.
const ROUNDS: usize = 2;
/// The longest answer that is taken.
const LONGEST: usize = 16 * 1024;

/// Asks one server after the other until one answers. A server that has trouble is passed over, and
/// its answer taken if none has a better one.
pub(super) async fn exchange(servers: &[SocketAddr], question: &[u8]) -> Option<Vec<u8>> {
    let mut trouble = None;
    for _ in 0..ROUNDS {
        for server in servers {
            let answer = timeout(PATIENCE, by_datagram(*server, question)).await;
            let (answer, reply) = match answer {
                Ok(Ok(answered)) => answered,
                Ok(Err(error)) => {
                    tracing::debug!(%server, %error, "a resolver could not be asked");
                    continue;
                }
                Err(_) => continue,
            };
            if reply.truncated {
                if let Ok(Ok(whole)) = timeout(PATIENCE, by_stream(*server, question)).await {
                    return Some(whole);
                }
                continue;
            }
            if [Code::Fine as u8, Code::NoSuchName as u8].contains(&reply.code) {
                return Some(answer);
            }
            trouble = Some(answer);
        }
    }
    trouble
}

/// From a port of its own, so that who answers must have seen the question.
async fn by_datagram(server: SocketAddr, question: &[u8]) -> io::Result<(Vec<u8>, Reply)> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    loop {
        let mut answer = Vec::with_capacity(4096);
        socket.recv_buf(&mut answer).await?;
        if let Some(reply) = Reply::read(&answer, question) {
            return Ok((answer, reply));
        }
    }
}

async fn by_stream(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    match Reply::read(&answer, question) {
        Some(_) => Ok(answer),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "it answers something else")),
    }
}
