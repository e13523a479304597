use std::{
    collections::BTreeMap, ffi::OsString, fs::File, io::Read, net::SocketAddrV4,
    os::unix::net::UnixListener, path::PathBuf,
};

use osb_core::{
    Token,
    agent::{BOOT_FD, Boot, LISTEN_FD},
};
use osb_sys::inherited;

use crate::{env, environment::Environment, metrics::Meter};

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
    /// Where to read what the sandbox uses.
    pub(crate) meter: Meter,
}

#[derive(Debug)]
pub(crate) enum Listen {
    Tcp(SocketAddrV4),
    Unix(UnixListener),
}

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
    #[error("cannot understand the instructions")]
    Parse(#[source] serde_json::Error),
    #[error("cannot start the event loop")]
    Runtime(#[source] std::io::Error),
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: std::io::Error,
    },
}

impl Start {
    /// Reads what the native runtime has left on this process's descriptors.
    pub(crate) fn from_descriptors() -> Result<Self, StartError> {
        let take = |number, what| {
            inherited::take(number).map_err(|source| StartError::Descriptor {
                number,
                what,
                source,
            })
        };
        let instructions = take(BOOT_FD, "the instructions")?;
        let listener = UnixListener::from(take(LISTEN_FD, "the socket to listen on")?);
        let mut json = Vec::new();
        File::from(instructions).read_to_end(&mut json).map_err(StartError::Read)?;
        let boot: Boot = serde_json::from_slice(&json).map_err(StartError::Parse)?;
        let meter = match boot.counters {
            Some(counters) => {
                let counter = |offset| {
                    take(LISTEN_FD + offset, "a counter of what the sandbox uses").map(File::from)
                };
                Meter::handed(counters, [counter(1)?, counter(2)?, counter(3)?])
            }
            None => Meter::found(),
        };
        let given = boot.env.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut variables: BTreeMap<OsString, OsString> = given.collect();
        variables.entry(env::ENV_FILE.into()).or_insert_with(|| env::DEFAULT_ENV_FILE.into());
        Ok(Self {
            listen: Listen::Unix(listener),
            token: Some(boot.token),
            environment: Environment::new(variables, PathBuf::from(boot.workdir)),
            entrypoint: Some(boot.entrypoint),
            meter,
        })
    }
}
