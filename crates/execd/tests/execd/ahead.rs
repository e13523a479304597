//! Interpreters that are there before anybody has a cell for them, and that go when nobody has.

use http::Method;
use osb_api::execd::{Event, EventKind};
use osb_core::agent::CodeAhead;
use serde_json::json;

use crate::{
    daemon::{Daemon, bytes, events, is_alive, request, texts, wait_for},
    sandbox::Sandbox,
};

async fn run(daemon: &Daemon, language: &str, code: &str) -> Vec<Event> {
    let body = json!({"code": code, "context": {"language": language}}).to_string();
    events(daemon.connect().await.send(request(Method::POST, "/code", body)).await).await
}

/// The value of the cell, as text.
fn value(events: &[Event]) -> &str {
    let mut shown = events.iter().filter_map(|event| event.results.as_ref());
    shown.find_map(|shapes| shapes.get("text")?.as_str()).unwrap_or_else(|| panic!("{events:?}"))
}

/// The numbers of the processes of this name that this one has started and that have not ended. Every
/// process is looked at: the kernel's own list of children is only right while none comes or goes.
fn children(parent: u32, name: &str) -> Vec<String> {
    let is_it = |pid: &String| {
        let Ok(said) = osb_sys::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        // Its number, its name in parentheses, its state and its parent's number.
        let (before, after) = said.rsplit_once(") ").unwrap();
        let (_, called) = before.split_once('(').unwrap();
        let mut fields = after.split(' ');
        let runs = !matches!(fields.next(), Some("Z" | "X"));
        runs && called.starts_with(name) && fields.next() == Some(&*parent.to_string())
    };
    osb_sys::fs::names("/proc").unwrap().into_iter().filter(is_it).collect()
}

fn pid(daemon: &Daemon) -> u32 {
    daemon.pid().as_raw_pid().unsigned_abs()
}

const NOTED: &str =
    "import os, sys; (os.getpid(), 'json.tool' in sys.modules, 'json' in globals())";

#[tokio::test]
async fn what_a_variable_asks_for_is_there_before_the_first_cell() {
    let asked = [
        ("EXECD_CODE_AHEAD", "python, javascript, cobol"),
        ("EXECD_CODE_IMPORTS", "nothing_of_this_name, json.tool"),
    ];
    let daemon = Daemon::with(&[], &asked);
    wait_for("both", || {
        !children(pid(&daemon), "python").is_empty() && !children(pid(&daemon), "node").is_empty()
    })
    .await;
    let [started] = &*children(pid(&daemon), "python") else { panic!("one of them") };
    assert_eq!(&*bytes(daemon.get("/code/contexts").await).await, b"[]");
    let events = run(&daemon, "python", NOTED).await;
    assert_eq!(value(&events), format!("({started}, True, False)"));
    let counts: Vec<_> = events.iter().filter_map(|event| event.execution_count).collect();
    assert_eq!(counts, [1], "nobody sees what was done before");
    // The second context has one of its own.
    let body = json!({"language": "python"}).to_string();
    daemon.connect().await.send(request(Method::POST, "/code/context", body)).await;
    assert_eq!(children(pid(&daemon), "python").len(), 2);
    let [started] = &*children(pid(&daemon), "node") else { panic!("one of them") };
    assert_eq!(value(&run(&daemon, "javascript", "process.pid").await), started);
}

#[tokio::test]
async fn it_is_as_if_it_had_begun_where_and_with_what_its_context_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("env");
    osb_sys::fs::write(&file, "EARLY=1\n").unwrap();
    let envs = file.to_str().unwrap();
    let variables = [("EXECD_CODE_AHEAD", "python,javascript"), ("EXECD_ENVS", envs)];
    let daemon = Daemon::with(&[], &variables);
    wait_for("it", || !children(pid(&daemon), "python").is_empty()).await;
    let started = children(pid(&daemon), "python");
    osb_sys::fs::write(&file, "LATER=\"two words\"\n").unwrap();
    let place = directory.path().join("place").to_str().unwrap().to_owned();
    for (language, code) in [
        (
            "python",
            "import os; print(os.getcwd(), os.environ.get('EARLY'), os.environ['LATER'], os.popen('echo $LATER').read(), end='')",
        ),
        (
            "javascript",
            "console.log(process.cwd(), process.env.EARLY ?? 'None', process.env.LATER, require('child_process').execSync('echo $LATER').toString().trim())",
        ),
    ] {
        let body = json!({"language": language, "cwd": place}).to_string();
        let made = daemon.connect().await.send(request(Method::POST, "/code/context", body)).await;
        let made: serde_json::Value = serde_json::from_slice(&bytes(made).await).unwrap();
        let body = json!({"code": code, "context": {"id": made["id"]}}).to_string();
        let said = events(daemon.connect().await.send(request(Method::POST, "/code", body)).await);
        let said = said.await;
        let printed = texts(&said, EventKind::Stdout).concat();
        assert_eq!(printed, format!("{place} None two words two words\n"), "{said:?}");
    }
    assert_eq!(children(pid(&daemon), "python"), started);
}

#[tokio::test]
async fn one_that_cannot_be_told_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("env");
    let envs = file.to_str().unwrap();
    let daemon = Daemon::with(&[], &[("EXECD_CODE_AHEAD", "python"), ("EXECD_ENVS", envs)]);
    wait_for("it", || !children(pid(&daemon), "python").is_empty()).await;
    let started = children(pid(&daemon), "python");
    osb_sys::fs::write(&file, "PYTHONPATH=/somewhere\n").unwrap();
    let events = run(&daemon, "python", "import sys; '/somewhere' in sys.path").await;
    assert_eq!(value(&events), "True");
    wait_for("its end", || !is_alive(&started[0])).await;
    assert_eq!(children(pid(&daemon), "python").len(), 1);
}

#[tokio::test]
async fn what_was_made_ready_before_the_purpose_was_known_serves_it() {
    let code =
        CodeAhead { languages: vec!["python".to_owned()], imports: vec!["json.tool".to_owned()] };
    let mut started = Vec::new();
    let sandbox = Sandbox::readied(code, ("SECRET", "told later"), |sandbox| {
        started = children(sandbox.pid(), "python");
    });
    let body = json!({
        "code": "import os, sys; print(os.environ['SECRET'], os.environ['NAME']); (os.getpid(), 'json.tool' in sys.modules)",
        "context": {"language": "python"},
    });
    let said = events(sandbox.ask(Method::POST, "/code", &body.to_string()).await).await;
    assert_eq!(texts(&said, EventKind::Stdout).concat(), "told later sandbox\n", "{said:?}");
    assert_eq!(value(&said), format!("({}, True)", started[0]));
}

#[tokio::test]
async fn a_context_that_nobody_uses_gives_its_interpreter_up_and_says_so() {
    let daemon = Daemon::with(&[], &[("EXECD_CODE_IDLE", "1")]);
    let events = run(&daemon, "python", "kept = 1; import os; os.getpid()").await;
    let started = value(&events).to_owned();
    // What runs is not idle.
    let events = run(&daemon, "python", "import time; time.sleep(2.5); os.getpid()").await;
    assert_eq!(value(&events), started);
    wait_for("its end", || !is_alive(&started)).await;
    let events = run(&daemon, "python", "'kept' in globals()").await;
    assert_eq!(value(&events), "False");
    let said = texts(&events, EventKind::Stderr).concat();
    assert!(said.contains("nothing to do for long"), "{said}");
}

/// Modules that do what modules should not.
fn modules() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, code) in [
        ("shows", "display(1)"),
        ("leaves", "import sys; sys.exit(3)"),
        ("slow", "import time; time.sleep(3)"),
    ] {
        osb_sys::fs::write(directory.path().join(format!("{name}.py")), code).unwrap();
    }
    directory
}

#[tokio::test]
async fn a_module_that_leaves_or_shows_something_holds_nobody_up() {
    let directory = modules();
    let variables = [
        ("EXECD_CODE_AHEAD", "python"),
        ("EXECD_CODE_IMPORTS", "shows,leaves,json.tool"),
        ("PYTHONPATH", directory.path().to_str().unwrap()),
    ];
    let daemon = Daemon::with(&[], &variables);
    wait_for("it", || !children(pid(&daemon), "python").is_empty()).await;
    let [started] = &*children(pid(&daemon), "python") else { panic!("one of them") };
    let said = run(&daemon, "python", "import os, sys; (os.getpid(), 'json.tool' in sys.modules)");
    let said = tokio::time::timeout(std::time::Duration::from_secs(20), said).await.unwrap();
    assert_eq!(value(&said), format!("({started}, True)"));
}

#[tokio::test]
async fn an_interrupt_meant_for_a_cell_does_not_end_what_nobody_sees() {
    let directory = modules();
    let variables = [
        ("EXECD_CODE_AHEAD", "python"),
        ("EXECD_CODE_IMPORTS", "slow"),
        ("PYTHONPATH", directory.path().to_str().unwrap()),
    ];
    let daemon = Daemon::with(&[], &variables);
    let body = json!({"language": "python"}).to_string();
    let made = daemon.connect().await.send(request(Method::POST, "/code/context", body)).await;
    let made: serde_json::Value = serde_json::from_slice(&bytes(made).await).unwrap();
    let id = made["id"].as_str().unwrap();
    let run = async |code: &str| {
        let body = json!({"code": code, "context": {"id": id}}).to_string();
        events(daemon.connect().await.send(request(Method::POST, "/code", body)).await).await
    };
    let path = format!("/code?id={id}");
    let mut cell = std::pin::pin!(run("ran = True"));
    // Until it waits for its turn there is nothing to interrupt.
    let said = loop {
        tokio::select! {
            said = &mut cell => break said,
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {
                daemon.connect().await.send(request(Method::DELETE, &path, "")).await;
            }
        }
    };
    assert!(said.iter().any(|event| event.error.is_some()), "{said:?}");
    let said = run("'ran' in globals(), 'slow' in __import__('sys').modules").await;
    assert_eq!(value(&said), "(False, True)");
}
