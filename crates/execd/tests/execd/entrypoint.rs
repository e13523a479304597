//! The program that a sandbox is for.

use http::{Method, StatusCode};
use osb_api::{codes, execd::EntrypointStatus, headers};
use osb_core::Account;
use rustix::process::Signal;

use crate::{
    daemon::{Daemon, bytes, error, is_alive, is_root, outcome, wait_for},
    sandbox::Sandbox,
};

/// What the entrypoint printed from a cursor on, and the next cursor.
async fn logs(sandbox: &Sandbox, cursor: u64) -> (Vec<u8>, u64) {
    let path = format!("/entrypoint/logs?cursor={cursor}");
    let answer = sandbox.ask(Method::GET, &path, "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let next = answer.headers()[headers::COMMAND_CURSOR].to_str().unwrap().parse().unwrap();
    (bytes(answer).await.to_vec(), next)
}

async fn status(sandbox: &Sandbox) -> EntrypointStatus {
    let answer = sandbox.ask(Method::GET, "/entrypoint", "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_slice(&bytes(answer).await).unwrap()
}

#[tokio::test]
async fn what_the_entrypoint_prints_is_kept_and_read_by_cursor() {
    let script = "echo out; echo err >&2; read line < more; echo $line; exec sleep 1000";
    let sandbox = Sandbox::with_setup("mkfifo more", &["sh", "-c", script]);
    let (mut seen, mut cursor) = (Vec::new(), 0);
    while seen.len() < b"out\nerr\n".len() {
        let (more, next) = logs(&sandbox, cursor).await;
        seen.extend(more);
        cursor = next;
    }
    let mut lines: Vec<_> = std::str::from_utf8(&seen).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!((lines.as_slice(), cursor), (["err", "out"].as_slice(), 8));
    assert_eq!(logs(&sandbox, cursor).await, (Vec::new(), 8));
    assert_eq!(outcome(&sandbox.run("echo last > more").await), "0");
    while seen.len() < 13 {
        let (more, next) = logs(&sandbox, cursor).await;
        seen.extend(more);
        cursor = next;
    }
    assert_eq!(&seen[8..], b"last\n");
    let wrong = sandbox.ask(Method::GET, "/entrypoint/logs?cursor=-1", "").await;
    assert_eq!(error(wrong).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_was_printed_is_found_by_its_age() {
    let sandbox = Sandbox::start(&["sh", "-c", "echo early; exec sleep 1000"]);
    while logs(&sandbox, 0).await.1 == 0 {}
    for (since, shown) in [("0", "early\n"), ("99999999999999", "")] {
        let path = format!("/entrypoint/logs?since={since}");
        let answer = sandbox.ask(Method::GET, &path, "").await;
        assert_eq!(answer.headers()[headers::OUTPUT_SINCE], since);
        assert_eq!(answer.headers()[headers::COMMAND_CURSOR], "6");
        assert_eq!(bytes(answer).await, shown);
    }
    let wrong = sandbox.ask(Method::GET, "/entrypoint/logs?since=now", "").await;
    assert_eq!(error(wrong).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_entrypoint_that_prints_without_end_grows_nothing() {
    let script = "head -c 300000000 /dev/zero; echo end; touch done; exec sleep 1000";
    let sandbox = Sandbox::start(&["sh", "-c", script]);
    logs(&sandbox, 0).await;
    let before = sandbox.resident();
    wait_for("all is printed", || sandbox.path("done").exists()).await;
    let (mut kept, mut next) = logs(&sandbox, 0).await;
    while next < 300_000_004 {
        let (more, later) = logs(&sandbox, next).await;
        kept.extend(more);
        next = later;
    }
    assert!(kept.ends_with(b"\0end\n") && kept.len() < 3 << 20, "{}", kept.len());
    let after = sandbox.resident();
    assert!(after < before + 4096, "{before} KiB became {after} KiB");
}

#[tokio::test]
async fn the_state_of_the_entrypoint_is_told() {
    let argv = ["sh", "-c", "exec sleep 1000"];
    let sandbox = Sandbox::start(&argv);
    let running = status(&sandbox).await;
    assert!(running.running && running.exit_code.is_none() && running.finished_at.is_none());
    assert_eq!(running.argv, argv);
    let daemon = Daemon::start();
    for path in ["/entrypoint", "/entrypoint/logs"] {
        let (status, body) = error(daemon.get(path).await).await;
        assert_eq!((status, body.code.as_str()), (StatusCode::NOT_FOUND, codes::NOT_FOUND));
    }
}

#[tokio::test]
async fn signals_reach_the_entrypoint_and_what_it_started() {
    let script = r#"
        for name in TERM HUP USR1 USR2 WINCH; do trap "touch $0.$name" $name; done
        echo $$ > $0.pid
        touch $0.ready
        while [ ! -e end ]; do sleep 0.01; done"#;
    let main =
        format!("script='{script}'; sh -c \"$script\" child & exec sh -c \"$script\" parent");
    let mut sandbox = Sandbox::start(&["sh", "-c", &main]);
    for name in ["child", "parent"] {
        let ready = sandbox.path(&format!("{name}.ready"));
        wait_for("both listen for signals", || ready.exists()).await;
    }
    let signals = [
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ];
    for (signal, name) in signals {
        sandbox.signal(signal);
        for process in ["child", "parent"] {
            let heard = sandbox.path(&format!("{process}.{name}"));
            wait_for(name, || heard.exists()).await;
        }
    }
    // Asked to end, the entrypoint decides when.
    assert_eq!(outcome(&sandbox.run("true").await), "0");
    osb_sys::fs::write(sandbox.path("end"), "").unwrap();
    assert_eq!(sandbox.end().await.code(), Some(0));
    let child = osb_sys::fs::read_to_string(sandbox.path("child.pid")).unwrap();
    wait_for("the child has seen the end, too", || !is_alive(child.trim())).await;
}

#[tokio::test]
async fn commands_are_asked_to_end_when_the_entrypoint_has_ended() {
    let script = "while [ ! -e end ]; do sleep 0.01; done; exit 9";
    let mut sandbox = Sandbox::start(&["sh", "-c", script]);
    let stubborn = "trap '' TERM; while [ ! -e listens ]; do sleep 0.01; done; touch end
        while :; do sleep 0.01; done";
    let polite = "trap 'echo asked; exit 4' TERM; touch listens; while :; do sleep 0.01; done";
    let (stubborn, polite) = (sandbox.run(stubborn), sandbox.run(polite));
    let (stubborn, polite) = tokio::join!(stubborn, polite);
    assert_eq!((outcome(&stubborn), outcome(&polite)), ("-1", "4"));
    assert_eq!(crate::daemon::stdout(&polite), ["asked"]);
    assert_eq!(sandbox.end().await.code(), Some(9));
}

#[tokio::test]
async fn the_order_to_end_is_its_own_signal_for_the_entrypoint_and_nobody_waits_for_the_rest() {
    if !is_root() {
        return;
    }
    let user = Account { uid: 4321, gid: 1234, groups: vec![7], name: None, home: None };
    let script = "trap 'echo wrong >> ../said' TERM; trap 'echo right >> ../said; exit 3' USR2; \
                  id -u > ../began; id -G >> ../began; while :; do sleep 0.01; done";
    let mut sandbox = Sandbox::of_user(user, 12, &["sh", "-c", script]);
    wait_for("it has begun", || {
        osb_sys::fs::read_to_string(sandbox.path("began")).is_ok_and(|text| text.ends_with("7\n"))
    })
    .await;
    let began = osb_sys::fs::read_to_string(sandbox.path("began")).unwrap();
    assert_eq!(began, "4321\n1234 7\n");
    // One that does not want to end.
    let stubborn = r#"{"command": "trap '' TERM; echo $$ > ../pid; while :; do sleep 0.01; done", "background": true}"#;
    sandbox.ask(Method::POST, "/command", stubborn).await;
    let pid = || osb_sys::fs::read_to_string(sandbox.path("pid")).unwrap_or_default();
    wait_for("the command runs", || pid().ends_with('\n')).await;
    let pid = pid().trim().to_owned();
    sandbox.signal(Signal::TERM);
    assert_eq!(sandbox.end().await.code(), Some(3));
    assert_eq!(osb_sys::fs::read_to_string(sandbox.path("said")).unwrap(), "right\n");
    wait_for("the command has ended too", || !is_alive(&pid)).await;
}
