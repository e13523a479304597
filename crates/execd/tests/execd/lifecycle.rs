//! How execd starts and ends where nobody made a sandbox for it.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::net::TcpStream;

use crate::daemon::{Connection, Daemon, bytes, events, outcome, request, stdout, wait_for};

fn execd(arguments: &[&str]) -> Command {
    let mut command = osb_sys::command::command(env!("CARGO_BIN_EXE_execd"));
    command.args(arguments).env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs execd to its end: its exit code, and what it printed on both outputs.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A running execd with its output still to be read, and its port.
fn start(arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, u16) {
    let mut child = execd(arguments).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
    (child, output, port)
}

async fn ping(port: u16) -> StatusCode {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    Connection::over(stream).await.send(request(Method::GET, "/ping", "")).await.status()
}

#[test]
fn a_program_after_two_dashes_makes_any_image_a_sandbox() {
    let script = "echo out; echo err >&2; echo \"$0\"; exit 3";
    let mut command = execd(&["--port", "0", "--log-level", "0", "--", "sh", "-c", script, "-x"]);
    let (code, out, err) = run(&mut command);
    assert_eq!((code, err.as_str()), (3, "err\n"));
    let (first, rest) = out.split_once('\n').unwrap();
    assert!(first.starts_with("execd listens on 0.0.0.0:"), "{first}");
    assert_eq!(rest, "out\n-x\n");
    let (code, _, err) = run(&mut execd(&["--port", "0", "--", "no-such-program"]));
    assert_eq!(code, 127);
    assert!(err.contains("no-such-program"), "{err}");
}

#[tokio::test]
async fn a_reader_that_is_slow_holds_up_the_program_and_not_execd() {
    let script = "head -c 10000000 /dev/zero";
    let (mut child, mut output, port) = start(&["-port=0", "--", "sh", "-c", script]);
    for _ in 0..50 {
        assert_eq!(ping(port).await, StatusCode::OK);
    }
    let mut printed = Vec::new();
    output.read_to_end(&mut printed).unwrap();
    assert_eq!(printed.len(), 10_000_000);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn a_request_to_end_is_for_the_program_which_may_take_its_time() {
    let script = "trap 'echo asked; sleep 0.3; exit 6' TERM; echo up; while :; do sleep 0.01; done";
    let arguments = ["--port", "0", "--graceful-shutdown-timeout", "1ms", "--", "sh", "-c", script];
    let (mut child, mut output, _) = start(&arguments);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\nasked\n");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[tokio::test]
async fn commands_are_asked_to_end_and_then_killed_and_their_streams_say_so() {
    let mut daemon = Daemon::with(&["--graceful-shutdown-timeout", "300ms"], &[]);
    let run = async |script: &str| {
        let command = json!({"command": script}).to_string();
        daemon.send(request(Method::POST, "/command", command)).await
    };
    let ready = "trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done";
    let polite = run(ready).await;
    let plain = run("echo up; exec sleep 1000").await;
    let stubborn = run(&ready.replace("exit 4", "")).await;
    // A connection that asks nothing holds nobody up.
    let idle = daemon.connect().await;
    // All of them have begun once another one has run, for they were started before.
    daemon.run(json!({"command": "sleep 0.2"})).await;
    daemon.signal(Signal::TERM);
    let (polite, plain, stubborn) = tokio::join!(events(polite), events(plain), events(stubborn));
    assert_eq!([&polite, &plain, &stubborn].map(|events| outcome(events)), ["4", "-1", "-1"]);
    assert_eq!(stdout(&plain), ["up"]);
    assert_eq!(daemon.end().await.code(), Some(0));
    drop(idle);
}

#[tokio::test]
async fn execd_without_a_program_ends_when_asked_to_and_ignores_other_signals() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut daemon = Daemon::start();
        for harmless in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH] {
            daemon.signal(harmless);
        }
        assert_eq!(daemon.get("/ping").await.status(), StatusCode::OK);
        daemon.signal(signal);
        assert_eq!(daemon.end().await.code(), Some(0));
    }
}

#[tokio::test]
async fn those_who_watch_are_let_go_at_the_end() {
    let mut daemon = Daemon::start();
    let mut watching = daemon.get("/metrics/watch").await;
    let first = watching.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(watching.headers()[header::CONTENT_TYPE], "text/event-stream");
    daemon.signal(Signal::TERM);
    let rest = bytes(watching).await;
    assert!(first.ends_with(b"}\n") && (rest.is_empty() || rest.ends_with(b"}\n")), "{rest:?}");
    assert_eq!(daemon.end().await.code(), Some(0));
}

#[tokio::test]
async fn orphans_come_to_execd_even_if_it_is_not_the_first_process() {
    let daemon = Daemon::start();
    let pid = daemon.pid().as_raw_pid();
    let orphan = "(setsid sh -c 'while [ $(ps -o ppid= $$) != '$PPID' ]; do :; done; echo ours' &)";
    let events = daemon.run(json!({"command": format!("{orphan} | cat")})).await;
    assert_eq!(stdout(&events), ["ours"]);
    let children = || osb_sys::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    wait_for("all are reaped", || children().unwrap().is_empty()).await;
}

#[test]
fn a_bad_value_is_explained() {
    let flags = [["-port", "70000"], ["--log-level", "high"]];
    let variables = [("EXECD_API_GRACE_SHUTDOWN", "soon"), ("EXECD_LOG_FILE", "/nowhere/log")];
    let flags = flags.map(|flag| (execd(&flag), flag[1]));
    let variables = variables.map(|(name, value)| {
        let mut command = execd(&["--port", "0"]);
        command.env(name, value);
        (command, value)
    });
    for (mut command, value) in flags.into_iter().chain(variables) {
        let (code, _, err) = run(&mut command);
        assert!(code != 0 && err.contains(value), "{code}: {err}");
    }
}

#[test]
fn help_tells_every_flag_and_variable() {
    let (code, out, _) = run(&mut execd(&["--help"]));
    assert_eq!(code, 0);
    let flags =
        ["port", "access-token", "graceful-shutdown-timeout", "log-level", "log-file", "boot"];
    let variables = ["ACCESS_TOKEN", "API_GRACE_SHUTDOWN", "LOG_FILE", "ENVS"];
    let flags = flags.map(|flag| format!("--{flag}"));
    let variables = variables.map(|variable| format!("EXECD_{variable}"));
    for word in flags.iter().chain(&variables).map(String::as_str).chain(["44772", "1s", "Jupyter"])
    {
        assert!(out.contains(word), "{word} is missing:\n{out}");
    }
}

#[tokio::test]
async fn requests_are_written_down_for_those_who_want_to_know() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let variables = [("EXECD_LOG_FILE", file.to_str().unwrap())];
    let mut daemon = Daemon::with(&["-log-level", "7"], &variables);
    daemon.get("/files/download?path=/secret/place").await;
    let log = || osb_sys::fs::read_to_string(&file).unwrap();
    wait_for("the request is written down", || log().contains("GET /files/download: 404")).await;
    daemon.signal(Signal::TERM);
    daemon.end().await;
    assert!(log().contains("INFO asked to end") && !log().contains("secret"), "{}", log());
}

#[tokio::test]
async fn a_session_in_which_nothing_runs_does_not_hold_up_the_end() {
    let mut daemon = Daemon::with(&["--graceful-shutdown-timeout", "1h"], &[]);
    let made = daemon.send(request(Method::POST, "/session", "")).await;
    assert_eq!(made.status(), StatusCode::OK);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().await.code(), Some(0));
}
