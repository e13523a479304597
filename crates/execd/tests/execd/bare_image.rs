//! execd in an image that has nothing else: no shell, no C library, no users.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use http::Method;
use osb_api::execd::Event;
use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::daemon::{Connection, events, is_root, request, stdout};

/// The static execd that the build made. `cargo test` alone makes one that needs a C library.
const STATIC: Option<&str> = option_env!("OSB_EXECD");

struct Bare {
    child: Child,
    port: u16,
    _image: TempDir,
}

impl Bare {
    fn start(execd: &str) -> Self {
        let image = tempfile::tempdir().unwrap();
        std::fs::copy(execd, image.path().join("execd")).unwrap();
        // What every container runtime adds.
        osb_sys::fs::create_dir(image.path().join("dev"), 0o755).unwrap();
        memory_device(&image.path().join("dev/null"), 3);
        let mut child = osb_sys::command::command("/usr/sbin/chroot")
            .arg(image.path())
            .args(["/execd", "--port", "0", "--log-level", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port, _image: image }
    }

    async fn run(&self, command: Value) -> Vec<Event> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut connection = Connection::over(stream).await;
        let asked = request(Method::POST, "/command", command.to_string());
        events(connection.send(asked).await).await
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

fn memory_device(path: &Path, minor: u32) {
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, minor)).unwrap();
}

#[tokio::test]
async fn an_image_without_anything_runs_programs_and_says_that_it_has_no_shell() {
    let Some(execd) = STATIC else {
        println!("skipped: OSB_EXECD does not name a static execd");
        return;
    };
    if !is_root() {
        return;
    }
    let bare = Bare::start(execd);
    let version = format!("execd {}", env!("CARGO_PKG_VERSION"));
    for argv in [["/execd", "--version"], ["./execd", "-V"]] {
        let seen = bare.run(json!({"argv": argv})).await;
        assert_eq!(stdout(&seen), [version.as_str()], "{seen:?}");
    }
    let refused = bare.run(json!({"command": "echo hello"})).await;
    let error = refused.last().unwrap().error.as_ref().unwrap();
    assert!(error.evalue.contains("send `argv`"), "{}", error.evalue);
}
