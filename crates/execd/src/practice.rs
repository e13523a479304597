//! A first request that nobody has sent.
//!
//! An execd that waits for its purpose has time. What it answers now, the first real request finds
//! mapped and allocated, which is a good part of what a command takes.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    signal::unix::Signal,
    time::timeout,
};

use crate::{daemon::Daemon, environment::Environment, metrics::Meter, serve};

/// How long it may take. It is a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has this very program say its version: nothing of the image is executed before somebody has a use
/// for it.
const REQUEST: &[u8] = b"POST /command HTTP/1.1\r\nhost: execd\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 39\r\n\r\n\
    {\"argv\":[\"/proc/self/exe\",\"--version\"]}";

/// Answers it, by a daemon of which nothing is left afterwards. How that went makes no difference:
/// it was for nobody.
pub(crate) async fn answer(routes: &Router<Arc<Daemon>>, children: &mut Signal) -> Option<Vec<u8>> {
    let environment = Environment::new(BTreeMap::new(), PathBuf::from("/"));
    let daemon = Arc::new(Daemon::bare(environment, Meter::found()));
    let routes = routes.clone().with_state(Arc::clone(&daemon));
    let (mut caller, stream) = duplex(REQUEST.len());
    serve::converse(stream, None, &daemon, &routes, ());
    let asking = async {
        caller.write_all(REQUEST).await?;
        let mut answer = Vec::new();
        caller.read_to_end(&mut answer).await?;
        daemon.tasks.close();
        daemon.tasks.wait().await;
        std::io::Result::Ok(answer)
    };
    let reaping = async {
        while children.recv().await.is_some() {
            daemon.reaper.reap();
        }
    };
    tokio::select! {
        answer = timeout(PATIENCE, asking) => answer.ok()?.ok(),
        () = reaping => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[tokio::test]
    async fn a_program_is_run_to_its_end() {
        let mut children = signal(SignalKind::child()).unwrap();
        let answer = answer(&crate::routes::table(), &mut children).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // A test does not know the flag, so it ends with an error, but it ends.
        assert!(answer.contains("\"type\":\"error\""), "{answer}");
    }
}
