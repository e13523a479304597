use std::time::Duration;

use http::StatusCode;
use osb_api::{codes, execd::EventKind};
use serde_json::json;

use crate::daemon::{Daemon, is_alive, is_root, kinds, outcome, stdout, texts, wait_for};

#[tokio::test]
async fn a_command_is_an_init_its_output_and_one_end() {
    let events = Daemon::start().run(json!({"command": "echo 'Hello'"})).await;
    let (first, last) = (EventKind::Init, EventKind::ExecutionComplete);
    assert_eq!(kinds(&events), [first, EventKind::Ping, EventKind::Stdout, last]);
    assert_eq!(stdout(&events), ["Hello"]);
    let id = events[0].text.as_deref().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert!(events.iter().all(|event| event.timestamp > 1_600_000_000_000));
    assert!(events[3].execution_time.is_some());
}

#[tokio::test]
async fn a_command_runs_in_the_directory_it_names() {
    let daemon = Daemon::start();
    let pwd = |cwd: &str| daemon.run(json!({"command": "pwd", "cwd": cwd, "envs": {"D": "tmp"}}));
    assert_eq!(stdout(&pwd("/tmp").await), ["/tmp"]);
    assert_eq!(stdout(&pwd("/$D").await), ["/tmp"]);
    assert_eq!(stdout(&pwd("").await), ["/"]);
    assert_eq!(stdout(&pwd("usr/bin").await), ["/usr/bin"]);
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_the_stream_begins() {
    let daemon = Daemon::start();
    for command in [
        json!({"command": "true", "cwd": "/no/such/directory"}),
        json!({"command": "true", "cwd": "/etc/passwd"}),
        json!({"command": "true", "timeout": -1}),
        json!({"command": "true", "gid": 5}),
        json!({"command": "true", "argv": ["true"]}),
        json!({"command": "true", "envs": {"A=B": "c"}}),
        json!({"command": "a\0b"}),
        json!({"command": ""}),
        json!({"argv": []}),
        json!({"argv": [""]}),
        json!({"argv": ["true", "\0"]}),
        json!({}),
        json!([]),
        json!({"command": 7}),
    ] {
        let (status, body) = daemon.refused(command.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{command}");
        assert_eq!(body.code, codes::INVALID_REQUEST_BODY, "{command}");
    }
}

#[tokio::test]
async fn the_exit_code_travels_in_the_error_alone() {
    let daemon = Daemon::start();
    let events = daemon.run(json!({"command": "no-such-program-here"})).await;
    assert!(texts(&events, EventKind::Stderr).concat().contains("no-such-program-here"));
    assert_eq!(outcome(&events), "127");
    let events = daemon.run(json!({"command": "exit 7"})).await;
    assert_eq!(outcome(&events), "7");
    assert_eq!(events.last().unwrap().error.as_ref().unwrap().traceback, ["exit status 7"]);
    let events = daemon.run(json!({"command": "kill -TERM $$"})).await;
    assert_eq!(outcome(&events), "-1");
    assert_eq!(events.last().unwrap().error.as_ref().unwrap().traceback, ["signal: terminated"]);
}

#[tokio::test]
async fn arguments_arrive_literally() {
    let program = "import sys; print(sys.argv[1:])";
    let argv = json!({"argv": ["python3", "-c", program, "a b", "$HOME", ""]});
    let events = Daemon::start().run(argv).await;
    assert_eq!(stdout(&events), ["['a b', '$HOME', '']"]);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_event() {
    let events = Daemon::start().run(json!({"argv": ["no-such-program-here"]})).await;
    assert_eq!(kinds(&events), [EventKind::Init, EventKind::Ping, EventKind::Error]);
    assert!(outcome(&events).contains("no-such-program-here"));
}

#[tokio::test]
async fn variables_are_for_one_command_and_the_token_for_none() {
    let daemon = Daemon::with(&[], &[("EXECD_ACCESS_TOKEN", ""), ("BASE", "base")]);
    let env = json!({"argv": ["/usr/bin/env"], "envs": {"MINE": "a 'b'\n$BASE", "BASE": "own"}});
    let events = daemon.run(env).await;
    let lines = stdout(&events);
    assert!(lines.windows(2).any(|pair| pair == ["MINE=a 'b'", "$BASE"]), "{lines:?}");
    assert!(lines.contains(&"BASE=own"));
    assert!(!lines.iter().any(|line| line.contains("EXECD_ACCESS_TOKEN")));
    let events = daemon.run(json!({"command": "echo \"<$MINE><$BASE>\""})).await;
    assert_eq!(stdout(&events), ["<><base>"]);
}

#[tokio::test]
async fn assignments_in_the_environment_file_reach_the_next_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("made/env");
    let daemon = Daemon::with(&[], &[("EXECD_ENVS", file.to_str().unwrap())]);
    let set = r#"printf '%s\n' 'A="one \"two\"' 'three"' "B='\$A'" >> "$EXECD_ENVS""#;
    assert_eq!(outcome(&daemon.run(json!({"command": set})).await), "0");
    let events = daemon.run(json!({"command": "echo \"$A\"; echo \"$B\""})).await;
    assert_eq!(stdout(&events), ["one \"two\"", "three", "$A"]);
    let own = json!({"command": "echo $B", "envs": {"B": "own"}});
    assert_eq!(stdout(&daemon.run(own).await), ["own"]);
}

#[tokio::test]
async fn a_command_inherits_three_descriptors_and_leads_its_group() {
    let daemon = Daemon::start();
    let events = daemon.run(json!({"command": "echo /proc/$$/fd/*; cat <&0"})).await;
    // bash itself reads the directory through one more.
    let listed = stdout(&events).concat();
    let open: Vec<_> = listed.split(' ').filter_map(|path| path.rsplit('/').next()).collect();
    assert!(open.iter().all(|fd| ["0", "1", "2", "3", "255"].contains(fd)), "{open:?}");
    assert_eq!(outcome(&events), "0");
    let events = daemon.run(json!({"command": "cut -d' ' -f1,5 /proc/$$/stat"})).await;
    let (pid, group) = stdout(&events)[0].split_once(' ').unwrap();
    assert_eq!(pid, group);
}

#[tokio::test]
async fn a_command_runs_as_the_user_it_names() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let id = "id -u; id -g; id -G";
    let events = daemon.run(json!({"command": id, "uid": 65534})).await;
    assert_eq!(stdout(&events), ["65534", "65534", "65534"]);
    let events = daemon.run(json!({"command": id, "uid": 54321, "gid": 54322})).await;
    assert_eq!(stdout(&events), ["54321", "54322", "54322"]);
    let events = daemon.run(json!({"command": id, "uid": 54321})).await;
    assert_eq!(stdout(&events), ["54321", "0", "0"]);
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let daemon = Daemon::start();
    let command = "sleep 1000 & echo $!; echo partial | tr -d '\\n'; wait";
    let events = daemon.run(json!({"command": command, "timeout": 200})).await;
    let [child, partial] = stdout(&events)[..] else { panic!("{events:?}") };
    assert_eq!(partial, "partial");
    assert_eq!(outcome(&events), "-1");
    assert_eq!(events.last().unwrap().error.as_ref().unwrap().traceback, ["signal: killed"]);
    wait_for("the child of the shell is killed as well", || !is_alive(child)).await;
}

#[tokio::test]
async fn a_command_ends_with_its_shell_and_leaves_the_background_alone() {
    let daemon = Daemon::start();
    let events = daemon.run(json!({"command": "sleep 1000 & echo $!", "timeout": 100_000})).await;
    let child = stdout(&events)[0].to_owned();
    assert_eq!(outcome(&events), "0");
    assert!(is_alive(&child));
    daemon.run(json!({"argv": ["sh", "-c", format!("kill -9 {child}")]})).await;
    wait_for("the child left in the background ends", || !is_alive(&child)).await;
}

#[tokio::test]
async fn a_background_process_that_never_stops_writing_does_not_hold_the_stream() {
    let events = Daemon::start().run(json!({"command": "yes & sleep 0.1; echo done >&2"})).await;
    assert_eq!(texts(&events, EventKind::Stderr), ["done"]);
    assert_eq!(outcome(&events), "0");
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let daemon = Daemon::start();
    let runs = (0..40).map(|n| daemon.run(json!({"command": format!("echo {n}; exit {n}")})));
    for (n, events) in futures_util::future::join_all(runs).await.into_iter().enumerate() {
        assert_eq!(stdout(&events), [n.to_string()]);
        assert_eq!(outcome(&events), n.to_string());
    }
}

#[tokio::test]
async fn a_long_command_is_pinged() {
    tokio::time::timeout(Duration::from_secs(20), async {
        let events = Daemon::start().run(json!({"command": "sleep 3.2"})).await;
        assert_eq!(texts(&events, EventKind::Ping), ["pong", "pong"]);
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_sent_as_input_is_read_and_then_ends() {
    let daemon = Daemon::start();
    let events = daemon.run(json!({"argv": ["cat"], "stdin": "one\ntwo"})).await;
    assert_eq!(stdout(&events), ["one", "two"]);
    let large = "x".repeat(1 << 20);
    let events = daemon.run(json!({"argv": ["wc", "-c"], "stdin": large})).await;
    assert_eq!(stdout(&events), ["1048576"]);
    let events = daemon.run(json!({"argv": ["cat"], "stdin": ""})).await;
    assert_eq!((stdout(&events).len(), outcome(&events)), (0, "0"));
    let unread = json!({"command": "head -c 3; (sleep 10 <&3 3<&- &) 3<&0", "stdin": large});
    assert_eq!(outcome(&daemon.run(unread).await), "0");
}

#[tokio::test]
async fn whoever_is_left_in_the_background_can_print() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let left = "for i in $(seq 20000); do echo line $i || exit; done; touch $DONE";
    let command = format!("({left}) & echo started");
    let envs = json!({"DONE": done.to_str().unwrap()});
    let events = daemon.run(json!({"command": command, "envs": envs})).await;
    assert_eq!(outcome(&events), "0");
    wait_for("all is printed without harm", || done.exists()).await;
}

#[tokio::test]
async fn lack_of_memory_ends_commands_before_execd() {
    let daemon = Daemon::start();
    let events = daemon.run(json!({"command": "sleep 0.2; cat /proc/self/oom_score_adj"})).await;
    let score: i32 = stdout(&events)[0].parse().unwrap();
    let own = osb_sys::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let own: i32 = own.trim().parse().unwrap();
    assert!(score > own || own == 1000, "{score} is not above {own}");
}

#[tokio::test]
async fn no_descriptor_reaches_a_command() {
    let daemon = Daemon::start();
    // Others at work, so that there is something to leak.
    daemon.background(json!({"command": "seq 10000; sleep 10"})).await;
    let listed = daemon.run(json!({"argv": ["ls", "/proc/self/fd"], "stdin": "text"})).await;
    assert_eq!(stdout(&listed), ["0", "1", "2", "3"]);
}
