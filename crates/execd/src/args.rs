use std::{
    convert::Infallible,
    ffi::OsString,
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    time::Duration,
};

use clap::Parser;
use osb_api::ports;
use osb_core::Token;
use osb_sys::{seccomp::Filter, step::Failure};

use crate::{
    boot::{Descriptors, Instructions, Listen, Start, StartError},
    command::{OnDisconnect, Settings},
    duration, env,
    environment::Environment,
    isolated, isolator,
    log::{Level, LogFile},
    metrics::Meter,
};

/// Runs commands and moves files inside a sandbox, on behalf of callers over HTTP.
///
/// With a program after `--`, execd starts it, passes on what it prints and what signals it is sent,
/// and ends with its exit code: `ENTRYPOINT ["/execd", "--"]` makes an image a sandbox. Without one,
/// execd serves until it is asked to end. It reaps whatever processes are left to it.
#[derive(Debug, Parser)]
#[command(name = "execd", version, after_help = AFTER)]
pub struct Args {
    /// Port to listen on, on every IPv4 address; 0 takes a free one. The address is printed.
    #[arg(long, default_value_t = ports::EXECD)]
    port: u16,

    /// Secret that callers must send in `X-EXECD-ACCESS-TOKEN`; without it everyone may call.
    ///
    /// Other processes can read arguments: prefer the variable.
    #[arg(long, env = env::ACCESS_TOKEN, hide_env_values = true, value_parser = token)]
    access_token: Option<Token>,

    /// How long commands may take to end once execd ends, before they are killed; for example 200ms,
    /// 1.5s or 1m30s.
    #[arg(long, env = env::GRACE, default_value = "1s", value_parser = duration::parse, value_name = "TIME")]
    graceful_shutdown_timeout: Duration,

    /// What to write about itself: 0 to 2 nothing, 3 errors, 4 warnings too, 5 and 6 what changes, 7
    /// and above every request.
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    log_level: u8,

    /// File to write that to, in place of the standard error. At 8 MiB it is renamed to FILE.old and
    /// begun anew.
    #[arg(long, env = env::LOG_FILE, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Accepted and not used: code needs no Jupyter server.
    #[arg(long, value_name = "URL")]
    jupyter_host: Option<String>,

    /// Accepted and not used, as above.
    #[arg(long, value_name = "TOKEN")]
    jupyter_token: Option<String>,

    /// Accepted and not used, as above.
    #[arg(long, value_name = "TIME")]
    jupyter_idle_poll_interval: Option<String>,

    /// What happens to a foreground command whose client has gone.
    #[arg(long, env = env::ON_DISCONNECT, value_enum, default_value_t)]
    on_disconnect: OnDisconnect,

    /// How many bytes of a background command's output are kept; the oldest go first.
    #[arg(long, env = env::COMMAND_LOG_LIMIT, default_value_t = Settings::default().log_limit)]
    command_log_limit: u64,

    /// How many bytes of output are kept of all background commands that have ended.
    #[arg(long, env = env::COMMAND_LOG_TOTAL, default_value_t = Settings::default().log_total)]
    command_log_total: u64,

    /// Run as the first process of a sandbox: instructions come as JSON on descriptor 3, or in a file
    /// that is sent there if it is a socket; the socket to listen on is descriptor 4, and execd ends
    /// with the entrypoint's exit code.
    #[arg(long, conflicts_with = "entrypoint")]
    boot: bool,

    /// Put isolated sessions together, as execd asks for on the channel that was passed.
    #[arg(long, hide = true)]
    isolator: bool,

    /// Who root of the sandbox is outside of its user namespace, which is descriptor 4 then.
    #[arg(long, hide = true, requires = "isolator")]
    owner: Option<u32>,

    /// The sandbox may write to files of the host.
    #[arg(long, hide = true, requires = "isolator")]
    host_files: bool,
    /// The program to run and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    entrypoint: Vec<String>,
}

const AFTER: &str = "\
Flags may also be written with one dash, as in `-port 44772`. A flag wins over its variable.

Variables that have no flag:
  EXECD_ENVS       File of assignments that are added to the environment of every command, read anew
                   for each; commands see the variable, so that they can add to the file
  EXECD_CODE_KIND  What runs code: `builtin`, or `jupyter` for a kernel of the image; unless set, a
                   kernel of Python, TypeScript, Java or Go if there is one
  PATH             Where programs are looked for, by execd and by commands
  HOME             What `~` stands for in paths";

impl Args {
    /// The arguments of this process, or the end of it with an explanation.
    pub fn from_process() -> Self {
        Self::parse_from(with_two_dashes(std::env::args_os()))
    }

    /// The work of an isolator, if this process is to be one.
    pub fn isolator(&self) -> Option<impl FnOnce() -> Result<(), Failure> + use<>> {
        let owner = self.owner;
        let filter = if self.host_files {
            Filter::for_sandboxes_on_host_files
        } else {
            Filter::for_sandboxes
        };
        self.isolator.then_some(move || isolator::serve(owner, filter))
    }

    /// What to start, with the descriptors and the environment that this process was given.
    pub fn instructions(self) -> Result<Instructions, StartError> {
        if self.boot {
            return Descriptors::take().map(Instructions::Descriptors);
        }
        let log_file = self.log_file.filter(|path| !path.as_os_str().is_empty());
        Ok(Instructions::Here(Box::new(Start {
            listen: Listen::Tcp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port)),
            token: self.access_token.filter(|token| !token.reveal().is_empty()),
            environment: Environment::new(
                env::inherited(),
                std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            ),
            output: None,
            entrypoint: Some(self.entrypoint).filter(|argv| !argv.is_empty()),
            stop_signal: None,
            commands: Settings {
                on_disconnect: self.on_disconnect,
                log_limit: self.command_log_limit,
                log_total: self.command_log_total,
            },
            isolation: isolated::Source::Own,
            meter: Meter::found(),
            grace: self.graceful_shutdown_timeout,
            log_level: Level::from_number(self.log_level),
            log_file: log_file.map(LogFile::open).transpose().map_err(StartError::LogFile)?,
        })))
    }
}

/// Long flags with one dash, as published deployments may write them, in the form that we know.
fn with_two_dashes(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut ours = true;
    arguments.map(move |argument| {
        let bytes = argument.as_encoded_bytes();
        ours &= bytes != b"--";
        let long = matches!(bytes, [b'-', first, _, ..] if first.is_ascii_alphabetic());
        if !ours || !long {
            return argument;
        }
        let mut dashed = OsString::from("-");
        dashed.push(argument);
        dashed
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the signature that clap asks for")]
fn token(secret: &str) -> Result<Token, Infallible> {
    Ok(Token::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(with_two_dashes(line.split(' ').map(OsString::from)))
    }

    #[test]
    fn flags_may_have_one_dash_or_two() {
        for line in ["execd -port 7", "execd --port 7", "execd -port=7", "execd --port=7"] {
            assert_eq!(parse(line).unwrap().port, 7, "{line}");
        }
        let args = parse("execd -jupyter-host http://x -log-level 7 -- sh -port 1 -c").unwrap();
        assert_eq!(args.log_level, 7);
        assert_eq!(args.entrypoint, ["sh", "-port", "1", "-c"]);
        assert_eq!(parse("execd -V").unwrap_err().kind(), clap::error::ErrorKind::DisplayVersion);
        assert_eq!(parse("execd -h").unwrap_err().kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn what_makes_no_sense_is_explained() {
        let explained = |line: &str| parse(line).unwrap_err().to_string();
        let grace = explained("execd --graceful-shutdown-timeout soon");
        assert!(grace.contains("soon") && grace.contains("200ms"), "{grace}");
        assert!(explained("execd --boot -- sh").contains("cannot be used with"));
        assert!(explained("execd --colour").contains("--colour"));
        assert!(explained("execd sh").contains("sh"));
    }
}
