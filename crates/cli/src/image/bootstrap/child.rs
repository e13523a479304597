use std::{
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{sync::mpsc, task};

/// How long a program that is asked to end may take to clean up.
const CLEANING: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(20);
/// How much of a line is read.
const LONGEST: u64 = 16 << 10;
/// How many lines wait to be shown.
const LINES: usize = 64;

/// A program that runs. If nobody waits for it any more, it is asked to end, and waited for until it
/// has cleaned up.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Starts it. What it says comes line by line; what it writes is in the other end.
    pub(super) fn start(
        mut command: Command,
    ) -> io::Result<(Self, mpsc::Receiver<String>, ChildStdout)> {
        // A group of its own: what it started is asked to end, too.
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut running = Self { child };
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let stdout = running.child.stdout.take().ok_or_else(gone)?;
        let stderr = running.child.stderr.take().ok_or_else(gone)?;
        let (sender, lines) = mpsc::channel(LINES);
        task::spawn_blocking(move || tell(stderr, &sender));
        Ok((running, lines, stdout))
    }

    /// How it ended. Both of its outputs have.
    pub(super) fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let signal = |signal| {
            // It may have ended meanwhile.
            group.and_then(|group| kill_process_group(group, signal).ok());
        };
        signal(Signal::TERM);
        for _ in 0..CLEANING.as_millis() / TICK.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        signal(Signal::KILL);
        drop(self.child.wait());
    }
}

/// Hands on lines for as long as there are any, also when nobody listens: whoever writes must not be
/// ended by that.
fn tell(from: impl Read, to: &mpsc::Sender<String>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => drop(to.blocking_send(String::from_utf8_lossy(&line).into_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = osb_sys::command::command("/bin/sh");
        command.args(["-c", text]);
        command
    }

    #[tokio::test]
    async fn what_a_program_says_and_writes_is_kept_apart() {
        let (running, mut lines, stdout) =
            Running::start(shell("echo out; echo one >&2; echo two >&2; exit 3")).unwrap();
        let mut said = Vec::new();
        while let Some(line) = lines.recv().await {
            said.push(line);
        }
        assert_eq!(said, ["one\n", "two\n"]);
        assert_eq!(io::read_to_string(stdout).unwrap(), "out\n");
        assert_eq!(running.wait().unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn who_is_not_waited_for_cleans_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cleaned");
        let text = format!(
            "trap '' TERM; (trap 'touch {}; exit' TERM; echo ready >&2; while :; do sleep 0.01; done) & wait",
            file.display()
        );
        let mut command = shell(&text);
        command.env("PATH", "/usr/bin:/bin");
        let (running, mut lines, _stdout) = Running::start(command).unwrap();
        assert_eq!(lines.recv().await.as_deref(), Some("ready\n"));
        task::spawn_blocking(move || drop(running)).await.unwrap();
        assert!(file.exists());
    }
}
