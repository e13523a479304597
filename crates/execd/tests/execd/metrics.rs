//! What a sandbox is said to use.

use http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use osb_api::execd::Metrics;
use osb_core::{
    Cpu, Memory,
    agent::{CgroupVersion, Counters},
};

use crate::{
    daemon::{Daemon, bytes},
    sandbox::Sandbox,
};

const V2: Counters = Counters {
    version: CgroupVersion::V2,
    cpu: Some(Cpu::from_millis(500)),
    memory: Some(Memory::from_bytes(64 << 20)),
};

async fn metrics(response: Response<Incoming>) -> Metrics {
    assert_eq!(response.status(), StatusCode::OK);
    let metrics: Metrics = serde_json::from_slice(&bytes(response).await).unwrap();
    assert!(metrics.cpu_count >= 1.0 && metrics.cpu_count.fract() == 0.0, "{metrics:?}");
    assert!((0.0..=100.0).contains(&metrics.cpu_used_pct), "{metrics:?}");
    assert!((0.0..=metrics.mem_total_mib).contains(&metrics.mem_used_mib), "{metrics:?}");
    metrics
}

#[tokio::test]
async fn a_daemon_without_a_sandbox_finds_what_it_may_use() {
    let daemon = Daemon::start();
    let first = metrics(daemon.get("/metrics").await).await;
    assert!(first.mem_total_mib > 1.0 && first.mem_used_mib > 0.1, "{first:?}");
    for _ in 0..100 {
        metrics(daemon.get("/metrics").await).await;
    }
}

#[tokio::test]
async fn the_counters_of_the_sandbox_are_told_and_not_those_of_the_machine() {
    let usage = ["usage_usec 0\n", "41943040\n", "anon 1\ninactive_file 10485760\n"];
    let sandbox = Sandbox::counted(V2, usage);
    let ask = || async { metrics(sandbox.ask(Method::GET, "/metrics", "").await).await };
    let first = ask().await;
    assert_eq!(first.cpu_count.to_string(), "1");
    assert_eq!((first.mem_used_mib, first.mem_total_mib), (30.0, 64.0));
    assert_eq!(first.cpu_used_pct.to_string(), "0");
    // More than the limit allows in any time that has passed, and more than there may be.
    osb_sys::fs::write(sandbox.path("cpu"), "usage_usec 3600000000\n").unwrap();
    osb_sys::fs::write(sandbox.path("memory"), "99999999999\n").unwrap();
    let second = ask().await;
    assert_eq!((second.cpu_used_pct, second.mem_used_mib), (100.0, 64.0));
    assert!(second.timestamp >= first.timestamp);
}

#[tokio::test]
async fn both_versions_of_control_groups_are_understood() {
    let counters = Counters { version: CgroupVersion::V1, cpu: Some(Cpu::from_millis(1)), ..V2 };
    let stat = "inactive_file 0\ntotal_inactive_file 1048576\n";
    let sandbox = Sandbox::counted(counters, ["0\n", "3145728\n", stat]);
    let seen = metrics(sandbox.ask(Method::GET, "/metrics", "").await).await;
    assert_eq!((seen.cpu_count, seen.mem_used_mib), (1.0, 2.0));
}

#[tokio::test]
async fn what_the_kernel_does_not_tell_is_an_error() {
    let sandbox = Sandbox::counted(V2, ["nonsense\n", "1\n", ""]);
    let answer = sandbox.ask(Method::GET, "/metrics", "").await;
    let (status, error) = crate::daemon::error(answer).await;
    assert_eq!((status.as_u16(), error.code.as_str()), (500, "RUNTIME_ERROR"));
    let mut answer = sandbox.ask(Method::GET, "/metrics/watch", "").await;
    let line = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(line.starts_with(b"{\"error\":") && line.ends_with(b"}\n"), "{line:?}");
}

#[tokio::test]
async fn those_who_watch_get_one_line_per_second() {
    let sandbox = Sandbox::counted(V2, ["usage_usec 0\n", "1048576\n", "inactive_file 0\n"]);
    let mut answer = sandbox.ask(Method::GET, "/metrics/watch", "").await;
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut told = Vec::new();
    for _ in 0..3 {
        let line = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(line.ends_with(b"}\n") && !line.ends_with(b"\n\n"), "{line:?}");
        let seen: Metrics = serde_json::from_slice(&line).unwrap();
        assert_eq!(seen.mem_used_mib.to_string(), "1");
        told.push(seen.timestamp);
    }
    assert!(told[1] - told[0] >= 900 && told[2] - told[1] >= 900, "{told:?}");
}
