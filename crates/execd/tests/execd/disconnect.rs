//! Clients that leave, and clients that do not read.

use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::daemon::{
    Connection, Daemon, is_alive, outcome, request, state, stdout, take_events, wait_for,
};

/// Starts a command whose first line is a process id, and reads up to that line.
async fn first_line(connection: &mut Connection, command: &Value) -> (String, Response<Incoming>) {
    let mut response =
        connection.send(request(Method::POST, "/command", command.to_string())).await;
    let mut arrived = Vec::new();
    loop {
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        arrived.extend_from_slice(&frame.into_data().unwrap());
        if let Some(line) = stdout(&take_events(&mut arrived)).first() {
            return ((*line).to_owned(), response);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_command_with_it() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect().await;
    let command = json!({"command": "sleep 1000 & echo $!; wait"});
    let (child, response) = first_line(&mut connection, &command).await;
    assert!(is_alive(&child));
    drop((response, connection));
    wait_for("the command is killed with its group", || !is_alive(&child)).await;
    assert_eq!(outcome(&daemon.run(json!({"command": "true"})).await), "0");
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_command() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect().await;
    let command = json!({"command": "echo $$; exec yes"});
    let (pid, response) = first_line(&mut connection, &command).await;
    // It sleeps when its pipe is full; seen many times in a row, it is full for good.
    let mut asleep = 0;
    wait_for("the writer waits", || {
        asleep = if state(&pid) == Some('S') { asleep + 1 } else { 0 };
        asleep > 100
    })
    .await;
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
    assert_eq!(outcome(&daemon.run(json!({"command": "true"})).await), "0");
    drop((response, connection));
    wait_for("the writer is killed", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_extend_the_time() {
    let daemon = Daemon::start();
    let command = json!({"command": "echo $$; exec yes", "timeout": 300});
    let mut connection = daemon.connect().await;
    let (pid, response) = first_line(&mut connection, &command).await;
    wait_for("the writer is killed at its deadline", || !is_alive(&pid)).await;
    drop(response);
}

#[tokio::test]
async fn a_client_that_leaves_takes_along_what_left_the_group() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect().await;
    let command = json!({"command": "set -m; sleep 1000 & echo $!; wait"});
    let (child, response) = first_line(&mut connection, &command).await;
    drop((response, connection));
    wait_for("the child in another group is ended", || !is_alive(&child)).await;
}

#[tokio::test]
async fn a_command_runs_on_without_its_client_if_execd_was_told_so() {
    let daemon = Daemon::with(&["--on-disconnect", "continue"], &[]);
    let mut connection = daemon.connect().await;
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let fifo = directory.path().join("fifo");
    let script = "mkfifo $FIFO; echo $$; read < $FIFO; seq 100000; touch $DONE";
    let command = json!({"command": script, "envs": {"DONE": done, "FIFO": fifo}});
    let (leader, response) = first_line(&mut connection, &command).await;
    drop((response, connection));
    assert_eq!(outcome(&daemon.run(json!({"command": "true"})).await), "0");
    assert!(is_alive(&leader));
    osb_sys::fs::write(&fifo, b"go\n").unwrap();
    wait_for("the command has run to its end", || done.exists()).await;
}

#[tokio::test]
async fn a_command_without_its_client_still_has_its_deadline() {
    let daemon = Daemon::with(&[], &[("EXECD_ON_DISCONNECT", "continue")]);
    let mut connection = daemon.connect().await;
    let command = json!({"command": "echo $$; exec sleep 1000", "timeout": 500});
    let (leader, response) = first_line(&mut connection, &command).await;
    drop((response, connection));
    wait_for("it is killed at its deadline", || !is_alive(&leader)).await;
}
