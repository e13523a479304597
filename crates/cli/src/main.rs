//! `osb`: the server and its command line in one program.
//!
//! Standard output is data, standard error is talk. Every command has a file of its own; this one
//! only reads the command line and hands over.

mod age;
mod audit;
mod data_dir;
mod deletion;
mod doctor;
mod egress;
mod ending;
mod env;
mod environment;
mod explain;
mod failure;
mod file;
mod image;
mod images_config;
mod input;
mod invocation;
mod lifetime;
mod logging;
mod mounts;
mod network;
mod output;
mod pair;
mod pipe;
mod pools;
mod progress;
mod run;
mod runtime;
mod sandbox;
mod server;
mod settings;
mod signals;
mod size;
mod snapshot;
mod spec;
mod start;
mod storage;
mod table;
mod target;
mod vault;
mod version;
mod view;
mod volume;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::fd::AsFd as _,
    process::ExitCode,
};

use clap::{
    Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    env::Environment,
    failure::{Failure, Role},
    output::Output,
};

/// Sandboxes for programs that nobody has read: agents, generated code, other people's scripts.
///
/// Start a server with `osb server`, then run something in a sandbox of its own with
/// `osb run -- echo hello`. On the same machine no further setting is needed.
#[derive(Debug, Parser)]
#[command(name = "osb", version, after_help = ENVIRONMENT, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const ENVIRONMENT: &str = "\
Environment:
  OPEN_SANDBOX_DOMAIN   the server to talk to, host[:port]; default 127.0.0.1:8080
  OPEN_SANDBOX_API_KEY  the key that clients send and that the server asks for
  SANDBOX_CONFIG_PATH   the configuration file of the server
  OSB_DATA_DIR          where the server keeps its state, and its key for local clients
  OSB_VAULT_KEY         the key that seals vaults which outlive the server, 32 bytes in base64
  OSB_LOG               how much the server logs: error, warn, info, debug or trace";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server on this machine
    ///
    /// It listens on loopback, makes an API key at its first start and says where it is. A
    /// restarted server takes over the sandboxes that an earlier one left running.
    Server(server::Args),
    /// Run one command in a new sandbox, and remove the sandbox again
    ///
    /// Output appears as it is written, line by line. The sandbox is removed when the command
    /// ends, when osb is interrupted or terminated, and when anything fails on the way; should osb
    /// itself be killed, the sandbox ends by itself five minutes later.
    ///
    /// Examples:
    ///   osb run -- python3 -c 'print(1 + 1)'
    ///   osb run --memory 512Mi --timeout 30s -- make test
    ///   osb run --shell -- 'uname -a; id'
    ///   osb run --allow pypi.org --allow '*.pythonhosted.org' -- pip download requests
    ///   osb run --learn policy.json -- make test
    #[command(verbatim_doc_comment)]
    Run(Box<run::Args>),
    /// Make, list, use and remove sandboxes
    #[command(subcommand, visible_alias = "sbx")]
    Sandbox(sandbox::Command),
    /// Get, make, list and remove the images that sandboxes start from
    #[command(subcommand)]
    Image(image::Command),
    /// Show and build the images that come with osb
    #[command(subcommand, visible_alias = "env")]
    Environment(environment::Command),
    /// Keep the files of sandboxes, to start others with them
    #[command(subcommand)]
    Snapshot(snapshot::Command),
    /// List and delete the volumes that the server keeps under names
    #[command(subcommand)]
    Volume(volume::Command),
    /// Show and change what sandboxes may reach, see what they tried, and learn from it
    #[command(subcommand)]
    Egress(egress::Command),
    /// Give requests of sandboxes credentials that the sandboxes never see
    #[command(subcommand)]
    Vault(vault::Command),
    /// Read and check what the server of this machine wrote down about sandboxes
    #[command(subcommand)]
    Audit(audit::Command),
    /// Read and write the files of a sandbox
    #[command(subcommand)]
    File(file::Command),
    /// Check what this machine needs to be a server, and say how to get what is missing
    Doctor(doctor::Args),
    /// Say what an error code means and what to try
    Explain(explain::Args),
    /// Print the version
    Version,
}

fn main() -> ExitCode {
    let environment = Environment::read();
    // Before anything else: the spawner forks, and must never have had another thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == runtime::SPAWNER) {
        return spawn(&environment);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_tip(error);
            drop(error.print());
            let words: Vec<_> = std::env::args_os().skip(1).collect();
            return ExitCode::from(refusal(error.use_stderr(), &words));
        }
    };
    let role = cli.command.role();
    let (mut out, mut err) = (unbuffered_stdout(), io::stderr());
    let is_watched = err.is_terminal();
    let mut output = Output::new(&mut *out, &mut err).watched(is_watched);
    match cli.command.execute(&environment, &mut output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if let Some(report) = failure.report() {
                output.say(&report);
            }
            ExitCode::from(failure.exit_code(role))
        }
    }
}

/// What the process exits with that does not understand its words, or was only asked for help. The
/// exit code of what stands in for a command in a sandbox is that command's, but for one.
fn refusal(is_error: bool, words: &[OsString]) -> u8 {
    // What is no text is no word of ours.
    let words: Vec<_> = words.iter().map(|word| word.to_str()).take(2).collect();
    match words.as_slice() {
        _ if !is_error => 0,
        [Some("run"), ..] | [Some("sandbox" | "sbx"), Some("exec")] => ending::OWN_FAILURE,
        _ => 2,
    }
}

/// Tells those who leave out the two dashes before a command about them.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => return error,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument
        && !unexpected.starts_with('-')
        && usage.contains("-- <COMMAND>")
    {
        let tip = format!("a command follows two dashes: -- {unexpected}");
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Standard output without the library's search for line ends: what arrives is passed on as it is.
fn unbuffered_stdout() -> Box<dyn Write> {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(fd) => Box::new(File::from(fd)),
        Err(_) => Box::new(io::stdout()),
    }
}

fn spawn(environment: &Environment) -> ExitCode {
    // A spawner without a log still works; its failures reach the server as replies.
    drop(logging::level(environment, None).and_then(logging::start));
    runtime::spawner_main()
}

impl Command {
    /// Runs the command; returns what the process exits with.
    fn execute(self, environment: &Environment, output: &mut Output<'_>) -> Result<u8, Failure> {
        match self {
            Self::Server(server::Args { command: Some(command), .. }) => {
                server::instead(&command, environment, output)
            }
            Self::Server(server::Args { flags, command: None }) => {
                let begun = server::begin(flags, environment)?;
                wait_for(Threads::PerCore, server::main(begun, environment, output))
            }
            Self::Run(args) => wait_for(Threads::Few, run::main(*args, environment, output)),
            Self::Sandbox(command) => {
                wait_for(Threads::Few, sandbox::main(command, environment, output))
            }
            Self::Image(command) => {
                wait_for(Threads::Few, image::main(command, environment, output))
            }
            Self::Environment(command) => {
                wait_for(Threads::Few, environment::main(command, environment, output))
            }
            Self::Snapshot(command) => {
                wait_for(Threads::Few, snapshot::main(command, environment, output))
            }
            Self::Volume(command) => {
                wait_for(Threads::Few, volume::main(command, environment, output))
            }
            Self::Egress(command) => {
                wait_for(Threads::Few, egress::main(command, environment, output))
            }
            Self::Vault(command) => {
                wait_for(Threads::Few, vault::main(command, environment, output))
            }
            Self::Audit(command) => audit::main(command, environment, output),
            Self::File(command) => wait_for(Threads::Few, file::main(command, environment, output)),
            Self::Doctor(args) => {
                let begun = doctor::begin(args, environment);
                wait_for(Threads::Few, doctor::main(begun, environment, output))
            }
            Self::Explain(args) => explain::main(&args, output),
            Self::Version => version::main(output),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Run(_) | Self::Sandbox(sandbox::Command::Exec(_)) => Role::StandIn,
            Self::Server(_)
            | Self::Sandbox(_)
            | Self::Image(_)
            | Self::Environment(_)
            | Self::Snapshot(_)
            | Self::Volume(_)
            | Self::Egress(_)
            | Self::Vault(_)
            | Self::Audit(_)
            | Self::File(_)
            | Self::Doctor(_)
            | Self::Explain(_)
            | Self::Version => Role::Tool,
        }
    }
}

/// How many threads a command has besides the first.
#[derive(Debug, Clone, Copy)]
enum Threads {
    /// One, which keeps a sandbox alive while the first waits for a slow reader of its output.
    Few,
    /// One per core.
    PerCore,
}

fn wait_for(
    threads: Threads,
    work: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Threads::Few = threads {
        builder.worker_threads(1);
    }
    let runtime = builder.enable_all().build().map_err(|source| Failure::Machine {
        doing: "cannot start threads",
        source: source.into(),
    })?;
    let result = runtime.block_on(work);
    // A read of standard input that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_two_dashes_belongs_to_the_command() {
        let cli = Cli::try_parse_from(["osb", "run", "--image", "x", "--", "ls", "--image", "-l"]);
        let Command::Run(args) = cli.unwrap().command else { panic!("not a run") };
        assert_eq!(args.words(), ["ls", "--image", "-l"]);
    }

    #[test]
    fn whoever_leaves_out_the_two_dashes_is_told_of_them() {
        let told = |words: &[&str]| with_tip(Cli::try_parse_from(words).unwrap_err()).to_string();
        let tip = "tip: a command follows two dashes: -- echo";
        for words in [&["osb", "run", "echo", "hi"][..], &["osb", "sandbox", "exec", "id", "echo"]]
        {
            let told = told(words);
            assert!(told.contains(tip), "{told}");
        }
        assert!(!told(&["osb", "run", "--imge", "x"]).contains("dashes"));
        assert!(!told(&["osb", "volume", "ls", "x"]).contains("dashes"));
    }

    #[test]
    fn what_stands_in_for_a_command_fails_with_a_code_apart() {
        let code = |is_error, words: &str| {
            refusal(is_error, &words.split(' ').map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(code(true, "run --allow"), 125);
        assert_eq!(code(true, "sbx exec"), 125);
        assert_eq!(code(true, "sandbox ls x"), 2);
        assert_eq!(code(true, "egress set"), 2);
        assert_eq!(code(false, "run --help"), 0);
        let no_text = OsString::from_vec(vec![0xff]);
        assert_eq!(refusal(true, &["run".into(), no_text.clone()]), 125);
        assert_eq!(refusal(true, &[no_text]), 2);
    }

    #[test]
    fn a_command_is_needed() {
        assert!(Cli::try_parse_from(["osb", "run"]).is_err());
        assert!(Cli::try_parse_from(["osb", "sandbox", "exec", "id"]).is_err());
        assert!(Cli::try_parse_from(["osb"]).is_err());
    }

    #[test]
    fn nonsense_is_refused_before_anything_happens() {
        for words in [
            ["osb", "run", "--timeout", "soon", "--", "ls"],
            ["osb", "run", "--env", "NOVALUE", "--", "ls"],
            ["osb", "run", "--cpu", "many", "--", "ls"],
            ["osb", "run", "--memory", "2mib", "--", "ls"],
        ] {
            assert!(Cli::try_parse_from(words).is_err(), "{words:?} was accepted");
        }
    }
}
