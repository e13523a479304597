//! Where the server's log goes: standard error, compact for people and JSON for machines.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::LevelFilter;

use crate::{
    env::{Environment, LOG},
    failure::Failure,
};

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Person,
    Machine,
}

/// Starts logging. To be called once, before anything that logs.
pub(crate) fn start(environment: &Environment) -> Result<Reader, Failure> {
    let level = level(environment.log.as_deref())?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    let (reader, started) = if io::stderr().is_terminal() {
        (Reader::Person, builder.compact().with_target(false).try_init())
    } else {
        (Reader::Machine, builder.json().flatten_event(true).with_ansi(false).try_init())
    };
    started.map_err(|source| Failure::Machine { doing: "cannot start the log", source })?;
    Ok(reader)
}

fn level(text: Option<&str>) -> Result<LevelFilter, Failure> {
    let text = text.unwrap_or("info");
    text.parse().map_err(|_| {
        Failure::Usage(format!("{LOG} is {text:?}; it should be error, warn, info, debug or trace"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_comes_from_the_environment() {
        assert_eq!(level(None).unwrap(), LevelFilter::INFO);
        assert_eq!(level(Some("debug")).unwrap(), LevelFilter::DEBUG);
        assert!(level(Some("loud")).is_err());
    }
}
