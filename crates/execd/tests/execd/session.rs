//! Sessions: shells that remember.

use std::time::Duration;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use osb_api::{
    codes,
    execd::{Event, EventKind, SessionCreated},
};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use crate::daemon::{
    Connection, Daemon, bytes, error, events, is_alive, kinds, outcome, request, stdout,
    take_events, texts, wait_for,
};

/// A session of a daemon.
struct Session<'a> {
    daemon: &'a Daemon,
    id: String,
}

impl<'a> Session<'a> {
    async fn start(daemon: &'a Daemon) -> Self {
        Self::with(daemon, "").await
    }

    async fn with(daemon: &'a Daemon, body: &str) -> Self {
        let response = daemon.send(request(Method::POST, "/session", body.to_owned())).await;
        assert_eq!(response.status(), StatusCode::OK);
        let created: SessionCreated = serde_json::from_slice(&bytes(response).await).unwrap();
        Self { daemon, id: created.session_id }
    }

    fn path(&self) -> String {
        format!("/session/{}/run", self.id)
    }

    async fn send(&self, run: Value) -> Response<Incoming> {
        self.daemon.send(request(Method::POST, &self.path(), run.to_string())).await
    }

    async fn run(&self, run: Value) -> Vec<Event> {
        let events = events(self.send(run).await).await;
        assert!(kinds(&events).starts_with(&[EventKind::Init, EventKind::Ping]), "{events:?}");
        assert_eq!(texts(&events, EventKind::Init), [self.id.as_str()]);
        outcome(&events);
        events
    }

    /// Runs a command that must succeed, and returns what it prints.
    async fn shows(&self, command: &str) -> String {
        let events = self.run(json!({"command": command})).await;
        assert_eq!(outcome(&events), "0", "{command}: {events:?}");
        stdout(&events).join("\n")
    }

    async fn ends_with(&self, command: &str) -> String {
        outcome(&self.run(json!({"command": command})).await).to_owned()
    }

    async fn delete(&self) -> Response<Incoming> {
        let path = format!("/session/{}", self.id);
        self.daemon.send(request(Method::DELETE, &path, "")).await
    }

    async fn interrupt(&self) -> Response<Incoming> {
        let path = format!("/command?id={}", self.id);
        self.daemon.send(request(Method::DELETE, &path, "")).await
    }

    /// Starts a run whose first line is awaited.
    async fn first_line(&self, run: Value) -> (String, Response<Incoming>, Connection) {
        let mut connection = self.daemon.connect().await;
        let mut response =
            connection.send(request(Method::POST, &self.path(), run.to_string())).await;
        let mut arrived = Vec::new();
        loop {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            arrived.extend_from_slice(&frame.into_data().unwrap());
            if let Some(line) = stdout(&take_events(&mut arrived)).first() {
                return ((*line).to_owned(), response, connection);
            }
        }
    }
}

#[tokio::test]
async fn a_run_is_an_init_its_output_and_one_end() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let events = session.run(json!({"command": "echo a; echo; echo b >&2; printf c"})).await;
    assert_eq!(stdout(&events), ["a", "\n", "c"]);
    assert_eq!(texts(&events, EventKind::Stderr), ["b"]);
    assert_eq!(events.last().unwrap().kind, EventKind::ExecutionComplete);
    assert!(events.last().unwrap().execution_time.is_some());
}

#[tokio::test]
async fn a_session_starts_with_any_body_and_makes_its_directory() {
    let daemon = Daemon::start();
    for body in ["", "{}", "null", "{\"cwd\":null}", "{\"cwd\":\"\"}"] {
        assert_eq!(Session::with(&daemon, body).await.shows("pwd").await, "/", "{body}");
    }
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().join("a/b").display().to_string();
    let session = Session::with(&daemon, &json!({"cwd": cwd}).to_string()).await;
    assert_eq!(session.shows("pwd").await, cwd);
    let broken = daemon.send(request(Method::POST, "/session", "{\"cwd\":7}")).await;
    assert_eq!(error(broken).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_shell_remembers() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let set = "cd /tmp; plain='a  b'; export EXPORTED=$'c\\nd'; list=(1 '2 3'); \
        declare -A map=([k]=v); greet() { echo \"hello $1\"; }; alias say='echo said'; \
        shopt -s extglob; set -f; sleep 1000 & job=$!; set -- one two";
    assert_eq!(session.shows(set).await, "");
    let checks = [
        ("pwd", "/tmp"),
        ("echo \"$plain\"", "a  b"),
        ("env | grep -A1 ^EXPORTED=", "EXPORTED=c\nd"),
        ("env | grep -c ^plain=; true", "0"),
        ("echo \"${list[1]} ${map[k]}\"", "2 3 v"),
        ("greet you", "hello you"),
        ("say it", "said it"),
        ("shopt -q extglob && echo *", "*"),
        ("echo $2", "two"),
        ("jobs -p | grep -c $job; kill $job; wait $job; echo $?", "1\n143"),
    ];
    for (command, expected) in checks {
        assert_eq!(session.shows(command).await, expected, "{command}");
    }
}

#[tokio::test]
async fn the_exit_code_of_a_run_is_that_of_its_last_command() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    for (command, code) in
        [("true", "0"), ("false", "1"), ("(exit 42)", "42"), ("no-such-program", "127")]
    {
        assert_eq!(session.ends_with(command).await, code, "{command}");
    }
    let events = session.run(json!({"command": "exit 7"})).await;
    assert_eq!(outcome(&events), "7");
    assert_eq!(events.last().unwrap().error.as_ref().unwrap().traceback, ["exit status 7"]);
}

#[tokio::test]
async fn nothing_that_ends_the_shell_ends_the_session() {
    let daemon = Daemon::start();
    for (command, code) in [
        ("later=2; exit 7", "7"),
        ("later=2; exit 0", "0"),
        ("later=2; set -e; false; echo not here", "1"),
        ("later=2; g() { local inner=3 first=9; exit 5; }; g", "5"),
        ("later=2; set -u; echo $unknown", "127"),
        ("later=2; break 7", "0"),
    ] {
        let session = Session::start(&daemon).await;
        session.shows("first=1; cd /tmp; sleep 1000 & job=$!; f() { echo f; }; umask 027").await;
        assert_eq!(session.ends_with(command).await, code, "{command}");
        let shown = session
            .shows("set +eu; echo $first $later \"[$inner]\" $PWD $(umask); kill -0 $job && f")
            .await;
        assert_eq!(shown, "1 2 [] /tmp 0027\nf", "{command}");
        session.shows("kill $job").await;
    }
}

#[tokio::test]
async fn a_shell_that_is_replaced_or_killed_is_followed_by_one_with_the_last_state() {
    let daemon = Daemon::start();
    for (command, code) in [
        ("exec sh -c 'echo other; exit 3'", "3"),
        ("kill -9 $$", "-1"),
        ("trap 'echo mine' EXIT; exit 4", "4"),
        ("exec 198<&-", "1"),
        ("later=1; set -r; exit 6", "6"),
    ] {
        let session = Session::start(&daemon).await;
        session.shows("export first='it is'; list=(a b); cd /tmp; f() { echo f; }").await;
        let events = session.run(json!({"command": command})).await;
        if command != "exec 198<&-" {
            assert_eq!(outcome(&events), code, "{command}");
        }
        let shown = session.shows("echo $first ${list[1]} $PWD $(env | grep ^first); f").await;
        assert_eq!(shown, "it is b /tmp first=it is\nf", "{command}");
    }
}

#[tokio::test]
async fn options_and_traps_survive_the_shell() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    session
        .shows("shopt -s nullglob; set -o pipefail; trap 'echo usr1' USR1; alias x='echo y'")
        .await;
    session
        .shows("readonly fixed=1; declare -i number=3; g() { echo exported; }; export -f g")
        .await;
    assert_eq!(session.ends_with("exit 9").await, "9");
    assert_eq!(session.shows("shopt -q nullglob && [[ -o pipefail ]] && x").await, "y");
    assert_eq!(session.shows("kill -USR1 $$; number+=4; echo $number").await, "usr1\n7");
    assert_eq!(session.shows("bash -c g").await, "exported");
    assert_eq!(session.ends_with("fixed=2").await, "1");
}

#[tokio::test]
async fn the_users_exit_trap_runs_at_the_end_of_the_shell() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    session.shows("trap 'echo bye $?' EXIT; a=1").await;
    assert_eq!(session.shows("echo still").await, "still");
    let events = session.run(json!({"command": "b=2; exit 4"})).await;
    assert_eq!((stdout(&events), outcome(&events)), (vec!["bye 4"], "4"));
    assert_eq!(session.shows("echo $a $b").await, "1 2");
    assert_eq!(session.ends_with("exit 5").await, "5");
}

#[tokio::test]
async fn errors_in_the_text_are_those_of_bash() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    session.shows("a=1").await;
    for text in ["echo 'unclosed", "if true", ")", "cat <<", "$(("] {
        let events = session.run(json!({"command": text})).await;
        assert_ne!(outcome(&events), "0", "{text}");
        assert!(!texts(&events, EventKind::Stderr).is_empty(), "{text}");
    }
    let events = session.run(json!({"command": "\n\nno-such-program"})).await;
    assert_eq!(
        texts(&events, EventKind::Stderr),
        ["bash: line 3: no-such-program: command not found"]
    );
    assert_eq!(session.shows("echo $a").await, "1");
}

#[tokio::test]
async fn a_run_can_name_its_directory_and_the_session_stays_there() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let run = json!({"command": "pwd; echo 'it'\"'\"'s'", "cwd": "/usr/bin"});
    assert_eq!(stdout(&session.run(run).await), ["/usr/bin", "it's"]);
    assert_eq!(session.shows("pwd").await, "/usr/bin");
    for run in [
        json!({"command": "true", "cwd": "/no/such/directory"}),
        json!({"command": "true", "cwd": "/etc/passwd"}),
        json!({"command": "true", "timeout": -1}),
        json!({"command": ""}),
        json!({"command": "a\0b"}),
        json!({}),
    ] {
        let (status, body) = error(session.send(run.clone()).await).await;
        assert_eq!(
            (status, body.code.as_str()),
            (StatusCode::BAD_REQUEST, codes::INVALID_REQUEST_BODY)
        );
    }
}

#[tokio::test]
async fn a_background_job_does_not_hold_up_its_run_and_never_blocks() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let job = format!("(sleep 0.2; head -c 1000000 /dev/zero; touch {}) &", done.display());
    assert_eq!(session.shows(&job).await, "");
    wait_for("the job has written all that it has", || done.exists()).await;
    assert!(session.shows("wait $!; echo $?").await.ends_with('0'));
}

#[tokio::test]
async fn a_timeout_ends_the_run_and_what_it_started_but_not_the_session() {
    let daemon = Daemon::start();
    for text in [
        "sleep 1000 & echo $!; wait",
        "sh -c 'echo $$; trap \"\" TERM INT; sleep 1000; sleep 1000'",
        "echo $BASHPID; while :; do :; done",
        "echo $BASHPID; read < <(sleep 1000)",
        "echo $BASHPID; trap '' STKFLT; while :; do :; done",
        "echo $BASHPID; exec sleep 1000",
    ] {
        let session = Session::start(&daemon).await;
        let earlier = session.shows("a=1; sleep 1000 >/dev/null 2>&1 & echo $!").await;
        let events = session.run(json!({"command": format!("b=2; {text}"), "timeout": 300})).await;
        assert_eq!(outcome(&events), "-1", "{text}");
        let failure = events.last().unwrap().error.as_ref().unwrap();
        assert_eq!(failure.traceback, ["signal: killed"]);
        let started = stdout(&events)[0].to_owned();
        if !text.contains("BASHPID") {
            wait_for("what the run started has ended", || !is_alive(&started)).await;
        }
        let remembered = session.shows("echo $a$b").await;
        let lost = text.contains("STKFLT") || text.contains("exec");
        assert_eq!(remembered, if lost { "1" } else { "12" }, "{text}");
        assert!(is_alive(&earlier), "{text}");
        session.shows(&format!("kill {earlier}")).await;
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_run_in_progress_and_no_other() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let refused = session.interrupt().await;
    assert_eq!(error(refused).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    let run = json!({"command": "a=1; sleep 1000 & echo $!; wait"});
    let (child, response, _connection) = session.first_line(run).await;
    assert_eq!(session.interrupt().await.status(), StatusCode::OK);
    wait_for("the child is killed", || !is_alive(&child)).await;
    let rest = crate::daemon::parse(&bytes(response).await);
    assert_eq!(outcome(&rest), "-1");
    assert_eq!(session.shows("echo $a").await, "1");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let run = json!({"command": "a=1; sleep 1000 & echo $!; wait"});
    let (child, response, connection) = session.first_line(run).await;
    drop((response, connection));
    wait_for("the child is killed", || !is_alive(&child)).await;
    assert_eq!(session.shows("echo $a").await, "1");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_neither_the_time_nor_the_daemon() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let run = json!({"command": "sh -c 'echo $$; exec yes'", "timeout": 500});
    let (pid, response, _connection) = session.first_line(run).await;
    wait_for("the writer is killed at its deadline", || !is_alive(&pid)).await;
    assert!(daemon.resident() < 24 << 10, "{} KiB", daemon.resident());
    drop(response);
    assert_eq!(session.shows("echo on").await, "on");
}

#[tokio::test]
async fn runs_at_the_same_time_happen_one_after_the_other() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let runs = (0..20).map(|_| session.run(json!({"command": "n=$((n+1)); sleep 0.01; echo $n"})));
    let all = futures_util::future::join_all(runs).await;
    let mut numbers: Vec<u32> = all.iter().map(|run| stdout(run)[0].parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn too_many_runs_at_once_are_refused() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let (_, first, _connection) = session.first_line(json!({"command": "echo; sleep 1000"})).await;
    let mut waiting = Vec::new();
    let refused = loop {
        let response = session.send(json!({"command": "echo in time"})).await;
        if response.status() != StatusCode::OK {
            break response;
        }
        waiting.push(response);
        assert!(waiting.len() < 100);
    };
    assert!(error(refused).await.1.message.contains("session is busy"));
    session.interrupt().await;
    drop(first);
    for response in waiting {
        assert_eq!(stdout(&events(response).await), ["in time"]);
    }
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_all_that_it_started() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let jobs = session
        .shows("sleep 1000 >/dev/null & echo $!; setsid sleep 1000 >/dev/null & sleep 0.1; pgrep -P $! || echo $!")
        .await;
    let (child, response, _connection) =
        session.first_line(json!({"command": "echo $$; sleep 1000"})).await;
    assert_eq!(session.delete().await.status(), StatusCode::OK);
    for pid in jobs.lines().chain([child.as_str()]) {
        wait_for("all is killed", || !is_alive(pid)).await;
    }
    assert_eq!(outcome(&crate::daemon::parse(&bytes(response).await)), "-1");
    for response in [session.delete().await, session.send(json!({"command": "true"})).await] {
        let (status, body) = error(response).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(body.code, codes::CONTEXT_NOT_FOUND);
    }
}

#[tokio::test]
async fn sessions_see_the_environment_file_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("env");
    let write = |content: &str| osb_sys::fs::write(&file, content).unwrap();
    write("A=1\nB=1\n");
    let daemon = Daemon::with(&[], &[("EXECD_ENVS", file.to_str().unwrap())]);
    let session = Session::start(&daemon).await;
    assert_eq!(session.shows("echo $A$B$C; B=own").await, "11");
    write("A=2\nB=1\nC='it'\n'D.E'=1\n");
    assert_eq!(session.shows("echo $A $B $C; env | grep ^C=").await, "2 own it\nC=it");
    assert_eq!(session.shows("A=mine; echo $A").await, "mine");
    assert_eq!(session.shows("echo $A").await, "mine");
    let set = daemon.run(json!({"command": "echo \"C='new one'\" >> $EXECD_ENVS"})).await;
    assert_eq!(outcome(&set), "0");
    assert_eq!(session.shows("echo $A $C").await, "mine new one");
}

#[tokio::test]
async fn a_large_text_and_large_values_arrive_whole() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let value = "é$`'\\ \n".repeat(1 << 17);
    let text = format!("v='{}'; printf %s \"$v\" | md5sum", value.replace('\'', "'\\''"));
    assert!(text.len() > 1 << 20);
    let sum = session.shows(&text).await;
    assert_eq!(session.shows("printf %s \"$v\" | md5sum").await, sum);
    assert_eq!(session.ends_with("exit 3").await, "3");
    assert_eq!(session.shows("printf %s \"$v\" | md5sum").await, sum);
    let huge = "v=$(printf '%*s' 9000000 x)";
    assert_eq!(session.shows(&format!("w=kept; {huge}; echo ${{#v}}")).await, "9000000");
    assert_eq!(session.shows("echo ${#v} $w").await, "9000000 kept");
}

#[tokio::test]
async fn whatever_users_redefine_the_session_goes_on() {
    let daemon = Daemon::start();
    for redefined in [
        "read() { echo no; }; printf() { :; }; eval() { :; }; trap() { :; }; exit() { :; }; cd() { :; }",
        "alias printf='echo no' read=false eval=false builtin=false set=false",
        "IFS=0123456789; PATH=/nowhere; LC_ALL=xx; PS4='$(exit 1)'",
        "set -x; set -v",
        "trap 'echo debug' DEBUG; trap 'echo err' ERR",
        "POSIXLY_CORRECT=1; set -o posix",
        "shopt -s extdebug; set -o functrace",
    ] {
        let session = Session::start(&daemon).await;
        session.shows("a=1").await;
        session.run(json!({"command": redefined})).await;
        let events = session.run(json!({"command": "echo here \"$a\""})).await;
        assert!(stdout(&events).contains(&"here 1"), "{redefined}: {events:?}");
        assert_eq!(outcome(&events), "0", "{redefined}");
    }
}

#[tokio::test]
async fn whatever_users_break_breaks_their_session_alone() {
    let daemon = Daemon::start();
    for hostile in [
        "exec >/dev/null",
        "exec 0<&- 3>&1 10>/dev/null 197>&1; ulimit -n 220",
        "unset __execd_dump __execd_exit",
        "readonly __execd_text",
        "printf 'S0000000001 0\\0' >&198",
        "printf 'X 0\\0' >&198",
        "head -c 9000000 /dev/zero >&198",
        "head -c 9000000 /dev/zero | tr '\\0' S >&198",
        "set -n",
        "set -t",
        "enable -n printf read eval",
        "builtin() { :; }",
        "trap 'exit 1' EXIT INT TERM STKFLT; kill -STKFLT $$",
    ] {
        let session = Session::start(&daemon).await;
        session.shows("a=1").await;
        session.run(json!({"command": hostile, "timeout": 500})).await;
        session.run(json!({"command": "echo here", "timeout": 500})).await;
        let events = session.run(json!({"command": "exec sh -c 'echo on'", "timeout": 500})).await;
        assert!(events.len() > 2, "{hostile}");
        assert_eq!(session.delete().await.status(), StatusCode::OK);
    }
    assert!(daemon.resident() < 40 << 10, "{} KiB", daemon.resident());
    assert_eq!(Session::start(&daemon).await.shows("echo fine").await, "fine");
}

#[tokio::test]
async fn a_shell_that_never_reports_answers_to_the_deadline() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let endless = "trap '' STKFLT; while :; do printf 'S9 1\\0junk'; done >&198";
    assert_eq!(outcome(&session.run(json!({"command": endless, "timeout": 300})).await), "-1");
    assert_eq!(session.shows("echo back").await, "back");
}

#[tokio::test]
async fn no_descriptor_of_the_session_reaches_its_programs() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    for _ in 0..2 {
        assert_eq!(session.shows("ls /proc/self/fd | tr '\\n' ' '").await, "0 1 2 3 ");
        assert_eq!(session.ends_with("exit 1").await, "1");
    }
}

#[tokio::test]
async fn the_trace_of_a_user_shows_only_what_the_user_runs() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    session.shows("set -x").await;
    let events = session.run(json!({"command": "echo seen"})).await;
    assert_eq!(texts(&events, EventKind::Stderr), ["++ echo seen"]);
    let events = session.run(json!({"command": "exit 3"})).await;
    assert_eq!(texts(&events, EventKind::Stderr), ["++ exit 3"]);
    let events = session.run(json!({"command": "true", "cwd": "/tmp"})).await;
    assert_eq!(texts(&events, EventKind::Stderr), ["+++ true"]);
}

#[tokio::test]
async fn there_is_a_limit_to_sessions() {
    let daemon = Daemon::start();
    let mut sessions = Vec::new();
    let refused = loop {
        let response = daemon.send(request(Method::POST, "/session", "")).await;
        if response.status() != StatusCode::OK {
            break response;
        }
        sessions.push(response);
        assert!(sessions.len() < 1000);
    };
    assert!(error(refused).await.1.message.contains("delete one"));
}

#[tokio::test]
async fn a_session_without_bash_says_what_is_missing() {
    let daemon = Daemon::with(&[], &[("PATH", "/nowhere")]);
    let refused = daemon.send(request(Method::POST, "/session", "")).await;
    let (status, body) = error(refused).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.message.contains("bash"), "{}", body.message);
}

#[test]
fn any_text_comes_back_as_it_was_given() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let daemon = Daemon::start();
    let session = runtime.block_on(Session::start(&daemon));
    let piece = prop_oneof![
        Just("'".to_owned()),
        Just("\"".to_owned()),
        Just("$(exit 1)`$x".to_owned()),
        Just("\\".to_owned()),
        Just("if (( <<E".to_owned()),
        "[^\0\r\n]{1,8}",
    ];
    let text = prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) };
    TestRunner::new(config)
        .run(&text, |text| {
            let quoted = text.replace('\'', "'\\''");
            let shown = runtime.block_on(session.shows(&format!("printf %s '{quoted}'")));
            prop_assert_eq!(&shown, &text);
            runtime.block_on(session.shows(&format!("v='{quoted}'")));
            let shown = runtime.block_on(session.shows("printf %s \"$v\""));
            prop_assert_eq!(shown, text);
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_hundred_runs_leave_nothing_behind() {
    let daemon = Daemon::start();
    let session = Session::start(&daemon).await;
    let count = "ls /proc/$PPID/fd | wc -l";
    let before = session.shows(count).await;
    for _ in 0..50 {
        session.shows("true").await;
        session.ends_with("exit 1").await;
    }
    tokio::time::timeout(Duration::from_secs(20), async {
        // Connections of earlier runs close when they close.
        while session.shows(count).await > before {}
    })
    .await
    .unwrap();
}
