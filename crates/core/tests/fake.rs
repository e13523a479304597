//! The controls of the fake runtime. What it has in common with every runtime is in the
//! conformance suite.

use std::{
    future::poll_fn,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    task::Poll,
};

use futures_util::{FutureExt as _, StreamExt as _};
use osb_api::{SandboxId, ports};
use osb_core::{
    Dialled, Exit, ImageName, Observed, ObservedState, Pause as _, Runtime, RuntimeError,
    SandboxSpec, Token,
    testkit::{Call, FakeRuntime},
};

fn spec() -> SandboxSpec {
    SandboxSpec::new(
        SandboxId::random(),
        ImageName::new("host"),
        vec!["sleep".to_owned()],
        Token::new("t"),
    )
}

async fn dial(runtime: &FakeRuntime, id: SandboxId) -> UnixStream {
    let Ok(Dialled::Unix(stream)) = runtime.dial(id, ports::EXECD).await else {
        panic!("execd cannot be dialled");
    };
    stream.set_nonblocking(false).expect("a stream that blocks");
    stream
}

fn ask(stream: &mut UnixStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = vec![0; 1024];
    let count = stream.read(&mut answer).expect("an answer");
    answer.truncate(count);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_gate_holds_ensures_back_until_it_opens() {
    let runtime = FakeRuntime::new();
    let gate = runtime.hold_ensures();
    let (first, dropped) = (spec(), spec());
    let mut ensure = runtime.ensure(&first);
    let mut abandoned = runtime.ensure(&dropped);
    poll_fn(|cx| {
        assert!(ensure.poll_unpin(cx).is_pending() && abandoned.poll_unpin(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(gate.waiting(), 2);
    drop(abandoned);
    assert_eq!(gate.waiting(), 1);
    assert_eq!(runtime.observed(first.id), Some(ObservedState::Starting));
    assert!(matches!(
        runtime.dial(first.id, ports::EXECD).await,
        Err(RuntimeError::Refused { .. })
    ));

    gate.open();
    assert_eq!(ensure.await.unwrap().state, ObservedState::Running);
    assert_eq!(runtime.observed(dropped.id), Some(ObservedState::Starting), "it can be removed");
    assert_eq!(runtime.ensure(&spec()).await.unwrap().state, ObservedState::Running);
}

#[tokio::test]
async fn a_sandbox_removed_at_the_gate_does_not_come_back() {
    let runtime = FakeRuntime::new();
    let gate = runtime.hold_ensures();
    let spec = spec();
    let mut ensure = runtime.ensure(&spec);
    poll_fn(|cx| {
        assert!(ensure.poll_unpin(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    runtime.remove(spec.id).await.unwrap();
    gate.open();
    assert!(ensure.await.is_err());
    assert_eq!(runtime.observed(spec.id), None);
}

#[tokio::test]
async fn the_next_call_fails_as_told_and_the_one_after_does_not() {
    let runtime = FakeRuntime::new();
    let spec = spec();
    runtime.fail_next(Call::Ensure, RuntimeError::Busy("full".to_owned()));
    assert!(matches!(runtime.ensure(&spec).await, Err(RuntimeError::Busy(_))));
    assert_eq!(runtime.observed(spec.id), None, "a failed ensure leaves nothing");
    runtime.ensure(&spec).await.unwrap();
    runtime.fail_next(Call::Remove, RuntimeError::failed("remove it", "device is busy"));
    assert!(runtime.remove(spec.id).await.is_err());
    assert!(runtime.observed(spec.id).is_some(), "a failed remove leaves the sandbox");
    runtime.remove(spec.id).await.unwrap();
    assert_eq!((runtime.calls(Call::Ensure), runtime.calls(Call::Remove)), (2, 2));
}

#[tokio::test]
async fn the_world_can_misbehave() {
    let runtime = FakeRuntime::new();
    let mut changes = runtime.watch();
    let orphan = runtime.add_orphan();
    let running = Observed::new(orphan, ObservedState::Running);
    assert_eq!(changes.next().await, Some(running.clone()));
    assert_eq!(runtime.list().await.unwrap(), [running]);

    runtime.end(orphan, Exit::OutOfMemory);
    let ended = ObservedState::Exited(Exit::OutOfMemory);
    assert_eq!(changes.next().await, Some(Observed::new(orphan, ended)));

    runtime.vanish(orphan);
    assert!(changes.next().now_or_never().is_none(), "a sandbox vanishes without a word");
    assert_eq!(runtime.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_slow_reader_misses_the_oldest_changes() {
    let runtime = FakeRuntime::new();
    let mut changes = runtime.watch();
    let orphans: Vec<SandboxId> = (0..3000).map(|_| runtime.add_orphan()).collect();
    let mut seen = Vec::new();
    while let Some(Some(observed)) = changes.next().now_or_never() {
        seen.push(observed.id);
    }
    assert!(seen.len() < orphans.len());
    assert!(orphans.ends_with(&seen));
}

#[tokio::test]
async fn execd_answers_any_request_on_a_kept_connection() {
    let runtime = FakeRuntime::new();
    let spec = spec();
    runtime.ensure(&spec).await.unwrap();
    let mut stream = dial(&runtime, spec.id).await;
    for request in [
        "GET /ping HTTP/1.1\r\n\r\n",
        "POST /command HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody",
        "POST /command HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ] {
        let answer = ask(&mut stream, request);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("{}"), "{answer}");
    }
    runtime.end(spec.id, Exit::Code(0));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the stream ends with the sandbox");
}

#[tokio::test]
async fn a_paused_sandbox_answers_once_it_goes_on() {
    let runtime = FakeRuntime::new();
    let spec = spec();
    runtime.ensure(&spec).await.unwrap();
    Runtime::pause(&runtime).unwrap().pause(spec.id).await.unwrap();
    let mut stream = dial(&runtime, spec.id).await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stream.set_nonblocking(true).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "a paused sandbox answered");
    stream.set_nonblocking(false).unwrap();
    runtime.resume(spec.id).await.unwrap();
    assert_ne!(stream.read(&mut [0]).unwrap(), 0);
}

#[tokio::test]
async fn ports_open_and_close() {
    let runtime = FakeRuntime::new();
    let spec = spec();
    runtime.ensure(&spec).await.unwrap();
    runtime.listen(spec.id, 80, |mut line| line.write_all(b"hi").expect("a stream"));
    let Dialled::Unix(mut stream) = runtime.dial(spec.id, 80).await.unwrap() else {
        panic!("fakes dial unix streams");
    };
    let mut greeting = String::new();
    stream.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "hi");
    runtime.unlisten(spec.id, 80);
    let refused = runtime.dial(spec.id, 80).await;
    assert!(matches!(refused, Err(RuntimeError::Refused { port: 80, .. })), "{refused:?}");
}
