//! Programs of the sandbox that hold up what execd starts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use http::{Method, StatusCode};
use osb_sys::fs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::daemon::{Daemon, request};

/// More than there are threads that could be held up.
const HITS: usize = 6;

/// More than it ever takes to hit one.
const TRIES: usize = 5000;

/// Stops children of a daemon that have not become their program yet, as any program of the
/// sandbox could.
struct Stopper {
    hits: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopper {
    fn of(daemon: &Daemon) -> Self {
        let (hits, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let tasks = format!("/proc/{}/task", daemon.pid().as_raw_pid());
        let (counted, over) = (Arc::clone(&hits), Arc::clone(&end));
        let shoot = move || {
            while !over.load(Ordering::Relaxed) {
                for task in fs::names(&tasks).unwrap_or_default() {
                    let children = fs::read_to_string(format!("{tasks}/{task}/children"));
                    for pid in children.unwrap_or_default().split_whitespace() {
                        let name = || fs::read_to_string(format!("/proc/{pid}/comm"));
                        // Until it is a program, it has the name of the thread that made it.
                        let unborn = || name().is_ok_and(|name| NAMES.contains(&name.trim()));
                        let Some(child) = pid.parse().ok().and_then(Pid::from_raw) else {
                            continue;
                        };
                        if unborn() && kill_process(child, Signal::STOP).is_ok() {
                            if unborn() {
                                counted.fetch_add(1, Ordering::Relaxed);
                            } else {
                                kill_process(child, Signal::CONT).ok();
                            }
                        }
                    }
                }
            }
        };
        Self { hits, end, thread: Some(thread::spawn(shoot)) }
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

/// What threads of execd are called.
const NAMES: [&str; 2] = ["tokio-rt-worker", "execd"];

impl Drop for Stopper {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[tokio::test]
async fn whoever_stops_what_is_being_started_stops_nothing_else() {
    let daemon = Daemon::start();
    let stopper = Stopper::of(&daemon);
    let start = |path: &'static str, body: String| {
        let daemon = &daemon;
        async move { daemon.send(request(Method::POST, path, body)).await.status() }
    };
    for (path, body) in [("/command", json!({"argv": ["true"]})), ("/session", json!({}))] {
        let before = stopper.hits();
        for _ in 0..TRIES {
            start(path, body.to_string()).await;
            if stopper.hits() >= before + HITS {
                break;
            }
        }
        assert!(stopper.hits() >= before + HITS, "nothing was hit at {path}");
        assert_eq!(daemon.get("/ping").await.status(), StatusCode::OK);
        assert_eq!(daemon.get("/files/info?path=/tmp").await.status(), StatusCode::OK);
    }
}
