//! How programs of a sandbox talk to others, and what is true of native sandboxes alone.

use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    net::SocketAddr,
};

use osb_core::{
    Network as _, Outlets, Runtime as _, RuntimeError, SandboxSpec,
    testkit::conformance::{Harness as _, Reply, Transport},
};
use osb_sys::outlets::{answer, receive};

use super::{Host, ask, host};

/// Has a program of the sandbox send a line to an address and wait for the line that comes back.
pub(crate) async fn talk(
    host: &Host,
    spec: &SandboxSpec,
    how: Transport,
    to: SocketAddr,
    line: &str,
) -> Reply {
    let (ip, port) = (to.ip(), to.port());
    // A datagram that is not answered at once is lost; nobody says so.
    let (kind, patience) = match how {
        Transport::Stream => ("tcp", 20),
        Transport::Datagram => ("udp", 5),
    };
    let script = format!(
        "exec 3<>/dev/{kind}/{ip}/{port} && echo {line} >&3 && echo heard $(timeout {patience} head -n 1 <&3)"
    );
    let body = serde_json::json!({ "command": format!("bash -c '{script}'") }).to_string();
    let (status, events) = ask(host, spec, "POST /command", &body).await;
    assert_eq!(status, 200, "{events}");
    let heard = events.split("heard ").nth(1).and_then(|rest| rest.split(['"', '\\']).next());
    match heard {
        Some(line) if !line.is_empty() => Reply::Line(line.to_owned()),
        _ if events.contains("refused") => Reply::Refused,
        _ => Reply::Silence,
    }
}

/// Takes a line that has arrived and answers it.
pub(crate) fn hear(
    outlets: &Outlets,
    how: Transport,
    reply: &str,
) -> io::Result<(SocketAddr, String)> {
    match how {
        Transport::Stream => {
            let (mut stream, _) = outlets.streams.accept()?;
            stream.set_nonblocking(false)?;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line)?;
            writeln!(stream, "{reply}")?;
            let to = stream.local_addr()?;
            Ok((SocketAddr::new(to.ip().to_canonical(), to.port()), line.trim_end().to_owned()))
        }
        Transport::Datagram => {
            let mut buffer = [0; 64];
            let received = receive(&outlets.datagrams, &mut buffer)?;
            answer(&outlets.answers, received.to, received.from, format!("{reply}\n").as_bytes())?;
            let line = String::from_utf8_lossy(buffer.get(..received.length).unwrap_or_default());
            Ok((received.to, line.trim_end().to_owned()))
        }
    }
}

#[tokio::test]
async fn nobody_inside_reaches_the_outlets_by_their_own_port() {
    let Some(host) = host().await else { return };
    let spec = host.spec();
    host.native().ensure(&spec).await.unwrap();
    let outlets = host.native().outlets(spec.id).await.unwrap();
    for own in ["127.0.0.1", "127.1.2.3", "[::1]", "198.18.0.1", "[fd53::1]", "0.0.0.0", "[::]"] {
        let to = format!("{own}:1").parse().unwrap();
        let reply = talk(&host, &spec, Transport::Stream, to, "x").await;
        assert_eq!(reply, Reply::Refused, "{to}");
        for how in [Transport::Stream, Transport::Datagram] {
            assert_eq!(hear(&outlets, how, "").unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
    host.native().remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn outlets_are_not_opened_twice() {
    let Some(host) = host().await else { return };
    let spec = host.spec();
    host.native().ensure(&spec).await.unwrap();
    let outlets = host.native().outlets(spec.id).await.unwrap();
    let again = host.native().outlets(spec.id).await.unwrap_err();
    assert!(matches!(again, RuntimeError::Failed { .. }), "{again:?}");
    drop(outlets);
    host.native().outlets(spec.id).await.unwrap();
    host.native().remove(spec.id).await.unwrap();
}
