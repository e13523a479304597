//! The exact bytes of event streams.

use http::Method;
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, request};

/// Runs a command and checks every byte of the answer. The id, times and durations are replaced
/// by words, nothing else is.
async fn check(command: Value, expected: &str) {
    let daemon = Daemon::start();
    let response = daemon.send(request(Method::POST, "/command", command.to_string())).await;
    let wire = String::from_utf8(bytes(response).await.to_vec()).unwrap();
    assert!(wire.ends_with("\n\n"), "{wire}");
    let seen = replaced(&wire, "\"timestamp\":", "TIME");
    let seen = replaced(&seen, "\"execution_time\":", "MILLISECONDS");
    let (begin, id_and_rest) = seen.split_once("\"text\":\"").unwrap();
    let (id, rest) = id_and_rest.split_at(32);
    assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let seen = format!("{begin}\"text\":\"ID{rest}");
    let begin = "{\"type\":\"init\",\"text\":\"ID\",\"timestamp\":TIME}\n\n\
                 {\"type\":\"ping\",\"text\":\"pong\",\"timestamp\":TIME}\n\n";
    assert_eq!(seen, format!("{begin}{expected}"), "{command}");
}

/// Replaces each number that follows `key`.
fn replaced(text: &str, key: &str, word: &str) -> String {
    let mut pieces = text.split(key);
    let mut out = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        assert!(rest.len() < piece.len(), "{key}{piece}");
        out.extend([key, word, rest]);
    }
    out
}

const COMPLETE: &str =
    "{\"type\":\"execution_complete\",\"execution_time\":MILLISECONDS,\"timestamp\":TIME}\n\n";

fn output(kind: &str, text: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"text\":\"{text}\",\"timestamp\":TIME}}\n\n")
}

fn failed(evalue: &str, trace: &str) -> String {
    format!(
        "{{\"type\":\"error\",\"error\":{{\"ename\":\"CommandExecError\",\"evalue\":\"{evalue}\",\
         \"traceback\":[\"{trace}\"]}},\"timestamp\":TIME}}\n\n"
    )
}

#[tokio::test]
async fn a_line() {
    check(
        json!({"command": "echo 'Hello \"you\"'"}),
        &[&output("stdout", "Hello \\\"you\\\""), COMPLETE].concat(),
    )
    .await;
}

#[tokio::test]
async fn blank_lines() {
    let lines = ["a", "\\n", "b", "\\n", "\\n", "c"].map(|text| output("stdout", text)).concat();
    check(json!({"command": r"printf 'a\n\nb\n\n\nc\n'"}), &[&lines, COMPLETE].concat()).await;
}

#[tokio::test]
async fn no_output() {
    check(json!({"argv": ["true"]}), COMPLETE).await;
}

#[tokio::test]
async fn a_line_of_errors_without_an_end() {
    check(
        json!({"command": "printf 'oh\\t' >&2"}),
        &[&output("stderr", "oh\\t"), COMPLETE].concat(),
    )
    .await;
}

#[tokio::test]
async fn an_exit_code() {
    check(json!({"command": "exit 7"}), &failed("7", "exit status 7")).await;
}

#[tokio::test]
async fn a_signal() {
    check(json!({"command": "kill -SEGV $$"}), &failed("-1", "signal: segmentation fault")).await;
}

#[tokio::test]
async fn a_timeout() {
    let expected = [output("stdout", "begun"), failed("-1", "signal: killed")].concat();
    check(json!({"command": "echo begun; sleep 1000", "timeout": 300}), &expected).await;
}

#[tokio::test]
async fn a_program_that_is_not_there() {
    let text = "no-such-program: executable file not found in $PATH";
    check(json!({"argv": ["no-such-program"]}), &failed(text, text)).await;
    let text = "/no/such/program: No such file or directory (os error 2)";
    check(json!({"argv": ["/no/such/program"]}), &failed(text, text)).await;
    let text = "/etc/passwd: Permission denied (os error 13)";
    check(json!({"argv": ["/etc/passwd"]}), &failed(text, text)).await;
}

#[tokio::test]
async fn no_shell() {
    let text =
        "there is neither bash nor sh in $PATH: send `argv` to run a program without a shell";
    check(json!({"command": "true", "envs": {"PATH": "/nowhere"}}), &failed(text, text)).await;
}

#[tokio::test]
async fn a_background_command() {
    check(json!({"command": "echo unseen; sleep 0.1", "background": true}), COMPLETE).await;
}

#[tokio::test]
async fn line_breaks_of_unicode() {
    let command = json!({"command": r"printf 'a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d\n'"});
    let expected = [&output("stdout", r"a\u2028b\u2029c\u0085d"), COMPLETE].concat();
    check(command, &expected).await;
}

#[tokio::test]
async fn bytes_that_are_no_text() {
    let command = json!({"command": r"printf 'a\xff\xe2\x82b\n\x00\n'"});
    let expected =
        [&output("stdout", "a\u{fffd}\u{fffd}b"), &output("stdout", r"\u0000"), COMPLETE].concat();
    check(command, &expected).await;
}

#[tokio::test]
async fn a_line_that_is_too_long_for_one_event() {
    let longest = 160 << 10;
    let command = json!({"command": format!("head -c {} /dev/zero | tr '\\0' x", longest + 5)});
    let (first, rest) = (output("stdout", &"x".repeat(longest)), output("stdout", "xxxxx"));
    check(command, &[&first, &rest, COMPLETE].concat()).await;
}

#[tokio::test]
async fn output_that_is_too_much() {
    let command = json!({"command": "echo 1234567; seq 100000", "output_limit": 10});
    let notice = "[the output is longer than 10 bytes: the rest is dropped]";
    let lines = ["1234567", "1"].map(|text| output("stdout", text)).concat();
    check(command, &[&lines, &output("stderr", notice), COMPLETE].concat()).await;
}
