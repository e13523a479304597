//! What is bounded, and what happens at the bound.

use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::daemon::{Daemon, request};

/// How many connections execd answers at once.
const CONNECTIONS: usize = 1024;

#[tokio::test]
async fn connections_beyond_the_bound_wait_their_turn() {
    osb_sys::rlimit::raise().unwrap();
    let daemon = Daemon::start();
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(("127.0.0.1", daemon.port())).await.unwrap());
    }
    // One of them has been accepted last, and with it all before.
    let last = idle.last_mut().unwrap();
    last.write_all(b"GET /ping HTTP/1.1\r\nhost: sandbox\r\n\r\n").await.unwrap();
    assert!(last.read_u8().await.is_ok());
    let mut next = daemon.connect().await;
    let mut waiting = Box::pin(next.send(request(Method::GET, "/ping", "")));
    let turn = tokio::time::timeout(std::time::Duration::from_millis(100), &mut waiting).await;
    assert!(turn.is_err(), "it was answered although all places are taken");
    drop(idle.swap_remove(0));
    assert_eq!(waiting.await.status(), StatusCode::OK);
}
