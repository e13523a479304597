//! Terminals over WebSocket.

use http::{Method, StatusCode};
use osb_api::{
    codes,
    execd::{PtyCreated, PtyMode, PtyServerFrame, PtyStatus, channels, pty_errors},
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    daemon::{Daemon, bytes, error, is_alive, is_root, request, state, wait_for},
    websocket::{Heard, WebSocket},
};

const NOBODY: u32 = 65534;

async fn create(daemon: &Daemon, asked: Value) -> String {
    let body = if asked.is_null() { String::new() } else { asked.to_string() };
    let response = daemon.send(request(Method::POST, "/pty", body)).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    let created: PtyCreated = serde_json::from_slice(&bytes(response).await).unwrap();
    created.session_id
}

async fn status(daemon: &Daemon, id: &str) -> PtyStatus {
    serde_json::from_slice(&bytes(daemon.get(&format!("/pty/{id}")).await).await).unwrap()
}

async fn remove(daemon: &Daemon, id: &str) -> StatusCode {
    daemon.send(request(Method::DELETE, &format!("/pty/{id}"), "")).await.status()
}

fn connected(id: &str, mode: PtyMode) -> Heard {
    Heard::Frame(PtyServerFrame::Connected { session_id: id.to_owned(), mode })
}

/// Attaches to a terminal that has nothing to replay.
async fn attach(daemon: &Daemon, id: &str) -> WebSocket {
    let mut client = WebSocket::open(daemon, &format!("/pty/{id}/ws")).await;
    assert_eq!(client.heard().await, connected(id, PtyMode::Pty));
    client
}

/// Runs a terminal to its end.
async fn run(daemon: &Daemon, asked: Value) -> (String, i32) {
    let id = create(daemon, asked).await;
    let (stdout, stderr, exit_code) = attach(daemon, &id).await.collect().await;
    assert!(stderr.is_empty());
    (String::from_utf8(stdout).unwrap(), exit_code)
}

/// The words of the first line that a shell printed with this at the end. The line that asks for
/// it is printed too, and has a variable in it.
async fn words_before(client: &mut WebSocket, end: &str) -> Vec<String> {
    let mut said = String::new();
    loop {
        said.push_str(&client.until("\n").await);
        let mut lines = said.split(['\r', '\n']).filter(|line| !line.contains('$'));
        if let Some(line) = lines.find_map(|line| line.strip_suffix(end)) {
            return line.split_whitespace().map(str::to_owned).collect();
        }
    }
}

fn name(pid: &str) -> String {
    osb_sys::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap()
}

#[tokio::test]
async fn a_terminal_starts_when_somebody_attaches_and_ends_with_its_exit_code() {
    let daemon = Daemon::start();
    let id = create(&daemon, Value::Null).await;
    let before = status(&daemon, &id).await;
    assert_eq!(
        (before.session_id.as_str(), before.running, before.output_offset),
        (&*id, false, 0)
    );
    let mut client = attach(&daemon, &id).await;
    assert!(status(&daemon, &id).await.running);
    client.stdin("echo $((6 * 7)); tty; exit 3\n").await;
    let (said, _, exit_code) = client.collect().await;
    let text = String::from_utf8(said.clone()).unwrap();
    assert!(text.contains("\r42\r\n/dev/pts/"), "{text:?}");
    assert_eq!(exit_code, 3);
    let after = status(&daemon, &id).await;
    assert_eq!((after.running, after.output_offset), (false, said.len() as u64));
}

#[tokio::test]
async fn a_command_takes_the_place_of_the_interactive_shell() {
    let daemon = Daemon::start();
    let asked = json!({"command": "echo hello; test -t 0 && test -t 2 && echo tty; exit 9"});
    assert_eq!(run(&daemon, asked).await, ("hello\r\ntty\r\n".to_owned(), 9));
    let asked = json!({"argv": ["/bin/echo", "a b", "$HOME", ""], "command": null});
    assert_eq!(run(&daemon, asked).await, ("a b $HOME \r\n".to_owned(), 0));
    let asked = json!({"command": "kill -TERM $$"});
    assert_eq!(run(&daemon, asked).await, (String::new(), 128 + 15));
}

#[tokio::test]
async fn the_shell_reads_no_startup_files_and_controls_jobs() {
    let daemon = Daemon::start();
    let mut client = attach(&daemon, &create(&daemon, Value::Null).await).await;
    client.stdin("shopt -q login_shell || echo plain; set -o | grep monitor\n").await;
    client.until("plain\r\nmonitor        \ton").await;
}

#[tokio::test]
async fn the_environment_is_that_of_commands_with_a_terminal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    osb_sys::fs::write(file.path(), "FROM_FILE=1\nBOTH=file\n").unwrap();
    let variables = [("EXECD_ENVS", file.path().to_str().unwrap()), ("EXECD_ACCESS_TOKEN", "")];
    let daemon = Daemon::with(&[], &variables);
    let show = "echo $TERM $FROM_FILE $BOTH $OWN; env | grep -c ACCESS_TOKEN";
    let asked = json!({"command": show, "envs": {"BOTH": "own", "OWN": "2"}});
    assert_eq!(run(&daemon, asked).await.0, "xterm-256color 1 own 2\r\n0\r\n");
    let asked = json!({"command": "echo $TERM", "term": "vt100", "envs": null});
    assert_eq!(run(&daemon, asked).await.0, "vt100\r\n");
}

#[tokio::test]
async fn a_terminal_has_its_user_its_directory_and_its_size() {
    let daemon = Daemon::start();
    let parent = tempfile::tempdir().unwrap();
    let cwd = parent.path().join("made/on/the/way");
    let asked = json!({"command": "pwd; stty size", "cwd": cwd, "cols": 132, "rows": 50});
    let expected = format!("{}\r\n50 132\r\n", cwd.display());
    assert_eq!(run(&daemon, asked).await.0, expected);
    if !is_root() {
        return;
    }
    let asked = json!({"command": "id -u; id -g; exec 3<>$(tty) && echo own", "uid": NOBODY,
        "gid": NOBODY, "cwd": "/"});
    assert_eq!(run(&daemon, asked).await.0, "65534\r\n65534\r\nown\r\n");
}

#[tokio::test]
async fn programs_learn_of_a_new_size() {
    let daemon = Daemon::start();
    let asked = json!({"command": "trap 'stty size' WINCH; echo ready; while :; do read x; done"});
    let mut client = attach(&daemon, &create(&daemon, asked).await).await;
    client.until("ready").await;
    client.text(json!({"type": "resize", "cols": 120, "rows": 40})).await;
    client.stdin("\n").await;
    client.until("40 120").await;
    client.text(json!({"type": "resize", "cols": 0, "rows": 40})).await;
    let frame = client.frame().await;
    let PtyServerFrame::Error { code, .. } = frame else { panic!("{frame:?}") };
    assert_eq!(code, pty_errors::INVALID_FRAME);
}

#[tokio::test]
async fn interrupting_by_key_or_by_frame_reaches_what_runs_in_the_foreground() {
    let daemon = Daemon::start();
    let mut client = attach(&daemon, &create(&daemon, Value::Null).await).await;
    for by_frame in [false, true] {
        client.stdin("sh -c 'echo pid $$ end; exec sleep 1000'\n").await;
        let pid = words_before(&mut client, "end").await.pop().unwrap();
        wait_for("it sleeps", || name(&pid) == "sleep\n" && state(&pid) == Some('S')).await;
        if by_frame {
            client.text(json!({"type": "signal", "signal": "SIGINT"})).await;
        } else {
            client.stdin([3]).await;
        }
        wait_for("it was interrupted", || !is_alive(&pid)).await;
        client.stdin("echo status $? end\n").await;
        assert_eq!(words_before(&mut client, "end").await, ["status", "130"]);
    }
    client.text(json!({"type": "signal", "signal": "SIGKILL"})).await;
    assert_eq!(client.collect().await.2, 128 + 9);
}

#[tokio::test]
async fn control_frames_are_answered_and_nonsense_is_not_fatal() {
    let daemon = Daemon::start();
    let asked = json!({"command": "read line; echo got $line"});
    let mut client = attach(&daemon, &create(&daemon, asked).await).await;
    client.text(json!({"type": "ping"})).await;
    assert_eq!(client.heard().await, Heard::Frame(PtyServerFrame::Pong));
    client.send(Message::text("not json")).await;
    client.send(Message::binary(vec![9, 1, 2])).await;
    client.send(Message::binary(Vec::new())).await;
    for unknown in [json!({"type": "dance"}), json!({}), json!([1]), json!({"type": "resize"})] {
        client.text(unknown).await;
        let heard = client.heard().await;
        let Heard::Frame(PtyServerFrame::Error { code, error }) = heard else {
            panic!("{heard:?}")
        };
        assert_eq!(code, pty_errors::INVALID_FRAME);
        assert!(!error.is_empty());
    }
    client.text(json!({"type": "stdin", "data": "wörds\n"})).await;
    let (said, _, exit_code) = client.collect().await;
    assert_eq!(String::from_utf8(said).unwrap(), "wörds\r\ngot wörds\r\n");
    assert_eq!(exit_code, 0);
}

#[tokio::test]
async fn pipes_keep_the_two_outputs_apart() {
    let daemon = Daemon::start();
    let command = "test -t 1 || echo pipe; read x; echo \"out $x\"; echo err >&2; exit 5";
    let id = create(&daemon, json!({"command": command})).await;
    let mut client = WebSocket::open(&daemon, &format!("/pty/{id}/ws?pty=0")).await;
    assert_eq!(client.heard().await, connected(&id, PtyMode::Pipe));
    client.until("pipe\n").await;
    client.stdin("in\n").await;
    let (stdout, stderr, exit_code) = client.collect().await;
    assert_eq!((&*stdout, &*stderr, exit_code), (&b"out in\n"[..], &b"err\n"[..], 5));
}

#[tokio::test]
async fn input_that_nobody_takes_is_reported() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"command": "exec <&-; echo closed; sleep 1000"})).await;
    let mut client = WebSocket::open(&daemon, &format!("/pty/{id}/ws?pty=0")).await;
    assert_eq!(client.heard().await, connected(&id, PtyMode::Pipe));
    client.until("closed").await;
    // The first is written and fails; what comes after that is refused.
    let code = loop {
        client.stdin("anybody there?\n").await;
        client.text(json!({"type": "ping"})).await;
        if let PtyServerFrame::Error { code, .. } = client.frame().await {
            break code;
        }
    };
    assert_eq!(code, pty_errors::STDIN_WRITE_FAILED);
}

#[tokio::test]
async fn a_shell_survives_its_client_and_replays_what_was_missed() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"argv": ["/bin/cat"]})).await;
    let mut client = attach(&daemon, &id).await;
    client.stdin("one\n").await;
    let mut said = client.until("one\r\none\r\n").await;
    client.stdin("two\n").await;
    drop(client);
    said.push_str("two\r\ntwo\r\n");
    let all = said.len() as u64;
    for since in [0, 4, all - 1] {
        let mut seen = 0;
        while seen < all {
            seen = status(&daemon, &id).await.output_offset;
        }
        let path = format!("/pty/{id}/ws?since={since}&takeover=1");
        let mut client = WebSocket::open(&daemon, &path).await;
        let missed = said.as_bytes()[usize::try_from(since).unwrap()..].to_vec();
        assert_eq!(client.heard().await, Heard::Replay(since, missed));
        assert_eq!(client.heard().await, connected(&id, PtyMode::Pty));
        client.close().await;
    }
    for nothing in [all, all + 1000] {
        let path = format!("/pty/{id}/ws?since={nothing}&takeover=1");
        let mut client = WebSocket::open(&daemon, &path).await;
        assert_eq!(client.heard().await, connected(&id, PtyMode::Pty));
        client.close().await;
    }
    let path = format!("/pty/{id}/ws?since=-1&takeover=1");
    let (status, body) = error(WebSocket::ask(&daemon, &path).await).await;
    assert_eq!((status, &*body.code), (StatusCode::BAD_REQUEST, codes::INVALID_REQUEST_BODY));
}

#[tokio::test]
async fn one_client_at_a_time_unless_another_takes_over() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"argv": ["/bin/cat"]})).await;
    let path = format!("/pty/{id}/ws");
    let mut first = attach(&daemon, &id).await;
    let (status, body) = error(WebSocket::ask(&daemon, &path).await).await;
    assert_eq!((status, &*body.code), (StatusCode::CONFLICT, codes::ALREADY_CONNECTED));
    let (status, _) = error(daemon.get(&format!("{path}?takeover=1")).await).await;
    assert_eq!(status, StatusCode::CONFLICT);

    first.stdin("before\n").await;
    first.until("before\r\nbefore\r\n").await;
    let mut second = WebSocket::open(&daemon, &format!("{path}?takeover=1&since=8")).await;
    assert_eq!(second.heard().await, Heard::Replay(8, b"before\r\n".to_vec()));
    assert_eq!(second.heard().await, connected(&id, PtyMode::Pty));
    let heard = first.heard().await;
    let Heard::Frame(PtyServerFrame::Error { code, .. }) = heard else { panic!("{heard:?}") };
    assert_eq!(code, pty_errors::TAKEN_OVER);
    assert_eq!(first.heard().await, Heard::Close(channels::TAKEN_OVER, "TAKEN_OVER".to_owned()));
    second.stdin("after\n").await;
    second.until("after\r\nafter\r\n").await;
}

#[tokio::test]
async fn a_terminal_that_has_ended_starts_again() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"command": "read x; echo $x; exit 1"})).await;
    let mut client = attach(&daemon, &id).await;
    client.stdin("first\n").await;
    assert_eq!(client.collect().await.2, 1);
    let mut client = WebSocket::open(&daemon, &format!("/pty/{id}/ws?pty=0")).await;
    assert_eq!(client.heard().await, Heard::Replay(0, b"first\r\nfirst\r\n".to_vec()));
    assert_eq!(client.heard().await, connected(&id, PtyMode::Pipe));
    client.stdin("second\n").await;
    assert_eq!(client.collect().await, (b"second\n".to_vec(), Vec::new(), 1));
}

#[tokio::test]
async fn no_output_is_lost_or_doubled() {
    let daemon = Daemon::start();
    let asked = json!({"command": "stty -opost; seq 1 500000"});
    let (said, exit_code) = run(&daemon, asked).await;
    assert_eq!(exit_code, 0);
    assert!(said.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=500_000));
    assert_eq!(said.len(), 3_388_895);
}

#[tokio::test]
async fn only_the_last_mebibyte_is_replayed_at_its_true_offset() {
    let daemon = Daemon::start();
    let asked = json!({"command": "stty -opost; echo $$; read x; seq 1 500000; exec sleep 1000"});
    let id = create(&daemon, asked).await;
    let mut client = attach(&daemon, &id).await;
    let pid = client.until("\n").await;
    client.stdin("\n").await;
    drop(client);
    // Nobody reads, and it does not have to wait for anybody.
    wait_for("everything is printed", || name(pid.trim()) == "sleep\n").await;
    let end = status(&daemon, &id).await.output_offset;
    let mut client = WebSocket::open(&daemon, &format!("/pty/{id}/ws?takeover=1")).await;
    let heard = client.heard().await;
    let Heard::Replay(offset, bytes) = heard else { panic!("{heard:?}") };
    assert_eq!((offset, bytes.len()), (end - (1 << 20), 1 << 20));
    assert!(bytes.ends_with(b"499999\n500000\n"));
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_program_and_can_still_stop_it() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"command": "echo $$; exec yes"})).await;
    let mut client = attach(&daemon, &id).await;
    let said = client.until("\n").await;
    let pid = said.split_whitespace().next().unwrap();
    let mut asleep = 0;
    wait_for("the writer waits", || {
        asleep = if state(pid) == Some('S') { asleep + 1 } else { 0 };
        asleep > 100
    })
    .await;
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
    client.text(json!({"type": "signal", "signal": "SIGINT"})).await;
    wait_for("the writer is stopped", || !is_alive(pid)).await;
    assert_eq!(client.frame().await, PtyServerFrame::Exit { exit_code: 130 });
}

#[tokio::test]
async fn removing_a_terminal_ends_everything_in_it() {
    let daemon = Daemon::start();
    // Wide enough for the line that is typed.
    let id = create(&daemon, json!({"cols": 200})).await;
    let mut client = attach(&daemon, &id).await;
    let start =
        "set +m; nohup sleep 1000 >&/dev/null & set -m; sleep 1001 & echo $$ $(jobs -p) end\n";
    client.stdin(start).await;
    let pids = words_before(&mut client, "end").await;
    assert_eq!(pids.len(), 3, "{pids:?}");
    assert!(pids.iter().all(|pid| is_alive(pid)));
    assert_eq!(remove(&daemon, &id).await, StatusCode::OK);
    assert!(!is_alive(&pids[0]));
    wait_for("all of them have ended", || !pids.iter().any(|pid| is_alive(pid))).await;
    assert_eq!(client.frame().await, PtyServerFrame::Exit { exit_code: 137 });
    assert_eq!(remove(&daemon, &id).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_outlives_its_shell_does_not_hold_up_the_end() {
    let daemon = Daemon::start();
    let asked = json!({"command": "trap '' HUP; (while :; do echo on; done) & echo last; exit 0"});
    let (said, exit_code) = run(&daemon, asked).await;
    assert!(said.contains("last\r\n"));
    assert_eq!(exit_code, 0);
}

#[tokio::test]
async fn what_cannot_be_granted_is_told() {
    let daemon = Daemon::start();
    for (method, path) in [
        (Method::GET, "/pty/x"),
        (Method::DELETE, "/pty/x"),
        (Method::GET, "/pty/x/ws"),
        (Method::GET, "/pty/00000000-0000-4000-8000-000000000000"),
    ] {
        let (status, body) = error(daemon.send(request(method, path, "")).await).await;
        assert_eq!((status, &*body.code), (StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND));
    }
    for asked in [
        json!({"command": "a", "argv": ["b"]}),
        json!({"argv": [""]}),
        json!({"gid": 1}),
        json!({"cols": 0}),
        json!({"cwd": "a\0b"}),
        json!({"envs": {"a=b": "c"}}),
        json!({"command": "a\0b"}),
    ] {
        let asked = request(Method::POST, "/pty", asked.to_string());
        let (status, _) = error(daemon.send(asked).await).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    let id = create(&daemon, json!({"argv": ["/no/such/program"]})).await;
    let (status, _) = error(daemon.get(&format!("/pty/{id}/ws")).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "not a WebSocket");
    let mut client = WebSocket::open(&daemon, &format!("/pty/{id}/ws")).await;
    let heard = client.heard().await;
    let Heard::Frame(PtyServerFrame::Error { code, .. }) = heard else { panic!("{heard:?}") };
    assert_eq!(code, pty_errors::START_FAILED);
    assert!(matches!(client.heard().await, Heard::Close(1011, _)));
}

#[tokio::test]
async fn there_are_only_so_many_terminals() {
    let daemon = Daemon::start();
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(create(&daemon, json!({})).await);
    }
    let (status, body) = error(daemon.send(request(Method::POST, "/pty", "")).await).await;
    assert_eq!((status, &*body.code), (StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY));
    assert_eq!(remove(&daemon, &ids[0]).await, StatusCode::OK);
    create(&daemon, Value::Null).await;
}

#[tokio::test]
async fn a_terminal_works_behind_the_proxy_to_our_own_port() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"command": "exit 6"})).await;
    let mut client = WebSocket::open(&daemon, &format!("/proxy/44772/pty/{id}/ws")).await;
    assert_eq!(client.heard().await, connected(&id, PtyMode::Pty));
    assert_eq!(client.collect().await.2, 6);
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_how() {
    let daemon = Daemon::start();
    let id = create(&daemon, json!({"argv": ["/bin/cat"]})).await;
    let mut client = attach(&daemon, &id).await;
    client.send(Message::binary(vec![channels::STDIN; (1 << 20) + 1])).await;
    assert!(matches!(client.heard().await, Heard::Close(1009, _)));
    assert!(status(&daemon, &id).await.running);
}
