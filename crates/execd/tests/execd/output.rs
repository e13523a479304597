//! What comes out of a command reaches the client, whatever it is.

use http::Method;
use http_body_util::BodyExt;
use osb_api::execd::EventKind;
use serde_json::json;

use crate::daemon::{Daemon, bytes, outcome, request, stdout, take_events, texts};

#[tokio::test]
async fn empty_lines_are_newlines() {
    let events = Daemon::start().run(json!({"command": r"printf 'a\n\nb\n\n\nc\n'"})).await;
    assert_eq!(stdout(&events), ["a", "\n", "b", "\n", "\n", "c"]);
}

#[tokio::test]
async fn every_terminator_ends_a_line() {
    let events = Daemon::start().run(json!({"command": r"printf 'a\rb\r\nc\n\rd'"})).await;
    assert_eq!(stdout(&events), ["a", "b", "c", "\n", "d"]);
}

#[tokio::test]
async fn the_streams_are_told_apart() {
    let events = Daemon::start().run(json!({"command": "echo out; echo err >&2"})).await;
    assert_eq!(stdout(&events), ["out"]);
    assert_eq!(texts(&events, EventKind::Stderr), ["err"]);
}

#[tokio::test]
async fn line_breaks_of_unicode_are_escaped_on_the_wire() {
    let command = json!({"command": r"printf 'a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d'"}).to_string();
    let daemon = Daemon::start();
    let wire = bytes(daemon.send(request(Method::POST, "/command", command)).await).await;
    let wire = std::str::from_utf8(&wire).unwrap();
    assert!(wire.contains(r#""text":"a\u2028b\u2029c\u0085d""#), "{wire}");
}

#[tokio::test]
async fn what_is_not_unicode_is_replaced() {
    let events = Daemon::start().run(json!({"command": r"printf 'a\xff\xe2\x82b\n'"})).await;
    assert_eq!(stdout(&events), ["a\u{fffd}\u{fffd}b"]);
}

#[tokio::test]
async fn a_line_of_ten_mebibytes_arrives_in_events_below_one() {
    let command = json!({"command": "head -c 10485760 /dev/zero | tr '\\0' x"});
    let daemon = Daemon::start();
    let wire =
        bytes(daemon.send(request(Method::POST, "/command", command.to_string())).await).await;
    let frames = wire.split(|&byte| byte == b'\n');
    assert!(frames.map(<[u8]>::len).max().unwrap() < 1 << 20);
    let events = crate::daemon::parse(&wire);
    assert_eq!(stdout(&events).concat(), "x".repeat(10 << 20));
}

#[tokio::test]
async fn a_million_lines_arrive_in_order_and_in_bounded_memory() {
    let daemon = Daemon::start();
    let command = json!({"command": "seq 1000000"}).to_string();
    let response = daemon.send(request(Method::POST, "/command", command)).await;
    let (mut body, mut arrived, mut next) = (response.into_body(), Vec::new(), 1_u32);
    let mut last = None;
    while let Some(frame) = body.frame().await {
        arrived.extend_from_slice(&frame.unwrap().into_data().unwrap());
        let events = take_events(&mut arrived);
        for text in stdout(&events) {
            assert_eq!(text, next.to_string());
            next += 1;
        }
        last = events.last().cloned().or(last);
    }
    assert_eq!(next, 1_000_001);
    assert_eq!(outcome(last.as_slice()), "0");
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
}

#[tokio::test]
async fn nothing_is_lost_when_the_command_ends_at_once() {
    let daemon = Daemon::start();
    for _ in 0..50 {
        let command = "printf 'x%.0s' $(seq 5000); echo; echo err >&2; exit 3";
        let events = daemon.run(json!({"command": command})).await;
        assert_eq!(stdout(&events), ["x".repeat(5000)]);
        assert_eq!(texts(&events, EventKind::Stderr), ["err"]);
        assert_eq!(outcome(&events), "3");
    }
}
