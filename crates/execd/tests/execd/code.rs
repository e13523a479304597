//! Code that remembers.

use std::time::Duration;

use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use osb_api::{
    codes,
    execd::{CodeContext, ContextKind, Event, EventKind, Failure, enames},
};
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, error, events, is_alive, kinds, request, texts, wait_for};

async fn send(daemon: &Daemon, body: Value) -> Response<Incoming> {
    daemon.connect().await.send(request(Method::POST, "/code", body.to_string())).await
}

/// Runs code in the default context of a language.
async fn run(daemon: &Daemon, language: &str, code: &str) -> Vec<Event> {
    events(send(daemon, json!({"code": code, "context": {"language": language}})).await).await
}

/// Runs code in a context.
async fn run_in(daemon: &Daemon, context: &CodeContext, code: &str) -> Vec<Event> {
    events(send(daemon, json!({"code": code, "context": {"id": context.id}})).await).await
}

async fn create(daemon: &Daemon, language: &str) -> CodeContext {
    let body = json!({ "language": language }).to_string();
    let response = daemon.connect().await.send(request(Method::POST, "/code/context", body)).await;
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_slice(&bytes(response).await).unwrap()
}

async fn list(daemon: &Daemon, query: &str) -> Vec<CodeContext> {
    let response = daemon.get(&format!("/code/contexts{query}")).await;
    serde_json::from_slice(&bytes(response).await).unwrap()
}

async fn interrupt(daemon: &Daemon, context: &CodeContext) -> StatusCode {
    let path = format!("/code?id={}", context.id);
    daemon.connect().await.send(request(Method::DELETE, &path, "")).await.status()
}

fn printed(events: &[Event]) -> String {
    texts(events, EventKind::Stdout).concat()
}

/// The values that were shown, as text.
fn results(events: &[Event]) -> Vec<&str> {
    let shown = events.iter().filter_map(|event| event.results.as_ref());
    shown.filter_map(|shapes| shapes.get("text")?.as_str()).collect()
}

fn failure(events: &[Event]) -> &Failure {
    let mut failures = events.iter().filter_map(|event| event.error.as_ref());
    failures.next_back().unwrap_or_else(|| panic!("no error: {events:?}"))
}

fn succeeded(events: &[Event]) -> bool {
    kinds(events).last() == Some(&EventKind::ExecutionComplete)
        && !kinds(events).contains(&EventKind::Error)
}

/// The most memory that execd has had, in KiB.
fn peak(daemon: &Daemon) -> u64 {
    let status = format!("/proc/{}/status", daemon.pid().as_raw_pid());
    let status = osb_sys::fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Waits until a cell has printed something.
async fn until_printed(response: &mut Response<Incoming>) {
    use http_body_util::BodyExt;
    let mut arrived = Vec::new();
    while !String::from_utf8_lossy(&arrived).contains("\"stdout\"") {
        let frame = response.frame().await.expect("a stream").expect("no failure");
        arrived.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
}

#[tokio::test]
async fn a_cell_has_a_value_prints_and_is_remembered() {
    let daemon = Daemon::start();
    let first = run(&daemon, "python", "import sys\nx = 20\nprint('hello')\nx + 1").await;
    let expected = [
        EventKind::Init,
        EventKind::Ping,
        EventKind::Stdout,
        EventKind::ExecutionCount,
        EventKind::Result,
        EventKind::ExecutionComplete,
    ];
    assert_eq!(kinds(&first), expected, "{first:?}");
    assert_eq!((printed(&first).as_str(), results(&first)), ("hello\n", vec!["21"]));
    let second = run(&daemon, "python", "x += 2; x").await;
    assert_eq!(results(&second), ["22"]);
    assert_eq!(second[2].execution_count, Some(2));
    assert_eq!(texts(&first, EventKind::Init), texts(&second, EventKind::Init));
    let quiet = run(&daemon, "python", "y = 1").await;
    assert!(succeeded(&quiet) && results(&quiet).is_empty());
}

#[tokio::test]
async fn every_language_without_a_kernel_has_a_driver() {
    let daemon = Daemon::start();
    for (language, first, second, value) in [
        ("python", "a = [1, 2]", "a + [3]", "[1, 2, 3]"),
        ("javascript", "let a = [1, 2]", "[...a, await Promise.resolve(3)]", "[ 1, 2, 3 ]"),
    ] {
        assert!(succeeded(&run(&daemon, language, first).await), "{language}");
        assert_eq!(results(&run(&daemon, language, second).await), [value], "{language}");
    }
    assert!(succeeded(&run(&daemon, "bash", "a=1; f() { echo \"f $a\"; }").await));
    assert_eq!(printed(&run(&daemon, "bash", "a=2; f; printf '\\n\\nx'").await), "f 2\n\n\nx");
    assert_eq!(failure(&run(&daemon, "bash", "false").await).evalue, "1");
    let contexts = list(&daemon, "").await;
    let languages: Vec<_> = contexts.iter().map(|context| context.language.as_str()).collect();
    assert_eq!(languages, ["python", "javascript", "bash"]);
    assert!(contexts.iter().all(|context| context.kind == Some(ContextKind::Builtin)));
    assert!(contexts[0].memory > Some(1 << 20), "{contexts:?}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_once() {
    let daemon = Daemon::start();
    for (body, status, said) in [
        (json!({"code": "1", "context": {"language": "ruby"}}), StatusCode::BAD_REQUEST, "python"),
        (json!({"code": "1", "context": {"language": "sql"}}), StatusCode::BAD_REQUEST, "bash"),
        (json!({"code": "", "context": {"language": "python"}}), StatusCode::BAD_REQUEST, "empty"),
        (json!({"code": "1", "context": {"id": "none"}}), StatusCode::NOT_FOUND, "none"),
        (json!({"code": "1", "timeout": -1}), StatusCode::BAD_REQUEST, "negative"),
        (json!({"code": "1", "context": "python"}), StatusCode::BAD_REQUEST, "an object with `id`"),
        (json!({"code": "1", "language": "ruby"}), StatusCode::BAD_REQUEST, "ruby"),
        (
            json!({"code": "1", "language": "python", "context": {"language": "bash"}}),
            StatusCode::BAD_REQUEST,
            "that of the context \"bash\"",
        ),
    ] {
        let (found, told) = error(send(&daemon, body.clone()).await).await;
        assert_eq!(found, status, "{body}: {told:?}");
        assert!(told.message.contains(said), "{told:?}");
    }
    let ask = |body: Value| daemon.send(request(Method::POST, "/code/context", body.to_string()));
    let (status, told) = error(ask(json!({"language": "go"})).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(told.code, codes::LANGUAGE_NOT_AVAILABLE);
    assert!(told.message.contains("go runs in a Jupyter kernel alone"), "{told:?}");
    let (_, told) = error(ask(json!({})).await).await;
    assert!(told.message.starts_with("`language` is missing; there are: python"), "{told:?}");
    assert_eq!(list(&daemon, "").await, []);
}

#[tokio::test]
async fn a_language_that_is_not_installed_is_named() {
    let daemon = Daemon::with(&[], &[("PATH", "/nowhere")]);
    let body = json!({"code": "1", "context": {"language": "python"}});
    let (status, told) = error(send(&daemon, body).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(told.code, codes::LANGUAGE_NOT_AVAILABLE);
    assert!(told.message.contains("python3 or python, which python needs"), "{told:?}");
}

#[tokio::test]
async fn a_language_beside_the_code_is_that_of_its_context() {
    let daemon = Daemon::start();
    let cell = events(send(&daemon, json!({"code": "1 + 1", "language": "python"})).await).await;
    assert_eq!(results(&cell), ["2"]);
    assert_eq!(list(&daemon, "?language=python").await.len(), 1);
    let body = json!({"code": "2 + 2", "language": "python", "context": {"language": null}});
    assert_eq!(results(&events(send(&daemon, body).await).await), ["4"]);
    assert_eq!(list(&daemon, "").await.len(), 1);
}

#[tokio::test]
async fn a_context_says_where_it_is_in_full() {
    let place = tempfile::tempdir().unwrap();
    let workdir = place.path().to_str().unwrap();
    let daemon = Daemon::with(&[], &[("PLACE", workdir)]);
    for (given, expected) in
        [("$PLACE/./new//below", Some(format!("{workdir}/new/below"))), ("", None)]
    {
        let body = json!({"language": "bash", "cwd": given}).to_string();
        let made = daemon.send(request(Method::POST, "/code/context", body)).await;
        let context: CodeContext = serde_json::from_slice(&bytes(made).await).unwrap();
        assert_eq!(context.cwd, expected);
        if let Some(expected) = expected {
            assert_eq!(printed(&run_in(&daemon, &context, "pwd").await).trim(), expected);
        }
    }
    let body = json!({"language": "bash", "cwd": "."}).to_string();
    let made = daemon.send(request(Method::POST, "/code/context", body)).await;
    let context: CodeContext = serde_json::from_slice(&bytes(made).await).unwrap();
    assert!(context.cwd.unwrap().starts_with('/'));
}

#[tokio::test]
async fn code_without_a_language_is_a_command() {
    let daemon = Daemon::start();
    let events = events(send(&daemon, json!({"code": "echo $((1 + 1))"})).await).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["2"]);
}

#[tokio::test]
async fn contexts_are_apart_and_can_be_deleted() {
    let daemon = Daemon::start();
    let (one, other) = (create(&daemon, "python").await, create(&daemon, "python").await);
    assert!(succeeded(&run_in(&daemon, &one, "x = 1; import os; p = os.getpid()").await));
    assert_eq!(failure(&run_in(&daemon, &other, "x").await).ename, "NameError");
    let pid = results(&run_in(&daemon, &one, "p").await)[0].to_owned();
    let wrong = json!({"code": "1", "context": {"id": one.id, "language": "bash"}});
    assert_eq!(send(&daemon, wrong).await.status(), StatusCode::BAD_REQUEST);

    let path = format!("/code/contexts/{}", one.id);
    let described: CodeContext =
        serde_json::from_slice(&bytes(daemon.get(&path).await).await).unwrap();
    assert_eq!((&described.id, &described.language), (&one.id, &one.language));
    let deleted = daemon.send(request(Method::DELETE, &path, "")).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    assert!(!is_alive(&pid));
    let (status, told) = error(daemon.get(&path).await).await;
    assert_eq!((status, told.code.as_str()), (StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND));
    assert_eq!(list(&daemon, "?language=python").await.len(), 1);
    let all = daemon.send(request(Method::DELETE, "/code/contexts?language=python", "")).await;
    assert_eq!(all.status(), StatusCode::OK);
    assert_eq!(list(&daemon, "").await, []);
    let missing = daemon.send(request(Method::DELETE, "/code/contexts", "")).await;
    assert_eq!(error(missing).await.1.code, codes::MISSING_QUERY);
}

#[tokio::test]
async fn an_error_tells_where_it_was_and_keeps_the_state() {
    let daemon = Daemon::start();
    run(&daemon, "python", "x = 1\ndef f():\n    raise ValueError('no', x)").await;
    let events = run(&daemon, "python", "print('before')\nf()").await;
    let failure = failure(&events);
    assert_eq!((failure.ename.as_str(), failure.evalue.as_str()), ("ValueError", "('no', 1)"));
    let trace = failure.traceback.join("\n");
    assert!(
        trace.contains("<cell 2>\", line 2") && trace.contains("raise ValueError('no', x)"),
        "{trace}"
    );
    assert!(!trace.contains("execd"), "{trace}");
    assert_eq!(printed(&events), "before\n");
    assert_eq!(results(&run(&daemon, "python", "x").await), ["1"]);
}

#[tokio::test]
async fn output_comes_while_the_cell_runs_and_before_what_follows() {
    let daemon = Daemon::start();
    let code = "print('now', flush=True)\nimport time\ntime.sleep(600)";
    let context = create(&daemon, "python").await;
    let body = json!({"code": code, "context": {"id": context.id}});
    let mut response = send(&daemon, body).await;
    until_printed(&mut response).await;
    assert_eq!(interrupt(&daemon, &context).await, StatusCode::OK);
    let rest = events(response).await;
    assert_eq!(failure(&rest).ename, "KeyboardInterrupt");
    let order = "import sys\nfor i in range(30000): print(i)\nsys.stderr.write('e')\ndisplay('shown')\nprint('last')\n7";
    let events = run_in(&daemon, &context, order).await;
    assert_eq!(printed(&events).lines().count(), 30001);
    let place = |wanted: EventKind| kinds(&events).iter().position(|kind| *kind == wanted).unwrap();
    let shown = place(EventKind::Result);
    let before: String = texts(&events[..shown], EventKind::Stdout).concat();
    assert!(before.ends_with("29999\n"), "what was printed before comes before");
    assert_eq!(texts(&events[shown..], EventKind::Stdout).concat(), "last\n");
    assert_eq!(results(&events), ["'shown'", "7"]);
}

#[tokio::test]
async fn what_is_no_line_comes_a_moment_later_and_is_whole() {
    let daemon = Daemon::start();
    let cell = "import os, time\nfor i in range(20):\n  print('.', end='')\n  time.sleep(0.0035)\n\
        if os.fork() == 0: os._exit(0)\nos.wait() and None";
    for _ in 0..30 {
        let events = run(&daemon, "python", cell).await;
        assert_eq!(printed(&events), ".".repeat(20));
        assert_eq!(texts(&events, EventKind::Stderr), Vec::<&str>::new());
    }
    // Nobody waits for a thread that has ended long ago.
    let forks =
        "print('.', end='')\nfor i in range(30):\n  if os.fork() == 0: os._exit(0)\n  os.wait()";
    let body = json!({"code": forks, "timeout": 20_000, "context": {"language": "python"}});
    let events = events(send(&daemon, body).await).await;
    assert!(succeeded(&events), "{events:?}");
}

#[tokio::test]
async fn an_interrupt_keeps_the_state_in_every_language() {
    let daemon = Daemon::start();
    for (language, set, endless, get) in [
        ("python", "x = 5", "print('in')\nwhile True: pass", "print(x)"),
        ("python", "x = 6", "import time\nprint('in')\ntime.sleep(600)", "print(x)"),
        ("python", "x = 7", "!echo in; sleep 600", "print(x)"),
        ("javascript", "let x = 8", "console.log('in'); for (;;) {}", "console.log(x)"),
        ("javascript", "x = 9", "console.log('in'); await new Promise(() => {})", "console.log(x)"),
        ("bash", "x=10", "echo in; sleep 600", "echo $x"),
    ] {
        let context = create(&daemon, language).await;
        assert!(succeeded(&run_in(&daemon, &context, set).await), "{language} {set}");
        let body = json!({"code": endless, "context": {"id": context.id}});
        let mut response = send(&daemon, body).await;
        until_printed(&mut response).await;
        assert_eq!(interrupt(&daemon, &context).await, StatusCode::OK);
        let rest = events(response).await;
        if endless.starts_with('!') {
            assert!(succeeded(&rest) || !rest.is_empty(), "{rest:?}");
        } else {
            failure(&rest);
        }
        let after = run_in(&daemon, &context, get).await;
        let kept: String = set.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(printed(&after).trim(), kept, "{language} {endless}: {after:?}");
        // Nothing runs, so nothing happens.
        assert_eq!(interrupt(&daemon, &context).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn cells_of_one_context_wait_for_each_other_and_others_do_not() {
    let daemon = Daemon::start();
    let (one, other) = (create(&daemon, "python").await, create(&daemon, "python").await);
    run_in(&daemon, &one, "order = []").await;
    let body = json!({"code": "print('in')\nimport time\nwhile not order: time.sleep(0.01) or order.append(1) if __import__('os').path.exists(gate) else None",
        "context": {"id": one.id}});
    let gate = tempfile::tempdir().unwrap();
    let path = gate.path().join("gate");
    run_in(&daemon, &one, &format!("gate = {:?}", path.display().to_string())).await;
    let mut first = send(&daemon, body).await;
    until_printed(&mut first).await;
    let second =
        send(&daemon, json!({"code": "order.append(2); order", "context": {"id": one.id}})).await;
    assert_eq!(results(&run_in(&daemon, &other, "1 + 1").await), ["2"]);
    osb_sys::fs::write(&path, "").unwrap();
    assert_eq!(results(&events(second).await), ["[1, 2]"]);
    assert!(succeeded(&events(first).await));
}

#[tokio::test]
async fn code_that_waits_has_a_limit_in_all_contexts_together() {
    let daemon = Daemon::start();
    let contexts = [create(&daemon, "python").await, create(&daemon, "python").await];
    let mut waiting = Vec::new();
    for context in &contexts {
        let sleep = "print('in')\nimport time\ntime.sleep(1000)";
        let mut first = send(&daemon, json!({"code": sleep, "context": {"id": context.id}})).await;
        until_printed(&mut first).await;
        waiting.push(first);
    }
    let code = "#".repeat(7 << 20);
    for number in 0..9 {
        let body = json!({"code": code, "context": {"id": contexts[number % 2].id}});
        waiting.push(send(&daemon, body).await);
        assert_eq!(waiting.last().unwrap().status(), StatusCode::OK);
    }
    let body = json!({"code": code, "context": {"id": contexts[1].id}});
    let (status, refused) = error(send(&daemon, body.clone()).await).await;
    assert_eq!((status, refused.code.as_str()), (StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY));
    assert!(refused.message.contains("longer than 67108864 bytes"), "{}", refused.message);
    let path = format!("/code/contexts/{}", contexts[0].id);
    daemon.connect().await.send(request(Method::DELETE, &path, "")).await;
    assert_eq!(send(&daemon, body).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_interpreter_that_does_not_hear_takes_no_memory() {
    let daemon = Daemon::with(&[], &[("EXECD_ON_DISCONNECT", "continue")]);
    let context = create(&daemon, "python").await;
    let code = "import os\nprint('in')\nx = b'C\\0\\0' * 20000\nwhile True: os.write(3, x)";
    let body = json!({"code": code, "context": {"id": context.id}, "timeout": 2000});
    let mut response = send(&daemon, body).await;
    until_printed(&mut response).await;
    drop(response);
    assert_eq!(results(&run_in(&daemon, &context, "1 + 1").await), ["2"]);
    assert!(peak(&daemon) < 48 << 10, "{} KiB", peak(&daemon));
}

#[tokio::test]
async fn large_json_takes_no_more_memory_than_its_text() {
    let daemon = Daemon::start();
    let code = "
class Many:
    def _repr_mimebundle_(self, **_):
        return {'application/json': [{}] * 700_000, 'text/plain': 'many'}
Many()";
    let shown = run(&daemon, "python", code).await;
    let shapes = shown.iter().find_map(|event| event.results.as_ref()).unwrap();
    assert_eq!(shapes["text"], "many");
    assert_eq!(
        shapes["application/json"].as_array().map(Vec::len),
        Some(700_000),
        "{:?}",
        shapes.keys()
    );
    assert!(peak(&daemon) < 48 << 10, "{} KiB", peak(&daemon));
}

#[tokio::test]
async fn an_interpreter_that_ends_is_told_and_begins_anew() {
    let daemon = Daemon::start();
    for (language, cell) in [
        ("python", "x = 1; exit()"),
        ("python", "import os; os.kill(os.getpid(), 9)"),
        ("python", "import os; os._exit(3)"),
        // One that says what nobody understands is ended.
        (
            "python",
            "import os\nfor fd in range(3, 9):\n  try: os.write(fd, b'nonsense')\n  except OSError: pass\nwhile True: pass",
        ),
        ("javascript", "process.exit(2)"),
    ] {
        let context = create(&daemon, language).await;
        let events = run_in(&daemon, &context, cell).await;
        let failure = failure(&events);
        assert_eq!(failure.ename, enames::INTERPRETER, "{cell}");
        assert!(failure.evalue.contains("what it knew is gone"), "{failure:?}");
        let again = run_in(&daemon, &context, "1 + 1").await;
        assert_eq!(results(&again), ["2"]);
        let said = texts(&again, EventKind::Stderr).concat();
        assert!(said.contains("started anew"), "{said}");
        let later = run_in(&daemon, &context, "2 + 2").await;
        assert_eq!(texts(&later, EventKind::Stderr), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn one_that_ends_between_cells_begins_anew_as_well() {
    let daemon = Daemon::start();
    let context = create(&daemon, "python").await;
    let events = run_in(&daemon, &context, "import os; os.getpid()").await;
    let pid = results(&events)[0].to_owned();
    let number = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    wait_for("its end", || !is_alive(&pid)).await;
    let again = run_in(&daemon, &context, "'pid' in dir()").await;
    assert_eq!(results(&again), ["False"]);
    assert!(texts(&again, EventKind::Stderr).concat().contains("started anew"));
}

#[tokio::test]
async fn whoever_leaves_interrupts_the_cell() {
    let daemon = Daemon::start();
    let context = create(&daemon, "python").await;
    run_in(&daemon, &context, "x = 3").await;
    let mut response =
        send(&daemon, json!({"code": "print(1)\nwhile True: pass", "context": {"id": context.id}}))
            .await;
    until_printed(&mut response).await;
    drop(response);
    assert_eq!(results(&run_in(&daemon, &context, "x").await), ["3"]);
}

#[tokio::test]
async fn a_cell_may_have_a_limit() {
    let daemon = Daemon::start();
    let context = create(&daemon, "python").await;
    run_in(&daemon, &context, "x = 4").await;
    let body = json!({"code": "while True: pass", "timeout": 200, "context": {"id": context.id}});
    let events = events(send(&daemon, body).await).await;
    assert_eq!(failure(&events).ename, enames::TIMEOUT);
    assert_eq!(results(&run_in(&daemon, &context, "x").await), ["4"]);
    // One that does not obey is ended.
    let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let body = json!({"code": deaf, "timeout": 100, "context": {"id": context.id}});
    let events = crate::daemon::events(send(&daemon, body).await).await;
    assert_eq!(failure(&events).ename, enames::INTERPRETER);
    assert_eq!(failure(&run_in(&daemon, &context, "x").await).ename, "NameError");
}

#[tokio::test]
async fn values_are_shown_in_all_their_shapes() {
    let daemon = Daemon::start();
    let code = "class A:\n  def _repr_html_(self): return '<b>x</b>'\n  def _repr_json_(self): return {'a': [1]}\n  def __repr__(self): return 'A!'\nA()";
    let events = run(&daemon, "python", code).await;
    let shapes = events.iter().find_map(|event| event.results.as_ref()).unwrap();
    let expected = json!({"text": "A!", "text/html": "<b>x</b>", "application/json": {"a": [1]}});
    assert_eq!(json!(shapes), expected);
    let shown =
        run(&daemon, "python", "display(A()); print('between'); display('s', display_id='i')")
            .await;
    assert_eq!(results(&shown), ["A!", "'s'", "<DisplayHandle display_id=i>"]);
    let html = run(&daemon, "javascript", "display.html('<i>'); 1").await;
    assert_eq!(events_with(&html, "text/html"), ["<i>"]);
}

fn events_with<'a>(events: &'a [Event], kind: &str) -> Vec<&'a str> {
    let shown = events.iter().filter_map(|event| event.results.as_ref());
    shown.filter_map(|shapes| shapes.get(kind)?.as_str()).collect()
}

#[tokio::test]
async fn notebooks_are_understood() {
    let daemon = Daemon::start();
    for (code, printed_, value) in [
        ("!echo hello", "hello\n", None),
        ("word = 'two'\nlines = !echo one; echo {word}\nlines", "", Some("['one', 'two']")),
        ("for i in range(2):\n    !echo $i", "0\n1\n", None),
        ("%cd /\n%pwd", "/\n", Some("'/'")),
        ("%%bash\necho in bash", "in bash\n", None),
        ("import asyncio\nawait asyncio.sleep(0)\n'awaited'", "", Some("'awaited'")),
        ("from __future__ import annotations\n1;", "", None),
        ("_", "", Some("'awaited'")),
        ("text = '''\n!not a command\n%not a magic\n'''\nlen(text)", "", Some("29")),
    ] {
        let events = run(&daemon, "python", code).await;
        assert!(succeeded(&events), "{code}: {events:?}");
        assert_eq!(printed(&events), printed_, "{code}");
        assert_eq!(results(&events), value.into_iter().collect::<Vec<_>>(), "{code}");
    }
    for (code, name) in [
        ("%nothing", "UsageError"),
        ("input()", "StdinNotImplementedError"),
        ("x = (", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
    ] {
        assert_eq!(failure(&run(&daemon, "python", code).await).ename, name, "{code}");
    }
}

#[tokio::test]
async fn much_output_is_whole_and_little_is_held() {
    let daemon = Daemon::start();
    run(&daemon, "python", "1").await;
    let before = daemon.resident();
    let code = "import sys\nsys.stdout.write('x' * 20_000_000)\nNone";
    let events = run(&daemon, "python", code).await;
    assert_eq!(printed(&events).len(), 20_000_000);
    assert!(daemon.resident() < before + (16 << 20), "it holds what it passes on");
}

#[tokio::test]
async fn a_daemon_that_ends_takes_its_interpreters_along() {
    let mut daemon = Daemon::start();
    let events = run(&daemon, "python", "import os; os.getpid()").await;
    let pid = results(&events)[0].to_owned();
    daemon.signal(rustix::process::Signal::TERM);
    daemon.end().await;
    wait_for("its end", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn many_contexts_work_side_by_side() {
    let daemon = Daemon::start();
    let one = async |number: usize| {
        let context = create(&daemon, "python").await;
        run_in(&daemon, &context, &format!("n = {number}")).await;
        let events = run_in(&daemon, &context, "n * 2").await;
        assert_eq!(results(&events), [(number * 2).to_string()]);
    };
    let all = futures_util::future::join_all((0..20).map(one));
    tokio::time::timeout(Duration::from_mins(2), all).await.expect("an end");
    assert_eq!(list(&daemon, "").await.len(), 20);
}

/// Other threads do not take what is meant for the one that executes cells.
#[tokio::test]
async fn threads_may_show_something_while_cells_run_and_between_them() {
    let daemon = Daemon::start();
    let context = create(&daemon, "python").await;
    let threads = "import threading, time\n\
        def f():\n  for i in range(300):\n    display({'text/html': 'x' * (i * 100)}, raw=True); time.sleep(.001)\n\
        threads = [threading.Thread(target=f) for _ in range(4)]\nfor t in threads: t.start()";
    assert!(succeeded(&run_in(&daemon, &context, threads).await));
    for number in 0..40 {
        let code = format!("print('a'); display('here'); print('b')\n{number}");
        let events = run_in(&daemon, &context, &code).await;
        assert!(succeeded(&events), "{events:?}");
        assert_eq!(printed(&events), "a\nb\n");
        assert_eq!(results(&events), ["'here'".to_owned(), number.to_string()]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let joined = run_in(&daemon, &context, "for t in threads: t.join()\n'over'").await;
    assert_eq!(results(&joined), ["'over'"]);
    // All that is shown while a cell runs belongs to it.
    let code = "def g():\n  for i in range(50): display(i)\nt = threading.Thread(target=g)\nt.start(); t.join()";
    assert_eq!(results(&run_in(&daemon, &context, code).await).len(), 50);
}

#[tokio::test]
async fn what_is_shown_or_printed_between_cells_is_for_nobody() {
    let daemon = Daemon::start();
    let gate = tempfile::tempdir().unwrap();
    for (language, later, value) in [
        (
            "python",
            "import threading, os\ndef f():\n  print('late'); display('late')\n  open(gate, 'w').close()\n\
            threading.Timer(.3, f).start()",
            "2",
        ),
        (
            "javascript",
            "setTimeout(() => { console.log('late'); display('late'); require('fs').writeFileSync(gate, '') }, 300); 0",
            "2",
        ),
    ] {
        let context = create(&daemon, language).await;
        let path = gate.path().join(language);
        run_in(&daemon, &context, &format!("gate = {:?}", path.display().to_string())).await;
        assert!(succeeded(&run_in(&daemon, &context, later).await), "{language}");
        wait_for("what comes late", || path.exists()).await;
        // What it said before was heard, or is at once.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let events = run_in(&daemon, &context, "1 + 1").await;
        assert_eq!((printed(&events).as_str(), results(&events)), ("", vec![value]), "{language}");
    }
}

/// An interrupt, or whatever else a signal leads to, does not leave half of a message.
#[tokio::test]
async fn whoever_shows_much_can_be_interrupted_and_keeps_the_state() {
    let daemon = Daemon::start();
    let context = create(&daemon, "python").await;
    run_in(&daemon, &context, "keep = 41\nh = 'x' * 2_900_000").await;
    for _ in 0..5 {
        let endless = "print('in')\nwhile True: display({'text/html': h}, raw=True)";
        let mut response =
            send(&daemon, json!({"code": endless, "context": {"id": context.id}})).await;
        until_printed(&mut response).await;
        // Nobody reads meanwhile, so that it is in the middle of one.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(interrupt(&daemon, &context).await, StatusCode::OK);
        assert_eq!(failure(&events(response).await).ename, "KeyboardInterrupt");
        assert_eq!(results(&run_in(&daemon, &context, "keep").await), ["41"]);
    }
    let endless = "h = 'x'.repeat(2_900_000); for (;;) display.html(h)";
    let javascript = run(&daemon, "javascript", endless).await;
    assert!(
        failure(&javascript).evalue.starts_with("more than 64 MiB"),
        "{:?}",
        failure(&javascript)
    );
    assert_eq!(results(&run(&daemon, "javascript", "h.length").await), ["2900000"]);
    let alarm = "import signal\n\
        def late(*_): raise TimeoutError('late')\n\
        signal.signal(signal.SIGALRM, late)\n\
        signal.setitimer(signal.ITIMER_REAL, .05)\n\
        while True: display({'text/html': h}, raw=True)";
    for _ in 0..5 {
        assert_eq!(failure(&run_in(&daemon, &context, alarm).await).evalue, "late");
        assert_eq!(results(&run_in(&daemon, &context, "keep").await), ["41"]);
    }
}

/// Nothing is killed by an interrupt because it has not begun.
#[tokio::test]
async fn an_interpreter_that_starts_can_be_interrupted() {
    let daemon = Daemon::start();
    for (language, endless) in [("python", "while True: pass"), ("javascript", "for (;;) {}")] {
        for wait in 0..5 {
            let context = create(&daemon, language).await;
            let body = json!({"code": endless, "context": {"id": context.id}});
            let response = send(&daemon, body).await;
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert_eq!(interrupt(&daemon, &context).await, StatusCode::OK);
            assert_eq!(failure(&events(response).await).ename, "KeyboardInterrupt", "{language}");
            let after = run_in(&daemon, &context, "1 + 1").await;
            assert_eq!(texts(&after, EventKind::Stderr), Vec::<&str>::new());
            assert_eq!(results(&after), ["2"]);
        }
    }
}

/// What cells start has nothing of how its interpreter treats signals.
#[tokio::test]
async fn programs_of_cells_have_the_usual_signals() {
    let daemon = Daemon::start();
    let code = "display(1)\n!grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let printed = printed(&run(&daemon, "python", code).await);
    let masks: Vec<_> = printed.lines().filter_map(|line| line.split_once(":\t")).collect();
    let bits = |name| masks.iter().find(|mask| mask.0 == name).map(|mask| mask.1.to_owned());
    assert_eq!(bits("SigBlk").as_deref(), Some("0000000000000000"), "{printed}");
    let ignored = u64::from_str_radix(&bits("SigIgn").unwrap(), 16).unwrap();
    assert_eq!(ignored & 0b10, 0, "{printed}");
}
