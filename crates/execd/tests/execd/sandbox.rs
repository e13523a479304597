//! An execd that is started as the native runtime starts it.

use std::{
    collections::BTreeMap,
    os::{fd::AsRawFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use http::{Method, Response};
use hyper::body::Incoming;
use osb_api::headers;
use osb_core::{
    Account, Token,
    agent::{Ahead, Boot, CodeAhead, Counters, Readied, Sent},
};
use osb_sys::message;
use rustix::{
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use tempfile::TempDir;

use crate::daemon::{Connection, events, request, resident, wait_for};

/// A sandbox's execd, with descriptors as the native runtime passes them.
pub(crate) struct Sandbox {
    child: Child,
    directory: TempDir,
    end_with: Signal,
}

impl Sandbox {
    pub(crate) fn start(entrypoint: &[&str]) -> Self {
        // Not killed: outside of a process namespace the entrypoint would live on.
        Self::under("", Signal::TERM, entrypoint)
    }

    /// As [`Sandbox::start`], after `setup` has run in its directory.
    pub(crate) fn with_setup(setup: &str, entrypoint: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut shell = osb_sys::command::command("/bin/sh");
        let shell = shell.args(["-c", setup]).env("PATH", "/usr/bin:/bin");
        assert!(shell.current_dir(directory.path()).status().unwrap().success());
        Self::launch(directory, "", Signal::TERM, entrypoint, None, "")
    }

    /// With the files `cpu`, `memory` and `stat` of the directory as its counters.
    pub(crate) fn counted(counters: Counters, files: [&str; 3]) -> Self {
        let sandbox = tempfile::tempdir().unwrap();
        for (name, content) in ["cpu", "memory", "stat"].iter().zip(files) {
            osb_sys::fs::write(path(&sandbox, name), content).unwrap();
        }
        let (end_with, sleep) = (Signal::TERM, &["sleep", "1000"]);
        Self::launch(sandbox, "", end_with, sleep, Some(counters), "5<cpu 6<memory 7<stat")
    }

    /// Starts execd through `wrapper`, a program that runs another and dies of `end_with`.
    pub(crate) fn under(wrapper: &str, end_with: Signal, entrypoint: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::launch(directory, wrapper, end_with, entrypoint, None, "")
    }

    /// One whose programs run as this user, and whose entrypoint is to end with this signal.
    pub(crate) fn of_user(user: Account, stop_signal: i32, entrypoint: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        osb_sys::fs::set_mode(directory.path(), 0o777).unwrap();
        let boot = Boot {
            user: Some(user),
            stop_signal: Some(stop_signal),
            workdir: path(&directory, "work").to_str().unwrap().to_owned(),
            ..boot(&directory, entrypoint, None)
        };
        Self::boot(directory, "", Signal::TERM, &boot, "")
    }

    /// One that is told what to make ready, and then what it is for. Between the two, `meanwhile` happens.
    pub(crate) fn readied(
        code: CodeAhead,
        own: (&str, &str),
        meanwhile: impl FnOnce(&Self),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut boot = boot(&directory, &["sleep", "1000"], None);
        let ahead =
            Ahead { code, env: boot.env.clone(), workdir: boot.workdir.clone(), user: None };
        boot.env.insert(own.0.to_owned(), own.1.to_owned());
        let (here, there) = message::channel().unwrap();
        let there = fcntl_dupfd_cloexec(there, 10).unwrap();
        fcntl_setfd(&there, FdFlags::empty()).unwrap();
        let instructions = format!("3<&{0} {0}<&-", there.as_raw_fd());
        let sandbox = Self::spawn(directory, "", Signal::TERM, &instructions, "");
        drop(there);
        message::send(&here, &Sent::Ahead(Box::new(ahead)), &[]).unwrap();
        message::receive::<Readied>(&here).unwrap().expect("it is ready");
        meanwhile(&sandbox);
        message::send(&here, &Sent::Here(Box::new(boot)), &[]).unwrap();
        sandbox
    }

    fn launch(
        directory: TempDir,
        wrapper: &str,
        end_with: Signal,
        entrypoint: &[&str],
        counters: Option<Counters>,
        redirections: &str,
    ) -> Self {
        let boot = boot(&directory, entrypoint, counters);
        Self::boot(directory, wrapper, end_with, &boot, redirections)
    }

    fn boot(
        directory: TempDir,
        wrapper: &str,
        end_with: Signal,
        boot: &Boot,
        redirections: &str,
    ) -> Self {
        osb_sys::fs::write(path(&directory, "boot"), serde_json::to_vec(boot).unwrap()).unwrap();
        Self::spawn(directory, wrapper, end_with, "3<boot", redirections)
    }

    fn spawn(
        directory: TempDir,
        wrapper: &str,
        end_with: Signal,
        instructions: &str,
        redirections: &str,
    ) -> Self {
        let listener = UnixListener::bind(path(&directory, "socket")).unwrap();
        // Out of the way of 3 and 4, which the script opens one after the other.
        let listener = fcntl_dupfd_cloexec(listener, 10).unwrap();
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let script = format!(
            "exec {wrapper} \"$0\" --boot {instructions} 4<&{0} {0}<&- {redirections}",
            listener.as_raw_fd()
        );
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

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The memory that execd has in use, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.child.id())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        path(&self.directory, name)
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: &str) -> Response<Incoming> {
        let mut asked = request(method, path, body.to_owned());
        asked.headers_mut().insert(headers::EXECD_TOKEN, "secret".parse().unwrap());
        let mut connection = Connection::to_socket(&self.path("socket")).await;
        connection.send(asked).await
    }

    pub(crate) async fn run(&self, command: &str) -> Vec<osb_api::execd::Event> {
        let command = json!({"command": command}).to_string();
        events(self.ask(Method::POST, "/command", &command).await).await
    }

    /// Waits for execd to end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
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

/// The instructions of a sandbox that has nothing but its entrypoint.
fn boot(directory: &TempDir, entrypoint: &[&str], counters: Option<Counters>) -> Boot {
    Boot {
        token: Token::new("secret"),
        entrypoint: entrypoint.iter().copied().map(str::to_owned).collect(),
        env: BTreeMap::from([
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("NAME".to_owned(), "sandbox".to_owned()),
            ("EXECD_ENVS".to_owned(), path(directory, "env").to_str().unwrap().to_owned()),
        ]),
        workdir: directory.path().to_str().unwrap().to_owned(),
        user: None,
        stop_signal: None,
        trust: None,
        counters,
        output: false,
        isolator: false,
        by_descriptor: false,
    }
}

fn path(directory: &TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}
