use std::str::FromStr;

use crate::env;

/// How commands are treated, as whoever starts execd decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) on_disconnect: OnDisconnect,
    /// How many bytes of a background command's output are kept.
    pub(crate) log_limit: u64,
    /// How many bytes are kept of all of them together, once they have ended.
    pub(crate) log_total: u64,
}

/// What happens to a foreground command whose client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum OnDisconnect {
    /// It is ended.
    #[default]
    End,
    /// It runs on, and its output is dropped.
    Continue,
}

pub(crate) const LOG_LIMIT: u64 = 16 << 20;
pub(crate) const LOG_TOTAL: u64 = 256 << 20;

impl Default for Settings {
    fn default() -> Self {
        Self { on_disconnect: OnDisconnect::default(), log_limit: LOG_LIMIT, log_total: LOG_TOTAL }
    }
}

impl Settings {
    /// From the variables of a sandbox. One that makes no sense is as if it were not there:
    /// sandboxes must start all the same.
    pub(crate) fn from_variables(value: impl Fn(&str) -> Option<String>) -> Self {
        fn read<T: FromStr>(text: Option<String>, default: T) -> T {
            text.and_then(|text| text.trim().parse().ok()).unwrap_or(default)
        }
        let disconnect = value(env::ON_DISCONNECT);
        let disconnect = disconnect.and_then(|text| clap::ValueEnum::from_str(&text, true).ok());
        Self {
            on_disconnect: disconnect.unwrap_or_default(),
            log_limit: read(value(env::COMMAND_LOG_LIMIT), LOG_LIMIT),
            log_total: read(value(env::COMMAND_LOG_TOTAL), LOG_TOTAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_make_no_sense_change_nothing() {
        assert_eq!(Settings::from_variables(|_| None), Settings::default());
        assert_eq!(Settings::from_variables(|_| Some("much".to_owned())), Settings::default());
        let settings = Settings::from_variables(|name| {
            Some(if name == env::ON_DISCONNECT { "continue" } else { " 77 " }.to_owned())
        });
        let on_disconnect = OnDisconnect::Continue;
        assert_eq!(settings, Settings { on_disconnect, log_limit: 77, log_total: 77 });
    }
}
