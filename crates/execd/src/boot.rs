use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Read,
    net::SocketAddrV4,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    time::Duration,
};

use osb_core::{
    Account, Token,
    agent::{Ahead, BOOT_FD, Boot, LISTEN_FD, Readied, Sent},
};
use osb_sys::{
    fs::{self, PathError},
    inherited, message, process, ready,
};
use rustix::{
    fs::{FileType, fstat},
    process::Signal,
};
use tokio::io::Interest;

use crate::{
    accounts,
    command::Settings,
    env,
    environment::Environment,
    isolated,
    log::{Level, LogFile},
    metrics::Meter,
    trust,
};

/// All that execd needs to know to start.
#[derive(Debug)]
pub struct Start {
    pub(crate) listen: Listen,
    /// What callers must send; without one everyone may call.
    pub(crate) token: Option<Token>,
    /// What commands and the entrypoint start with.
    pub(crate) environment: Environment,
    /// The program that execd ends with.
    pub(crate) entrypoint: Option<Vec<String>>,
    /// Where what it prints is kept, if somebody else is to find it.
    pub(crate) output: Option<File>,
    /// With one, `SIGTERM` is an order to end with the entrypoint, which gets this signal.
    pub(crate) stop_signal: Option<Signal>,
    pub(crate) commands: Settings,
    /// Where to read what the sandbox uses.
    pub(crate) meter: Meter,
    /// How long commands have to end after they were asked to.
    pub(crate) grace: Duration,
    pub(crate) log_level: Level,
    /// Where messages go in place of the standard error.
    pub(crate) log_file: Option<LogFile>,
    /// Who makes isolated sessions.
    pub(crate) isolation: isolated::Source,
}

#[derive(Debug)]
pub(crate) enum Listen {
    Tcp(SocketAddrV4),
    Unix(UnixListener),
    /// Connections arrive as descriptors.
    Channel(OwnedFd),
}

/// Where execd's instructions come from.
#[derive(Debug)]
pub enum Instructions {
    /// The arguments have said it all.
    Here(Box<Start>),
    /// The native runtime has left them on the descriptors of this process, or will send them.
    Descriptors(Descriptors),
}

impl Instructions {
    /// Those of the native runtime, if this process was started by it, which it says in one word. To
    /// understand that takes none of what explains arguments to people, and no time.
    pub fn of_runtime() -> Option<Result<Self, StartError>> {
        let is_it = std::env::args_os().skip(1).eq(["--boot"]);
        is_it.then(|| Descriptors::take().map(Self::Descriptors))
    }

    /// Whether somebody is yet to decide what this process is for.
    pub(crate) fn come_later(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Descriptors(descriptors) => is_channel(&descriptors.instructions),
        }
    }

    /// Waits until they are here, or something that is to be done before. Nobody is served before.
    pub(crate) fn wait(self) -> Result<First, StartError> {
        match self {
            Self::Here(start) => Ok(First::Start(start)),
            Self::Descriptors(descriptors) => descriptors.wait(),
        }
    }
}

/// What is heard first.
#[derive(Debug)]
pub(crate) enum First {
    Start(Box<Start>),
    /// What to do until the rest comes.
    Ahead(Box<Ahead>, Descriptors),
}

/// What the native runtime has left open for this process.
#[derive(Debug)]
pub struct Descriptors {
    instructions: OwnedFd,
    listener: OwnedFd,
    /// What [`Boot`] speaks of, in its order.
    others: Vec<OwnedFd>,
}

/// The grace that published deployments have.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Why execd did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot hide from the programs of the sandbox")]
    Hide(#[source] std::io::Error),
    #[error("cannot take descriptor {number}, which should be {what}")]
    Descriptor {
        number: i32,
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read the instructions")]
    Read(#[source] std::io::Error),
    #[error("nobody has use for this sandbox any more")]
    Unclaimed,
    #[error("the instructions speak of {0}, which was not handed over")]
    Missing(&'static str),
    #[error("cannot understand the instructions")]
    Parse(#[source] serde_json::Error),
    #[error("cannot write messages to the file in {}", env::LOG_FILE)]
    LogFile(#[source] PathError),
    #[error("cannot pass output on")]
    Outlet(#[source] std::io::Error),
    #[error("cannot start the event loop")]
    Runtime(#[source] std::io::Error),
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: std::io::Error,
    },
}

impl Descriptors {
    /// Takes them. To be called before anything is opened, which could have their numbers.
    pub(crate) fn take() -> Result<Self, StartError> {
        let take = |number, what| {
            inherited::take(number).map_err(|source| StartError::Descriptor {
                number,
                what,
                source,
            })
        };
        let instructions = take(BOOT_FD, "the instructions")?;
        let listener = take(LISTEN_FD, "the socket to listen on")?;
        let others = (LISTEN_FD + 1..).map_while(|number| inherited::take(number).ok()).collect();
        Ok(Self { instructions, listener, others })
    }

    fn wait(self) -> Result<First, StartError> {
        match read(&self.instructions)? {
            Heard::Ahead(ahead) => Ok(First::Ahead(ahead, self)),
            Heard::Boot(boot) => Ok(First::Start(Box::new(self.start(*boot)?))),
        }
    }

    /// Does what is to be done, says so, and waits for the rest.
    pub(crate) async fn go_on(self, work: impl Future<Output = ()>) -> Result<Start, StartError> {
        let channel = self.instructions.try_clone().map_err(StartError::Read)?;
        let channel = ready::register(channel, Interest::READABLE).map_err(StartError::Read)?;
        tokio::select! {
            () = work => {}
            // Nothing is sent before it is done, so nobody is there any more.
            _ = channel.readable() => return Err(StartError::Unclaimed),
        }
        message::send(&self.instructions, &Readied, &[]).map_err(StartError::Read)?;
        drop(channel.readable().await.map_err(StartError::Read)?);
        match self.wait()? {
            First::Start(start) => Ok(*start),
            First::Ahead(..) => Err(StartError::Missing("a purpose")),
        }
    }

    fn start(self, boot: Boot) -> Result<Start, StartError> {
        let mut others = self.others.into_iter();
        let mut next = |what| others.next().ok_or(StartError::Missing(what));
        let meter = match boot.counters {
            Some(counters) => {
                let mut counter = || next("a counter of what the sandbox uses").map(File::from);
                Meter::handed(counters, [counter()?, counter()?, counter()?])
            }
            None => Meter::found(),
        };
        let output = if boot.output {
            Some(File::from(next("the file for what the entrypoint prints")?))
        } else {
            None
        };
        let isolation = if boot.isolator {
            isolated::Source::Channel(next("the channel to the isolator")?)
        } else if boot.by_descriptor {
            isolated::Source::Nobody
        } else {
            isolated::Source::Own
        };
        let commands = Settings::from_variables(|name| boot.env.get(name).cloned());
        let environment = environment(boot.env, boot.workdir, boot.user, boot.trust.as_deref());
        Ok(Start {
            listen: if boot.by_descriptor {
                Listen::Channel(self.listener)
            } else {
                Listen::Unix(UnixListener::from(self.listener))
            },
            token: Some(boot.token),
            environment,
            entrypoint: Some(boot.entrypoint).filter(|argv| !argv.is_empty()),
            output,
            stop_signal: boot
                .stop_signal
                .map(|number| process::signal(number).unwrap_or(Signal::TERM)),
            commands,
            meter,
            grace: GRACE,
            log_level: Level::Nothing,
            log_file: None,
            isolation,
        })
    }
}

/// What programs begin with for whom this was said.
pub(crate) fn environment(
    given: BTreeMap<String, String>,
    workdir: String,
    user: Option<Account>,
    trust: Option<&str>,
) -> Environment {
    let given = given.into_iter().map(|(name, value)| (name.into(), value.into()));
    let mut variables: BTreeMap<OsString, OsString> = given.collect();
    variables.entry(env::ENV_FILE.into()).or_insert_with(|| env::DEFAULT_ENV_FILE.into());
    if let Some(authority) = trust {
        trust::install(authority, &mut variables);
    }
    // Where it cannot be made, the entrypoint tells of it.
    fs::create_dir_all(&workdir).ok();
    let user = user.map(accounts::identity_of);
    Environment::new(variables, PathBuf::from(workdir)).of_user(user)
}

fn is_channel(file: impl AsFd) -> bool {
    let kind = fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Socket))
}

/// What was said.
enum Heard {
    Ahead(Box<Ahead>),
    Boot(Box<Boot>),
}

/// Reads what is said: in a file, or in what is yet to be sent if `from` is a channel.
fn read(from: &OwnedFd) -> Result<Heard, StartError> {
    let mut file = if is_channel(from) {
        let sent = message::receive::<Sent>(from).map_err(StartError::Read)?;
        match sent.ok_or(StartError::Unclaimed)? {
            (Sent::Ahead(ahead), _) => return Ok(Heard::Ahead(ahead)),
            (Sent::Here(boot), _) => return Ok(Heard::Boot(boot)),
            (Sent::InFile, fds) => {
                let file = fds.into_iter().next().map(File::from);
                file.ok_or(StartError::Missing("a file with the rest of them"))?
            }
        }
    } else {
        File::from(from.try_clone().map_err(StartError::Read)?)
    };
    let mut json = Vec::new();
    file.read_to_end(&mut json).map_err(StartError::Read)?;
    serde_json::from_slice(&json).map(|boot| Heard::Boot(Box::new(boot))).map_err(StartError::Parse)
}
