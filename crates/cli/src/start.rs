//! A sandbox until it takes commands.

use std::{pin::pin, time::Duration};

use opensandbox::{
    ClientError, Lifecycle, Sandbox,
    api::lifecycle::{CreateSandboxRequest, CreateSandboxResponse},
};
use tokio::time::sleep;

use crate::{
    output::Output,
    progress::{Detail, Progress},
};

/// How long nothing is said. Most sandboxes are there before.
const SILENCE: Duration = Duration::from_secs(2);

/// Makes a sandbox and waits until it takes commands, however long its image takes to get here. If it
/// does not come to that, what was made of it is removed again.
pub(crate) async fn start(
    lifecycle: &Lifecycle,
    request: &CreateSandboxRequest,
    output: &mut Output<'_>,
) -> Result<Sandbox, ClientError> {
    let created = create(lifecycle, request, Some(output)).await?;
    match wait(lifecycle, &created, Some(output)).await {
        Ok(sandbox) => Ok(sandbox),
        Err(error) => {
            // The first error is the one to know about; the sandbox's own end catches the rest.
            drop(lifecycle.delete(&created.id).await);
            Err(error)
        }
    }
}

/// Has the server make a sandbox, and says so if that takes a while.
pub(crate) async fn create(
    lifecycle: &Lifecycle,
    request: &CreateSandboxRequest,
    output: Option<&mut Output<'_>>,
) -> Result<CreateSandboxResponse, ClientError> {
    let mut creation = pin!(lifecycle.create(request));
    let (Some(output), Some(image)) = (output, &request.image) else { return creation.await };
    tokio::select! {
        created = &mut creation => return created,
        () = sleep(SILENCE) => {}
    }
    let mut progress = Progress::new(output, Detail::Some);
    progress.stage(&format!("the server prepares {}", image.uri));
    creation.await
}

/// Waits for a sandbox that was just made, and says what it waits for.
pub(crate) async fn wait(
    lifecycle: &Lifecycle,
    created: &CreateSandboxResponse,
    output: Option<&mut Output<'_>>,
) -> Result<Sandbox, ClientError> {
    if created.status.state != "Pending" {
        return Sandbox::connect(lifecycle, &created.id).await;
    }
    let mut progress = output.map(|output| Progress::new(output, Detail::Some));
    Sandbox::follow(lifecycle, &created.id, |status| {
        if let (Some(progress), Some(message)) = (&mut progress, &status.message) {
            progress.status(message);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use opensandbox::testkit::FakeBackend;

    use super::*;

    async fn start_one(backend: &FakeBackend) -> (Result<Sandbox, ClientError>, String) {
        let lifecycle = Lifecycle::new(backend.connection());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let started = start(&lifecycle, &Sandbox::request("debian"), &mut output).await;
        (started, String::from_utf8(err).unwrap())
    }

    #[tokio::test]
    async fn whoever_waits_for_an_image_hears_of_it() {
        let backend = FakeBackend::start().await;
        backend.hold_starts(&["pulling debian: 1 of 2 layers"; 3]);
        let (started, err) = start_one(&backend).await;
        assert_eq!(started.unwrap().id(), "sandbox-1");
        assert_eq!(err, "osb: pulling debian: 1 of 2 layers\n");
        let (_, err) = start_one(&backend).await;
        assert_eq!(err, "");
    }

    #[tokio::test]
    async fn an_image_that_does_not_come_is_the_reason() {
        let backend = FakeBackend::start().await;
        backend.hold_starts(&["pulling debian"; 2]);
        backend.fail_starts("the registry does not have debian:nope");
        let (started, _) = start_one(&backend).await;
        let error = started.unwrap_err().to_string();
        assert!(error.contains("the registry does not have debian:nope"), "{error}");
        assert!(backend.sandboxes().is_empty());
    }
}
