use std::{
    io::{ErrorKind, Read, Write},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use osb_api::{SandboxId, SnapshotId, headers, ports};

use super::{Breach, Harness, breach::hold};
use crate::{Dialled, ObservedState, Runtime, SandboxSpec};

/// How often to look whether something has happened.
pub(super) const STEP: Duration = Duration::from_millis(5);

/// One law being tried on one runtime.
pub(super) struct Trial<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) runtime: Arc<dyn Runtime>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(harness: &'a dyn Harness) -> Self {
        Self { harness, runtime: harness.runtime() }
    }

    /// The same trial on another runtime over the same world. Only that one is to be used from
    /// here on: a runtime may insist on having its world to itself.
    pub(super) async fn reopened(&self) -> Self {
        Self { harness: self.harness, runtime: self.harness.reopen().await }
    }

    /// A sandbox that is up.
    pub(super) async fn running(&self) -> Result<SandboxSpec, Breach> {
        let spec = self.harness.spec();
        self.runtime.ensure(&spec).await?;
        self.comes_to(spec.id, &ObservedState::Running).await?;
        Ok(spec)
    }

    /// A sandbox that is up and started with the files of a snapshot of another.
    pub(super) async fn restored(
        &self,
        source: &SandboxSpec,
        snapshot: SnapshotId,
    ) -> Result<SandboxSpec, Breach> {
        let mut spec = self.harness.spec();
        spec.image = source.image.clone();
        spec.snapshot = Some(snapshot);
        self.runtime.ensure(&spec).await?;
        self.comes_to(spec.id, &ObservedState::Running).await?;
        Ok(spec)
    }

    /// Checks what is in a file of a sandbox.
    pub(super) async fn has(
        &self,
        spec: &SandboxSpec,
        path: &str,
        text: Option<&str>,
    ) -> Result<(), Breach> {
        let found = self.harness.read(spec, path).await;
        hold!(found.as_deref() == text, "{path} has {found:?} and not {text:?}");
        Ok(())
    }

    /// The state in which the sandbox is listed, if it is.
    pub(super) async fn state(&self, id: SandboxId) -> Result<Option<ObservedState>, Breach> {
        let mut found = self.runtime.list().await?.into_iter().filter(|observed| observed.id == id);
        let state = found.next().map(|observed| observed.state);
        hold!(found.next().is_none(), "sandbox {id} is listed twice");
        hold!(state != Some(ObservedState::Gone), "sandbox {id} is listed as gone");
        Ok(state)
    }

    /// Waits until the sandbox is listed in this state.
    pub(super) async fn comes_to(
        &self,
        id: SandboxId,
        wanted: &ObservedState,
    ) -> Result<(), Breach> {
        let deadline = self.deadline();
        loop {
            let state = self.state(id).await?;
            if state.as_ref() == Some(wanted) {
                return Ok(());
            }
            hold!(Instant::now() < deadline, "it is listed as {state:?} and not as {wanted:?}");
            self.harness.wait(STEP).await;
        }
    }

    /// Checks that the sandbox is not listed, now and a moment later.
    pub(super) async fn stays_away(&self, id: SandboxId) -> Result<(), Breach> {
        for _ in 0..5 {
            let state = self.state(id).await?;
            hold!(state.is_none(), "it is listed as {state:?} though it was removed");
            self.harness.wait(STEP).await;
        }
        Ok(())
    }

    /// Asks the sandbox's execd for a sign of life.
    pub(super) async fn ping(&self, spec: &SandboxSpec) -> Result<(), Breach> {
        let mut stream = Stream(self.runtime.dial(spec.id, ports::EXECD).await?);
        let token = spec.token.reveal();
        let request = format!(
            "GET /ping HTTP/1.1\r\nhost: execd\r\n{}: {token}\r\n\r\n",
            headers::EXECD_TOKEN
        );
        // A new stream has room for so little.
        stream.write_all(request.as_bytes()).map_err(|e| Breach::new(format!("write: {e}")))?;
        let mut answer = Vec::new();
        while !answer.contains(&b'\n') {
            hold!(self.read(&mut stream, &mut answer).await?, "execd closed the stream");
        }
        let line = String::from_utf8_lossy(&answer);
        let answered =
            ["HTTP/1.1 200", "HTTP/1.1 204", "HTTP/1.1 401"].iter().any(|s| line.starts_with(s));
        hold!(answered, "execd answered {line:?}");
        Ok(())
    }

    /// Waits until the other side has closed the stream.
    pub(super) async fn closes(&self, dialled: Dialled) -> Result<(), Breach> {
        let mut stream = Stream(dialled);
        while self.read(&mut stream, &mut Vec::new()).await? {}
        Ok(())
    }

    /// Reads what is there, waiting for it; `false` at the end of the stream.
    async fn read(&self, stream: &mut Stream, into: &mut Vec<u8>) -> Result<bool, Breach> {
        let deadline = self.deadline();
        let mut buffer = [0; 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    into.extend(buffer.iter().take(count));
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(Breach::new(format!("read: {error}"))),
            }
            hold!(Instant::now() < deadline, "the stream stayed silent and open");
            self.harness.wait(STEP).await;
        }
    }

    /// What a future gives if it is done in this time; it is dropped otherwise.
    pub(super) async fn within<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        match select(pin!(future), pin!(self.harness.wait(time))).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// Removes whatever a law has left.
    pub(super) async fn clean(&self) {
        let runtime = self.harness.runtime();
        for observed in runtime.list().await.unwrap_or_default() {
            // The outcome of the law stands; what cannot be removed now is the harness's to drop.
            runtime.remove(observed.id).await.ok();
        }
        let Some(snapshots) = runtime.snapshots() else { return };
        for kept in snapshots.kept().await.unwrap_or_default() {
            snapshots.delete(kept.id).await.ok();
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.harness.patience()
    }
}

struct Stream(Dialled);

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Dialled::Tcp(stream) => stream.read(buf),
            Dialled::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Dialled::Tcp(stream) => stream.write(buf),
            Dialled::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
