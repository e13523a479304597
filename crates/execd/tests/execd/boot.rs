//! execd as the first process of a sandbox.

use std::{
    collections::BTreeMap,
    os::{
        fd::AsRawFd,
        unix::{net::UnixListener, process::ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use http::Method;
use osb_api::headers;
use osb_core::{Token, agent::Boot};
use rustix::{
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use tempfile::TempDir;

use crate::daemon::{Connection, events, is_root, outcome, request, stdout, wait_for};

/// A sandbox's execd, with descriptors as the native runtime passes them.
struct Sandbox {
    child: Child,
    directory: TempDir,
    end_with: Signal,
}

impl Sandbox {
    fn start(entrypoint: &[&str]) -> Self {
        // Not killed: outside of a process namespace the entrypoint would live on.
        Self::under("", Signal::TERM, entrypoint)
    }

    /// Starts execd through `wrapper`, a program that runs another and dies of `end_with`.
    fn under(wrapper: &str, end_with: Signal, entrypoint: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let boot = Boot {
            token: Token::new("secret"),
            entrypoint: entrypoint.iter().copied().map(str::to_owned).collect(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                ("NAME".to_owned(), "sandbox".to_owned()),
                ("EXECD_ENVS".to_owned(), path(&directory, "env").to_str().unwrap().to_owned()),
            ]),
            workdir: directory.path().to_str().unwrap().to_owned(),
        };
        osb_sys::fs::write(path(&directory, "boot"), serde_json::to_vec(&boot).unwrap()).unwrap();
        let listener = UnixListener::bind(path(&directory, "socket")).unwrap();
        // Out of the way of 3 and 4, which the script opens one after the other.
        let listener = fcntl_dupfd_cloexec(listener, 10).unwrap();
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let script =
            format!("exec {wrapper} \"$0\" --boot 3<boot 4<&{0} {0}<&-", listener.as_raw_fd());
        let mut bash: Command = osb_sys::command::command("/bin/bash");
        let child = bash
            .args(["-c", &script, env!("CARGO_BIN_EXE_execd")])
            .env("PATH", "/usr/bin:/bin")
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory, end_with }
    }

    fn path(&self, name: &str) -> PathBuf {
        path(&self.directory, name)
    }

    async fn run(&self, command: &str) -> Vec<osb_api::execd::Event> {
        let command = json!({"command": command}).to_string();
        let mut asked = request(Method::POST, "/command", command);
        asked.headers_mut().insert(headers::EXECD_TOKEN, "secret".parse().unwrap());
        let mut connection = Connection::to_socket(&self.path("socket")).await;
        events(connection.send(asked).await).await
    }

    /// Waits for execd to end.
    async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("execd ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            kill_process(Pid::from_child(&self.child), self.end_with).unwrap();
            self.child.wait().unwrap();
        }
    }
}

fn path(directory: &TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}

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
    let expected = format!("sandbox {}", sandbox.directory.path().display());
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
    kill_process(Pid::from_child(&sandbox.child), Signal::TERM).unwrap();
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
    let mut connection = Connection::to_socket(&sandbox.path("socket")).await;
    let mut left = 1;
    while left > 0 {
        let command = json!({"command": "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"});
        let mut asked = request(Method::POST, "/command", command.to_string());
        asked.headers_mut().insert(headers::EXECD_TOKEN, "secret".parse().unwrap());
        let events = events(connection.send(asked).await).await;
        left = stdout(&events)[0].parse::<u32>().unwrap();
    }
    assert_eq!(stdout(&sandbox.run("cat /proc/1/comm").await), ["execd"]);
}

#[tokio::test]
async fn the_memory_of_execd_is_closed_to_its_own_user() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::start(&["sleep", "1000"]);
    let look = format!("setpriv --reuid 65534 cat /proc/{}/environ", sandbox.child.id());
    assert_ne!(outcome(&sandbox.run(&look).await), "0");
    let owner = format!("stat -c %u /proc/{}/environ", sandbox.child.id());
    assert_eq!(stdout(&sandbox.run(&owner).await), ["0"]);
}
