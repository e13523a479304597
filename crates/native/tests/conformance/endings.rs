//! How the entrypoint of a sandbox that is removed ends.

use std::{path::PathBuf, time::Duration};

use osb_core::{
    Runtime as _, SandboxSpec, Volume, VolumeSource, testkit::conformance::Harness as _,
};
use osb_image::RunConfiguration;

use super::{Host, host, images::on, made};

/// A sandbox whose entrypoint does `then` when one of the signals comes, with a volume at `/kept`.
fn listening(host: &Host, image: &str, signals: &str, then: &str) -> SandboxSpec {
    let mut spec = on(host, image);
    let script = format!("trap '{then}' {signals}; echo > /listens; while :; do sleep 0.01; done");
    spec.entrypoint = vec!["sh".to_owned(), "-c".to_owned(), script];
    with_volume(&mut spec);
    spec
}

fn with_volume(spec: &mut SandboxSpec) {
    let source = VolumeSource::Named { name: "endings".to_owned(), create: true, ephemeral: false };
    spec.volumes = vec![Volume {
        at: PathBuf::from("/kept"),
        sub_path: PathBuf::new(),
        read_only: false,
        source,
    }];
}

async fn starts(host: &Host, spec: &SandboxSpec) {
    host.native().ensure(spec).await.unwrap();
    while host.read(spec, "/listens").await.is_none() {
        host.wait(Duration::from_millis(5)).await;
    }
}

/// What the sandbox has left in its volume.
async fn left(host: &Host) -> Option<String> {
    let mut spec = on(host, "host");
    with_volume(&mut spec);
    host.native().ensure(&spec).await.unwrap();
    let left = host.read(&spec, "/kept/said").await;
    host.native().remove(spec.id).await.unwrap();
    host.native().volumes().unwrap().remove("endings").await.unwrap();
    left
}

#[tokio::test]
async fn an_entrypoint_is_asked_to_end_before_its_sandbox_goes() {
    let Some(host) = host().await else { return };
    let spec = listening(&host, "host", "TERM", "echo asked > /kept/said; exit 0");
    starts(&host, &spec).await;
    host.native().remove(spec.id).await.unwrap();
    assert_eq!(left(&host).await.as_deref(), Some("asked\n"));
}

#[tokio::test]
async fn it_is_asked_with_the_signal_of_its_image() {
    let Some(host) = host().await else { return };
    let config = RunConfiguration { stop_signal: "SIGUSR2".to_owned(), ..Default::default() };
    made::put(host.native().images(), "own-signal", &[made::base()], config);
    let mut spec = listening(&host, "own-signal", "TERM", "echo wrong >> /kept/said");
    let script = spec.entrypoint.pop().unwrap();
    spec.entrypoint.push(format!("trap 'echo right >> /kept/said; exit 0' USR2; {script}"));
    starts(&host, &spec).await;
    host.native().remove(spec.id).await.unwrap();
    assert_eq!(left(&host).await.as_deref(), Some("right\n"));
}

#[tokio::test]
async fn one_that_does_not_want_to_end_is_ended() {
    let Some(host) = host().await else { return };
    let spec = listening(&host, "host", "TERM INT", "echo asked >> /kept/said");
    starts(&host, &spec).await;
    host.native().remove(spec.id).await.unwrap();
    assert_eq!(left(&host).await.as_deref(), Some("asked\n"), "asked once, and then no more");
}

#[tokio::test]
async fn one_that_is_paused_is_not_waited_for() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let Some(power) = native.pause() else { return };
    let spec = listening(&host, "host", "TERM", "echo asked >> /kept/said");
    starts(&host, &spec).await;
    power.pause(spec.id).await.unwrap();
    native.remove(spec.id).await.unwrap();
    assert_eq!(left(&host).await, None);
}
