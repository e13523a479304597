//! Programs that keep logins for Docker: `docker-credential-NAME get`.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;

use super::{Credential, credential};
use crate::said::Said;

/// How long one may take. Some ask over the network.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest answer. Tokens have some thousand letters.
const LONGEST: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Helper {
    program: PathBuf,
    variables: Vec<(String, String)>,
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    #[error("there is no docker-credential-{0} in the directories for helpers")]
    Absent(String),
    #[error("it cannot be run")]
    Unrun(#[source] io::Error),
    #[error("it does not answer in time")]
    Late,
    #[error("it fails{0}")]
    Failed(Said),
    #[error("its answer is not one")]
    Malformed,
}

impl Helper {
    pub(super) fn find(
        name: &str,
        directories: &[PathBuf],
        variables: &[(String, String)],
    ) -> Result<Self, HelperError> {
        let absent = || HelperError::Absent(name.chars().take(64).collect());
        let is_word = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
        if name.len() > 64 || !name.bytes().all(is_word) {
            return Err(absent());
        }
        let file = format!("docker-credential-{name}");
        let mut programs = directories.iter().map(|directory| directory.join(&file));
        let program = programs.find(|path| path.is_absolute() && path.is_file());
        let program = program.ok_or_else(absent)?;
        Ok(Self { program, variables: variables.to_vec(), patience: PATIENCE })
    }

    /// What it has for `server`; `None` if it says that this is nothing.
    pub(super) fn get(&self, server: &str) -> Result<Option<Credential>, HelperError> {
        let (is_success, output) = self.run(server)?;
        if !is_success {
            let said = Said::read(&output);
            return match said.as_str().to_ascii_lowercase() {
                // The words of all of them, which have no other way to say it.
                text if text.contains("credentials not found") => Ok(None),
                _ => Err(HelperError::Failed(said)),
            };
        }
        let answer: Answer<'_> =
            serde_json::from_slice(&output).map_err(|_| HelperError::Malformed)?;
        if answer.secret.is_empty() {
            return Ok(None);
        }
        Ok(Some(credential(answer.username, answer.secret)))
    }

    fn run(&self, server: &str) -> Result<(bool, Zeroizing<Vec<u8>>), HelperError> {
        let deadline = Instant::now() + self.patience;
        let mut command = osb_sys::command::command(&self.program);
        command.arg("get").envs(self.variables.iter().map(|(name, value)| (name, value)));
        // In a group of its own, so that what it has started can be ended with it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::null()).spawn().map_err(HelperError::Unrun)?;
        let mut running = Running { child, has_ended: false };
        let pipes = (running.child.stdin.take(), running.child.stdout.take());
        let (Some(mut input), Some(output)) = pipes else { return Err(HelperError::Malformed) };
        let (send, received) = mpsc::sync_channel(1);
        let server = server.to_owned();
        // Ends when the helper and all that it has started have ended, which is when we return.
        std::thread::spawn(move || {
            // One that does not read what it is asked has an answer all the same.
            input.write_all(server.as_bytes()).ok();
            drop(input);
            let mut content = Zeroizing::new(Vec::with_capacity(4096));
            let read = output.take(LONGEST + 1).read_to_end(&mut content);
            send.send(read.map(|_| content)).ok();
        });
        let left = deadline.saturating_duration_since(Instant::now());
        let content = match received.recv_timeout(left) {
            Ok(content) => content.map_err(HelperError::Unrun)?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(HelperError::Late);
            }
        };
        if content.len() as u64 > LONGEST {
            return Err(HelperError::Malformed);
        }
        Ok((running.wait(deadline)?, content))
    }
}

struct Running {
    child: Child,
    /// Until it was waited for, nobody else has its number, nor that of its group.
    has_ended: bool,
}

impl Running {
    /// Whether it ended well.
    fn wait(&mut self, deadline: Instant) -> Result<bool, HelperError> {
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().map_err(HelperError::Unrun)? {
                self.has_ended = true;
                return Ok(status.success());
            }
            // It has closed its output, so it is about to end.
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(HelperError::Late)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let (false, Some(group)) = (self.has_ended, Pid::from_raw(self.child.id().cast_signed()))
        {
            kill_process_group(group, Signal::KILL).ok();
            self.child.wait().ok();
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer<'a> {
    #[serde(default, borrow)]
    username: &'a str,
    #[serde(default, borrow)]
    secret: &'a str,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use osb_sys::fs;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn helper(directory: &Path, script: &str) -> Helper {
        let path = directory.join("docker-credential-mine");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_mode(&path, 0o755).unwrap();
        let variables = [("PATH", "/usr/bin:/bin"), ("WHO", "me")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Helper::find("mine", &[directory.to_owned()], &variables).unwrap()
    }

    #[test]
    fn a_helper_is_asked_by_the_name_of_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let script = r#"[ "$1" = get ] && read -r server
            echo "{\"ServerURL\":\"$server\",\"Username\":\"$WHO\",\"Secret\":\"for $server\"}""#;
        let Some(Credential::Basic(login)) =
            helper(directory.path(), script).get("r.test:5000").unwrap()
        else {
            panic!("no login")
        };
        assert_eq!(login.username, "me");
        assert_eq!(login.password.expose_secret(), "for r.test:5000");
        let token = r#"echo '{"Username":"<token>","Secret":"t"}'"#;
        let found = helper(directory.path(), token).get("r.test").unwrap();
        assert!(matches!(found, Some(Credential::Identity(_))));
    }

    #[test]
    fn a_helper_that_has_nothing_is_told_from_one_that_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        let get = |script| helper(directory.path(), script).get("r.test");
        let nothing = "echo credentials not found in native keychain; exit 1";
        assert!(matches!(get(nothing), Ok(None)));
        assert!(matches!(get("echo '{\"Username\":\"\",\"Secret\":\"\"}'"), Ok(None)));
        let broken = get("printf 'no \\033[31mkeychain'; exit 1").unwrap_err().to_string();
        assert_eq!(broken, "it fails, and says: no [31mkeychain");
        assert!(matches!(get("echo {"), Err(HelperError::Malformed)));
        assert!(matches!(
            get("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"),
            Err(HelperError::Malformed)
        ));
    }

    #[test]
    fn a_helper_that_does_not_end_is_ended_with_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        for script in
            ["sleep 1000 & echo $! > pid; wait", "exec >&-; sleep 1000 & echo $! > pid; wait"]
        {
            let script = script.replace("pid;", &format!("{}/pid;", directory.path().display()));
            let mut helper = helper(directory.path(), &script);
            helper.patience = Duration::from_millis(500);
            assert!(matches!(helper.get("r.test"), Err(HelperError::Late)));
            let pid = fs::read_to_string(directory.path().join("pid")).unwrap();
            let status = format!("/proc/{}/stat", pid.trim());
            let has_ended =
                || fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z"));
            while !has_ended() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn only_programs_in_the_directories_are_run() {
        let directory = tempfile::tempdir().unwrap();
        let directories = [directory.path().to_owned()];
        for name in ["absent", "../x", "a/b", "", &"x".repeat(99), "a b"] {
            let error = Helper::find(name, &directories, &[]).unwrap_err();
            assert!(matches!(error, HelperError::Absent(_)), "{name}");
        }
    }
}
