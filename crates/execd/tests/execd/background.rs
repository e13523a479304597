//! Commands that nobody waits for: their status and their logs.

use http::{Method, StatusCode};
use osb_api::{
    codes,
    execd::{CommandStatus, EventKind},
    headers,
};
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, error, events, is_alive, kinds, outcome, request, wait_for};

impl Daemon {
    /// Starts a command in the background and returns its id.
    pub(crate) async fn background(&self, mut command: Value) -> String {
        command.as_object_mut().unwrap().insert("background".to_owned(), json!(true));
        let events = self.run(command).await;
        let expected = [EventKind::Init, EventKind::Ping, EventKind::ExecutionComplete];
        assert_eq!(kinds(&events), expected);
        events.first().and_then(|init| init.text.clone()).unwrap()
    }

    pub(crate) async fn status(&self, id: &str) -> CommandStatus {
        let response = self.get(&format!("/command/status/{id}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_slice(&bytes(response).await).unwrap()
    }

    pub(crate) async fn ended(&self, id: &str) -> CommandStatus {
        loop {
            let status = self.status(id).await;
            if !status.running {
                return status;
            }
        }
    }

    /// What is in the log from a cursor on, and the next cursor.
    async fn logs(&self, id: &str, cursor: &str) -> (String, u64) {
        let response = self.get(&format!("/command/{id}/logs?cursor={cursor}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        let next = response.headers()[headers::COMMAND_CURSOR].to_str().unwrap().parse().unwrap();
        (String::from_utf8(bytes(response).await.to_vec()).unwrap(), next)
    }
}

#[tokio::test]
async fn status_and_logs_are_there_as_soon_as_the_id_is_known() {
    let daemon = Daemon::start();
    for _ in 0..20 {
        let id = daemon.background(json!({"command": "sleep 1000"})).await;
        let status = daemon.status(&id).await;
        assert_eq!(status.content.as_deref(), Some("sleep 1000"));
        assert!(status.running && status.id == id);
        assert_eq!((status.exit_code, status.finished_at), (None, None));
        assert_eq!(daemon.logs(&id, "").await, (String::new(), 0));
        assert_eq!(daemon.interrupt(&id).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn logs_are_both_outputs_in_the_order_of_their_arrival() {
    let daemon = Daemon::start();
    let command = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done";
    let id = daemon.background(json!({"command": command})).await;
    let status = daemon.ended(&id).await;
    assert_eq!((status.exit_code, status.error), (Some(0), None));
    assert!(status.finished_at.unwrap() >= status.started_at);
    let whole = [1, 2, 3, 4, 5].map(|i| format!("out {i}\nerr {i}\n")).concat();
    let end = whole.len() as u64;
    assert_eq!(daemon.logs(&id, "0").await, (whole.clone(), end));
    assert_eq!(daemon.logs(&id, "12").await, (whole[12..].to_owned(), end));
    assert_eq!(daemon.logs(&id, "garbage").await, (whole, end));
    assert_eq!(daemon.logs(&id, &end.to_string()).await, (String::new(), end));
    assert_eq!(daemon.logs(&id, "123456").await, (String::new(), 123_456));
}

#[tokio::test]
async fn polling_by_cursor_sees_every_line_once() {
    let daemon = Daemon::start();
    let id = daemon.background(json!({"command": "seq 20000"})).await;
    let (mut seen, mut cursor, mut running) = (String::new(), 0, true);
    while running {
        running = daemon.status(&id).await.running;
        let (more, next) = daemon.logs(&id, &cursor.to_string()).await;
        seen.push_str(&more);
        cursor = next;
    }
    assert!(seen.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=20_000));
}

#[tokio::test]
async fn a_log_outlives_all_files_and_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let arguments = ["--command-log-limit", "100000"];
    let daemon = Daemon::with(&arguments, &[("TMPDIR", place)]);
    let command = format!("seq 1 50000; rm -rf {place}/*; ls -A {place}; seq 50001 100000");
    let id = daemon.background(json!({"command": command})).await;
    daemon.ended(&id).await;
    let (log, end) = daemon.logs(&id, "0").await;
    assert_eq!((log.len(), end), (100_000, 588_895));
    let lines: Vec<u32> = log.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    assert!(lines.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert_eq!(lines.last(), Some(&100_000));
}

#[tokio::test]
async fn the_oldest_logs_make_room() {
    let daemon = Daemon::with(&[], &[("EXECD_COMMAND_LOG_TOTAL", "25000")]);
    let mut ids = Vec::new();
    for _ in 0..4 {
        let id = daemon.background(json!({"command": "head -c 10000 /dev/zero"})).await;
        daemon.ended(&id).await;
        ids.push(id);
    }
    let mut known = Vec::new();
    for id in &ids {
        known.push(daemon.get(&format!("/command/status/{id}")).await.status().as_u16());
    }
    assert_eq!(known, [404, 404, 200, 200]);
}

#[tokio::test]
async fn commands_that_have_ended_are_forgotten_and_those_that_run_are_not() {
    let daemon = Daemon::start();
    let running = daemon.background(json!({"argv": ["sleep", "60"]})).await;
    let oldest = daemon.run(json!({"argv": ["no-such-program-here"]})).await;
    let oldest = oldest[0].text.clone().unwrap();
    assert!(!daemon.status(&oldest).await.running);
    let mut connection = daemon.connect().await;
    let failing = json!({"argv": ["no-such-program-here"]}).to_string();
    for _ in 0..1024 {
        let asked = request(Method::POST, "/command", failing.clone());
        drop(events(connection.send(asked).await).await);
    }
    assert!(daemon.status(&running).await.running);
    let forgotten = daemon.get(&format!("/command/status/{oldest}")).await;
    assert_eq!(forgotten.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn how_a_command_ended_is_in_its_status() {
    let daemon = Daemon::start();
    for (command, code, text) in [
        (json!({"command": "exit 7"}), 7, "exit status 7"),
        (json!({"command": "kill -TERM $$"}), -1, "signal: terminated"),
        (json!({"command": "sleep 1000", "timeout": 50}), -1, "signal: killed"),
    ] {
        let foreground = daemon.run(command.clone()).await;
        let background = daemon.background(command).await;
        for id in [foreground[0].text.as_deref().unwrap(), &background] {
            let status = daemon.ended(id).await;
            assert_eq!((status.exit_code, status.error.as_deref()), (Some(code), Some(text)));
            assert!(status.finished_at.is_some());
        }
    }
}

#[tokio::test]
async fn a_program_that_did_not_start_has_a_status() {
    let daemon = Daemon::start();
    for background in [true, false] {
        let command = json!({"argv": ["no-such-program-here"], "background": background});
        let events = daemon.run(command).await;
        assert_eq!(kinds(&events), [EventKind::Init, EventKind::Ping, EventKind::Error]);
        let status = daemon.status(events[0].text.as_deref().unwrap()).await;
        assert_eq!((status.running, status.exit_code), (false, Some(255)));
        assert_eq!(status.error.as_deref(), Some(outcome(&events)));
    }
}

#[tokio::test]
async fn logs_are_for_background_commands_and_cursors_not_negative() {
    let daemon = Daemon::start();
    let foreground = daemon.run(json!({"command": "true"})).await[0].text.clone().unwrap();
    let background = daemon.background(json!({"command": "true"})).await;
    for path in [
        "/command/unknown/logs".to_owned(),
        format!("/command/{foreground}/logs"),
        format!("/command/{background}/logs?cursor=-1"),
    ] {
        let (status, body) = error(daemon.get(&path).await).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(body.code, codes::INVALID_REQUEST_BODY);
    }
    let (status, body) = error(daemon.get("/command/status/unknown").await).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(body.code, codes::INVALID_REQUEST_BODY);
}

#[tokio::test]
async fn a_background_command_that_is_too_late_is_killed_with_its_children() {
    let daemon = Daemon::start();
    let command = json!({"command": "sleep 1000 & echo $!; wait", "timeout": 200});
    let id = daemon.background(command).await;
    assert_eq!(daemon.ended(&id).await.exit_code, Some(-1));
    let (child, _) = daemon.logs(&id, "0").await;
    wait_for("the child is killed as well", || !is_alive(child.trim())).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_still_reaches_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let daemon = Daemon::start();
    let left = format!("(until [ -e {} ]; do sleep 0.01; done; echo later) &", go.display());
    let id = daemon.background(json!({"command": left})).await;
    assert_eq!(daemon.ended(&id).await.exit_code, Some(0));
    assert_eq!(daemon.logs(&id, "0").await.0, "");
    osb_sys::fs::write(&go, b"").unwrap();
    while daemon.logs(&id, "0").await.0 != "later\n" {}
}

#[tokio::test]
async fn output_beyond_a_limit_is_dropped_from_the_log() {
    let daemon = Daemon::start();
    let command = json!({"command": "echo 12345; echo 6789; seq 100000", "output_limit": 10});
    let id = daemon.background(command).await;
    daemon.ended(&id).await;
    let (log, _) = daemon.logs(&id, "0").await;
    let notice = "[the output is longer than 10 bytes: the rest is dropped]";
    assert_eq!(log, format!("12345\n6789\n{notice}\n"));
}
