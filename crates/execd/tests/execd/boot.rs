//! execd as the first process of a sandbox.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::{
    daemon::{is_root, outcome, stdout, wait_for},
    sandbox::Sandbox,
};

#[tokio::test]
async fn execd_ends_with_the_code_of_the_entrypoint() {
    assert_eq!(Sandbox::start(&["sh", "-c", "exit 7"]).end().await.code(), Some(7));
    assert_eq!(Sandbox::start(&["true"]).end().await.code(), Some(0));
    let killed = Sandbox::start(&["sh", "-c", "kill -KILL $$"]).end().await;
    assert_eq!((killed.code(), killed.signal()), (Some(137), None));
    assert_eq!(Sandbox::start(&["no-such-program-here"]).end().await.code(), Some(127));
    assert_eq!(Sandbox::start(&["/etc/passwd"]).end().await.code(), Some(126));
}

#[tokio::test]
async fn commands_run_beside_the_entrypoint_with_its_surroundings() {
    let sandbox = Sandbox::start(&["sh", "-c", "echo $NAME $PWD > seen; exec sleep 1000"]);
    let events = sandbox.run("echo $NAME $PWD").await;
    let expected = format!("sandbox {}", sandbox.directory().display());
    assert_eq!(stdout(&events), [expected.as_str()]);
    let seen = || osb_sys::fs::read_to_string(sandbox.path("seen")).unwrap_or_default();
    wait_for("the entrypoint has run", || seen() == format!("{expected}\n")).await;
}

#[tokio::test]
async fn nobody_inherits_the_descriptors_of_the_boot() {
    let sandbox =
        Sandbox::start(&["sh", "-c", "ls -l /proc/$$/fd > fds; mv fds seen; exec sleep 1000"]);
    wait_for("the entrypoint has run", || sandbox.path("seen").exists()).await;
    let fds = osb_sys::fs::read_to_string(sandbox.path("seen")).unwrap();
    assert!(!fds.contains("boot") && !fds.contains("socket"), "{fds}");
    let events = sandbox.run("ls -l /proc/$$/fd; env").await;
    let seen = stdout(&events).join("\n");
    assert!(!seen.contains("socket") && !seen.contains("secret"), "{seen}");
}

#[tokio::test]
async fn a_request_to_end_reaches_the_entrypoint() {
    let script = "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done";
    let mut sandbox = Sandbox::start(&["sh", "-c", script]);
    wait_for("the entrypoint listens for signals", || sandbox.path("ready").exists()).await;
    sandbox.signal(Signal::TERM);
    assert_eq!(sandbox.end().await.code(), Some(5));
}

#[tokio::test]
async fn the_first_process_reaps_what_others_leave_behind() {
    if !is_root() {
        return;
    }
    let unshare = "unshare --fork --pid --mount --mount-proc --kill-child";
    let sandbox = Sandbox::under(unshare, Signal::KILL, &["sleep", "1000"]);
    let orphan = sandbox.run("(setsid sh -c 'echo $$; exec >&- 2>&-; exit 3' &)").await;
    assert_eq!(outcome(&orphan), "0");
    let mut left = 1;
    while left > 0 {
        let count = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l";
        left = stdout(&sandbox.run(count).await)[0].parse::<u32>().unwrap();
    }
    assert_eq!(stdout(&sandbox.run("cat /proc/1/comm").await), ["execd"]);
}

#[tokio::test]
async fn the_memory_of_execd_is_closed_to_its_own_user() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::start(&["sleep", "1000"]);
    let look = format!("setpriv --reuid 65534 cat /proc/{}/environ", sandbox.pid());
    assert_ne!(outcome(&sandbox.run(&look).await), "0");
    let owner = format!("stat -c %u /proc/{}/environ", sandbox.pid());
    assert_eq!(stdout(&sandbox.run(&owner).await), ["0"]);
}
