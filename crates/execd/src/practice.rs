//! A first command that nobody has asked for.
//!
//! An execd that waits for its purpose has time. What it does now, the first real command finds mapped,
//! looked up and allocated: by execd, and by the shell of the image in the root that is this sandbox's own.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::Router;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    signal::unix,
    time::timeout,
};

use crate::{daemon::Daemon, env, environment::Environment, metrics::Meter, serve};

/// How long it may take. It is a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has the shell do nothing.
const BODY: &str = r#"{"command":":"}"#;

static REQUEST: LazyLock<String> = LazyLock::new(|| {
    let length = BODY.len();
    format!(
        "POST /command HTTP/1.1\r\nhost: execd\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{BODY}"
    )
});

/// Answers it, by a daemon of which nothing is left afterwards. How that went makes no difference:
/// it was for nobody.
pub(crate) async fn answer(
    routes: &Router<Arc<Daemon>>,
    children: &mut unix::Signal,
) -> Option<Vec<u8>> {
    // As in nearly every sandbox: what a shell reads depends on them.
    let variables = [(env::ENV_FILE, env::DEFAULT_ENV_FILE), ("LC_CTYPE", "C.UTF-8")];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    let environment = Environment::new(BTreeMap::from(variables), PathBuf::from("/"));
    let daemon = Arc::new(Daemon::bare(environment, Meter::found()));
    let routes = routes.clone().with_state(Arc::clone(&daemon));
    let (mut caller, stream) = UnixStream::pair().ok()?;
    serve::converse(stream, None, &daemon, &routes, ());
    let asking = async {
        caller.write_all(REQUEST.as_bytes()).await?;
        let mut answer = Vec::new();
        caller.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let reaping = async {
        while children.recv().await.is_some() {
            daemon.reaper.reap();
        }
    };
    let all = async {
        let answer = timeout(PATIENCE, asking).await;
        // A shell that is still busy with nothing has no more time.
        daemon.reaper.signal_all(Signal::KILL);
        daemon.tasks.close();
        let ended = timeout(PATIENCE, daemon.tasks.wait()).await;
        answer.ok().filter(|_| ended.is_ok())?.ok()
    };
    tokio::select! {
        answer = all => answer,
        () = reaping => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[tokio::test]
    async fn a_shell_is_run_to_its_end() {
        let mut children = signal(SignalKind::child()).unwrap();
        let answer = answer(&crate::routes::table(), &mut children).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains("\"type\":\"execution_complete\""), "{answer}");
    }
}
