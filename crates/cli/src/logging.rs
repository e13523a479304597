//! Where the server's log goes: standard error, compact for people and JSON for machines.

use std::io::{self, IsTerminal as _};

use serde::Deserialize;
use tracing_subscriber::{
    Registry, filter::LevelFilter, fmt, layer::SubscriberExt as _, reload,
    util::SubscriberInitExt as _,
};

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

/// The table `[log]` of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawLog {
    /// How much is logged: `error`, `warn`, `info`, `debug` or `trace`; `info` if absent. Since 0.1.
    pub(crate) level: Option<String>,
}

/// The log, once it has started.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) reader: Reader,
    level: reload::Handle<LevelFilter, Registry>,
}

impl Log {
    /// Logs so much from now on.
    pub(crate) fn set_level(&self, level: LevelFilter) {
        if let Err(error) = self.level.reload(level) {
            tracing::warn!(%error, "the level of the log stays as it was");
        }
    }
}

/// Starts logging. To be called once, before anything that logs.
pub(crate) fn start(level: LevelFilter) -> Result<Log, Failure> {
    let (filter, level) = reload::Layer::new(level);
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(io::stderr);
    let (reader, started) = if io::stderr().is_terminal() {
        (Reader::Person, registry.with(layer.compact().with_target(false)).try_init())
    } else {
        let layer = layer.json().flatten_event(true).with_ansi(false);
        (Reader::Machine, registry.with(layer).try_init())
    };
    started.map_err(|source| Failure::Machine {
        doing: "cannot start the log",
        source: source.into(),
    })?;
    Ok(Log { reader, level })
}

/// How much is logged: as the environment says, or the file.
pub(crate) fn level(environment: &Environment, file: Option<&str>) -> Result<LevelFilter, Failure> {
    let (name, text) = match (environment.log.as_deref(), file) {
        (Some(text), _) => (LOG, text),
        (None, Some(text)) => ("log.level", text),
        (None, None) => return Ok(LevelFilter::INFO),
    };
    Ok(match text.to_ascii_lowercase().as_str() {
        "trace" => LevelFilter::TRACE,
        "debug" => LevelFilter::DEBUG,
        "info" => LevelFilter::INFO,
        // As the published server says.
        "warn" | "warning" => LevelFilter::WARN,
        "error" | "critical" => LevelFilter::ERROR,
        "off" => LevelFilter::OFF,
        _ => {
            return Err(Failure::Usage(format!(
                "{name} is {text:?}; it should be error, warn, info, debug or trace"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_comes_from_the_environment_or_else_from_the_file() {
        let said =
            |text: &str| Environment { log: Some(text.to_owned()), ..Environment::default() };
        let silent = Environment::default();
        assert_eq!(level(&silent, None).unwrap(), LevelFilter::INFO);
        assert_eq!(level(&silent, Some("WARNING")).unwrap(), LevelFilter::WARN);
        assert_eq!(level(&said("debug"), Some("WARNING")).unwrap(), LevelFilter::DEBUG);
        assert!(level(&said("loud"), None).is_err());
        assert!(level(&silent, Some("loud")).is_err());
    }
}
