//! What `osb run` and `osb sandbox exec` exit with.

use opensandbox::Outcome;

/// `osb` itself failed, and the command may not have run.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The time limit ended the command.
pub(crate) const TIMED_OUT: u8 = 124;
/// The command exists but could not be started.
const CANNOT_START: u8 = 126;
/// There is no such command.
const NOT_THERE: u8 = 127;
/// A signal ended the command, and nobody said which.
const KILLED: u8 = 255;

pub(crate) const HELP: &str = "\
Exit status:
  that of the command; 128 + n if signal n ended it (255 if the signal is not known),
  124 if the time limit did, 125 if osb itself failed, 126 if the command could not be
  started, 127 if it does not exist.";

/// The exit code that stands for the outcome, as shells count.
pub(crate) fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        // The kernel keeps eight bits of an exit code, too.
        Outcome::Exited(code) => u8::try_from(code & 0xff).unwrap_or(KILLED),
        Outcome::Killed(description) => signal_number(description).map_or(KILLED, |n| 128 + n),
        Outcome::NotStarted(reason) => {
            let reason = reason.to_ascii_lowercase();
            let absent = ["no such file", "not found"].iter().any(|text| reason.contains(text));
            if absent { NOT_THERE } else { CANNOT_START }
        }
    }
}

/// The number of a signal that is described in words, such as `signal: killed`.
fn signal_number(description: &str) -> Option<u8> {
    let line = description.lines().find(|line| line.trim().starts_with("signal"))?;
    // Signals without a name are described as `signal: signal 40`.
    let name =
        line.trim().trim_start_matches("signal:").trim().trim_start_matches("signal ").trim();
    if let Ok(number) = name.parse::<u8>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = name.split(" (").next().unwrap_or(name).to_ascii_lowercase();
    let known = NAMES.iter().find(|(_, names)| names.contains(&name.as_str()));
    known.map(|(number, _)| *number)
}

/// Signals that end programs, by the words that runtimes use for them.
const NAMES: [(u8, &[&str]); 16] = [
    (1, &["hangup", "sighup"]),
    (2, &["interrupt", "sigint"]),
    (3, &["quit", "sigquit"]),
    (4, &["illegal instruction", "sigill"]),
    (5, &["trace/breakpoint trap", "sigtrap"]),
    (6, &["aborted", "sigabrt"]),
    (7, &["bus error", "sigbus"]),
    (8, &["floating point exception", "sigfpe"]),
    (9, &["killed", "sigkill"]),
    (10, &["user defined signal 1", "sigusr1"]),
    (11, &["segmentation fault", "sigsegv"]),
    (12, &["user defined signal 2", "sigusr2"]),
    (13, &["broken pipe", "sigpipe"]),
    (14, &["alarm clock", "sigalrm"]),
    (15, &["terminated", "sigterm"]),
    (31, &["bad system call", "sigsys"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_pass_through() {
        for (code, expected) in [(0, 0), (7, 7), (255, 255), (256, 0)] {
            assert_eq!(exit_code(&Outcome::Exited(code)), expected);
        }
    }

    #[test]
    fn signals_count_from_128() {
        for (text, expected) in [
            ("signal: killed", 137),
            ("signal: terminated", 143),
            ("signal: segmentation fault (core dumped)", 139),
            ("signal: 31", 159),
            ("signal 9", 137),
            ("signal: signal 40", 168),
            ("signal: SIGKILL", 137),
            ("time ran out\nsignal: killed", 137),
            ("", 255),
            ("signal: something new", 255),
        ] {
            assert_eq!(exit_code(&Outcome::Killed(text.to_owned())), expected, "{text:?}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_told_from_one_that_cannot_start() {
        let code = |reason: &str| exit_code(&Outcome::NotStarted(reason.to_owned()));
        assert_eq!(code("No such file or directory (os error 2)"), 127);
        assert_eq!(code("executable not found in PATH"), 127);
        assert_eq!(code("Permission denied"), 126);
    }
}
