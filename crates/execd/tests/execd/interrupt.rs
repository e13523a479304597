//! Commands that are ended by request.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use osb_api::codes;
use serde_json::{Value, json};

use crate::daemon::{Connection, Daemon, error, is_alive, outcome, request, wait_for};

impl Daemon {
    pub(crate) async fn interrupt(&self, id: &str) -> StatusCode {
        self.send(request(Method::DELETE, &format!("/command?id={id}"), "")).await.status()
    }
}

/// Starts a background command that writes the numbers of processes to a file, one per line.
async fn start(daemon: &Daemon, script: &str, count: usize) -> (String, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = json!({"command": script, "envs": {"PIDS": file.to_str().unwrap()}});
    let id = daemon.background(command).await;
    let mut pids = Vec::new();
    wait_for("all processes have begun", || {
        let text = osb_sys::fs::read_to_string(&file).unwrap_or_default();
        pids = text.lines().map(str::to_owned).collect();
        pids.len() == count
    })
    .await;
    (id, pids)
}

#[tokio::test]
async fn an_interrupted_command_ends_with_an_error() {
    let daemon = Daemon::start();
    for path in ["/command", "/code"] {
        let mut connection: Connection = daemon.connect().await;
        let command = json!({"command": "sleep 1000"}).to_string();
        let mut response = connection.send(request(Method::POST, "/command", command)).await;
        let first = http_body_util::BodyExt::frame(response.body_mut()).await.unwrap().unwrap();
        let init = crate::daemon::parse(&first.into_data().unwrap());
        let id = init[0].text.clone().unwrap();
        let interrupt = request(Method::DELETE, &format!("{path}?id={id}"), "");
        let answer = daemon.send(interrupt).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-length"], "0");
        assert_eq!(daemon.status(&id).await.exit_code, Some(-1));
        let events = crate::daemon::parse(&crate::daemon::bytes(response).await);
        assert_eq!(outcome(&events), "-1");
        let traceback = &events.last().unwrap().error.as_ref().unwrap().traceback;
        assert_eq!(traceback, &["signal: terminated"]);
    }
}

#[tokio::test]
async fn the_answer_means_that_all_descendants_are_gone() {
    let daemon = Daemon::start();
    // In the group, in a group of its own, in a session of its own, an orphan of the session, and
    // one that is stopped.
    let script = "
        sleep 1000 & echo $! >> $PIDS
        set -m; sleep 1000 & echo $! >> $PIDS; set +m
        setsid -w sh -c 'echo $$ >> $PIDS; sleep 1000 & echo $! >> $PIDS; wait' &
        (sh -c 'echo $$ >> $PIDS; exec sleep 1000' &)
        sh -c 'echo $$ >> $PIDS; kill -STOP $$' &
        wait";
    let (id, pids) = start(&daemon, script, 6).await;
    assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    let left: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} are alive");
    assert!(!daemon.status(&id).await.running);
}

#[tokio::test]
async fn a_daemon_by_its_own_decision_is_left_alone() {
    let daemon = Daemon::start();
    let script = "
        (setsid sh -c 'echo $$ >> $PIDS; exec sleep 1000' &)
        sleep 1000 & echo $! >> $PIDS
        wait";
    let (id, pids) = start(&daemon, script, 2).await;
    let parent = |pid: &str| {
        let stat = osb_sys::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().to_owned();
        osb_sys::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default()
    };
    wait_for("the daemon is an orphan", || {
        pids.iter().filter(|pid| !["bash\n", "sh\n"].contains(&parent(pid).as_str())).count() == 1
    })
    .await;
    assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    let left: Vec<&String> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    daemon.run(json!({"argv": ["kill", "-9", left[0]]})).await;
}

#[tokio::test]
async fn whoever_does_not_end_is_killed() {
    let daemon = Daemon::start();
    let script = "trap '' TERM; echo $$ >> $PIDS; while :; do sleep 0.1; done";
    let (id, pids) = start(&daemon, script, 1).await;
    let began = Instant::now();
    assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    assert!(!is_alive(&pids[0]));
    assert!(began.elapsed() >= Duration::from_secs(3));
    assert_eq!(daemon.status(&id).await.error.as_deref(), Some("signal: killed"));
}

#[tokio::test]
async fn a_command_may_say_how_it_ends() {
    let daemon = Daemon::start();
    let script = "trap 'exit 5' TERM; echo $$ >> $PIDS; while :; do sleep 0.01; done";
    let (id, _) = start(&daemon, script, 1).await;
    assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    assert_eq!(daemon.status(&id).await.exit_code, Some(5));
}

#[tokio::test]
async fn a_family_that_never_stops_growing_is_ended() {
    let daemon = Daemon::start();
    // Each process starts the next and ends; none of them listens.
    let script = "trap '' TERM; f() { echo $BASHPID >> $PIDS; f & }; f; sleep 1000";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = json!({"command": script, "envs": {"PIDS": file.to_str().unwrap()}});
    let id = daemon.background(command).await;
    let count = || osb_sys::fs::read_to_string(&file).unwrap_or_default().lines().count();
    wait_for("it grows", || count() > 50).await;
    assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    let after = count();
    assert_eq!(outcome(&daemon.run(json!({"command": "sleep 0.3"})).await), "0");
    assert_eq!(count(), after);
}

#[tokio::test]
async fn only_what_runs_can_be_interrupted() {
    let daemon = Daemon::start();
    let delete = |path: &str| daemon.send(request(Method::DELETE, path, ""));
    let (status, body) = error(delete("/command").await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::BAD_REQUEST, codes::MISSING_QUERY));
    let ended: Value = json!({"command": "true"});
    let id = daemon.run(ended).await[0].text.clone().unwrap();
    for path in ["/command?id=unknown", "/code?id=unknown", &format!("/command?id={id}")] {
        let (status, body) = error(delete(path).await).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        assert_eq!(body.code, codes::RUNTIME_ERROR);
    }
}
