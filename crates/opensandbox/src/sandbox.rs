use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use osb_api::{
    execd::{EventKind, RunCommand, UploadMetadata},
    lifecycle::{CreateSandboxRequest, ImageSpec, SandboxStatus},
};
use tokio::time::{Instant, sleep};

use crate::{ClientError, Events, Execd, Lifecycle, Outcome, output_line};

/// A sandbox that is ready for work.
///
/// Dropping it leaves the sandbox running until its time is up; [`Sandbox::kill`] ends it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    id: String,
    lifecycle: Lifecycle,
    execd: Execd,
}

/// What a finished command left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    pub outcome: Outcome,
}

impl Sandbox {
    /// A request for a sandbox of this image with the defaults of all SDKs: one core, 2 GiB of
    /// memory, ten minutes, and a main program that does nothing.
    pub fn request(image: impl Into<String>) -> CreateSandboxRequest {
        let limits = [("cpu", "1"), ("memory", "2Gi")];
        CreateSandboxRequest {
            image: Some(ImageSpec { uri: image.into(), auth: None }),
            timeout: Some(600),
            resource_limits: Some(
                limits.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ),
            entrypoint: Some(["tail", "-f", "/dev/null"].map(ToOwned::to_owned).into()),
            ..CreateSandboxRequest::default()
        }
    }

    /// Makes a sandbox and waits until it takes commands. If it does not come to that, what was
    /// made of it is removed again.
    pub async fn create(
        lifecycle: &Lifecycle,
        request: &CreateSandboxRequest,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now() + lifecycle.ready_within();
        let id = lifecycle.create(request).await?.id;
        match Self::ready(lifecycle, &id, deadline).await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                // The first error is the one to know about; the sandbox's own end catches the rest.
                drop(lifecycle.delete(&id).await);
                Err(error)
            }
        }
    }

    /// The sandbox with this id, once it takes commands.
    pub async fn connect(lifecycle: &Lifecycle, id: &str) -> Result<Self, ClientError> {
        let deadline = Instant::now() + lifecycle.ready_within();
        Self::ready(lifecycle, id, deadline).await
    }

    /// The same, but as long as it is `Pending`, as while its image is pulled, it is waited for
    /// however long that takes, and `watch` is told its status each time it is asked for.
    pub async fn follow(
        lifecycle: &Lifecycle,
        id: &str,
        mut watch: impl FnMut(&SandboxStatus),
    ) -> Result<Self, ClientError> {
        let mut pause = Duration::from_millis(10);
        loop {
            let status = lifecycle.get(id).await?.status;
            if status.state != "Pending" {
                return Self::connect(lifecycle, id).await;
            }
            watch(&status);
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    pub fn execd(&self) -> &Execd {
        &self.execd
    }

    /// Runs a program with its arguments, without a shell, to its end.
    pub async fn run<A: Into<String>>(
        &self,
        argv: impl IntoIterator<Item = A>,
    ) -> Result<Finished, ClientError> {
        let argv = Some(argv.into_iter().map(Into::into).collect());
        self.finish(&RunCommand { argv, ..RunCommand::default() }).await
    }

    /// Runs shell text to its end.
    pub async fn shell(&self, text: impl Into<String>) -> Result<Finished, ClientError> {
        self.finish(&RunCommand { command: Some(text.into()), ..RunCommand::default() }).await
    }

    /// Starts a command and returns its events as they happen.
    pub async fn stream(&self, command: &RunCommand) -> Result<Events, ClientError> {
        self.execd.run(command).await
    }

    /// Runs a command to its end and collects its output.
    pub async fn finish(&self, command: &RunCommand) -> Result<Finished, ClientError> {
        let mut events = self.stream(command).await?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let mut outcome = Outcome::NotStarted("it was never reported".to_owned());
        while let Some(event) = events.next().await? {
            if let Some(end) = Outcome::of(&event) {
                outcome = end;
            }
            match (event.kind, &event.text) {
                (EventKind::Stdout, Some(text)) => stdout.push_str(&output_line(text)),
                (EventKind::Stderr, Some(text)) => stderr.push_str(&output_line(text)),
                _ => {}
            }
        }
        Ok(Finished { stdout, stderr, outcome })
    }

    /// The sandbox's files.
    pub fn files(&self) -> Files<'_> {
        Files { execd: &self.execd }
    }

    /// Ends the sandbox. One that is gone already is success.
    pub async fn kill(&self) -> Result<(), ClientError> {
        match self.lifecycle.delete(&self.id).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        }
    }

    async fn ready(
        lifecycle: &Lifecycle,
        id: &str,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let mut pause = Duration::from_millis(2);
        loop {
            let failed = match reach(lifecycle, id).await {
                Ok(execd) => {
                    return Ok(Self { id: id.to_owned(), lifecycle: lifecycle.clone(), execd });
                }
                Err(error) => error,
            };
            // Ask why before trying again: a sandbox that has failed will not come up.
            let status = lifecycle.get(id).await?.status;
            let detail = status.message.or(status.reason);
            if matches!(status.state.as_str(), "Failed" | "Terminated" | "Stopping" | "Paused") {
                let detail = format!("{}: {}", status.state, detail.unwrap_or_default());
                return Err(ClientError::NotReady { id: id.to_owned(), detail });
            }
            if Instant::now() + pause >= deadline {
                let detail = format!("{} after the time to wait for it: {failed}", status.state);
                return Err(ClientError::NotReady { id: id.to_owned(), detail });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}

async fn reach(lifecycle: &Lifecycle, id: &str) -> Result<Execd, ClientError> {
    let execd = lifecycle.execd(id).await?;
    execd.ping().await?;
    Ok(execd)
}

/// The files of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    execd: &'a Execd,
}

impl Files<'_> {
    /// Writes a whole file; directories on the way are made.
    pub async fn write(
        &self,
        path: impl Into<String>,
        content: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        let metadata = UploadMetadata { path: path.into(), ..UploadMetadata::default() };
        let content = content.into();
        self.execd.upload(&metadata, stream::iter([Ok(content)])).await
    }

    /// Reads a whole file.
    pub async fn read(&self, path: &str) -> Result<Bytes, ClientError> {
        self.execd.download(path).await?.bytes().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{FakeBackend, Then};

    #[tokio::test]
    async fn a_sandbox_is_made_used_and_removed() {
        let backend = FakeBackend::start().await;
        backend.next_command(
            &[
                "{\"type\":\"stdout\",\"text\":\"hi\",\"timestamp\":1}\n\n",
                "{\"type\":\"stdout\",\"text\":\"\\n\",\"timestamp\":1}\n\n",
                "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"3\"},\"timestamp\":1}\n\n",
            ],
            Then::End,
        );
        let lifecycle = Lifecycle::new(backend.connection());
        let sandbox = Sandbox::create(&lifecycle, &Sandbox::request("host")).await.unwrap();
        let finished = sandbox.run(["echo", "hi"]).await.unwrap();
        assert_eq!(finished.stdout, "hi\n\n");
        assert_eq!(finished.outcome.code(), Some(3));
        sandbox.files().write("/a", "x").await.unwrap();
        sandbox.kill().await.unwrap();
        sandbox.kill().await.unwrap();
        assert!(backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn a_sandbox_is_waited_for_while_its_image_is_pulled() {
        let backend = FakeBackend::start().await;
        backend.hold_starts(&["pulling: 1 of 2 layers", "pulling: 2 of 2 layers"]);
        let lifecycle = Lifecycle::new(backend.connection());
        let id = lifecycle.create(&Sandbox::request("debian")).await.unwrap().id;
        let mut told = Vec::new();
        let watch = |status: &SandboxStatus| told.extend(status.message.clone());
        Sandbox::follow(&lifecycle, &id, watch).await.unwrap();
        assert_eq!(told, ["pulling: 1 of 2 layers", "pulling: 2 of 2 layers"]);
    }

    #[tokio::test]
    async fn a_sandbox_that_fails_to_start_is_removed_and_says_why() {
        let backend = FakeBackend::start().await;
        backend.fail_starts("no such entrypoint");
        let lifecycle = Lifecycle::new(backend.connection());
        let error = Sandbox::create(&lifecycle, &Sandbox::request("host")).await.unwrap_err();
        assert!(error.to_string().contains("no such entrypoint"), "{error}");
        assert!(backend.sandboxes().is_empty());
    }
}
