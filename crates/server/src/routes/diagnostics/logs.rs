//! What a sandbox printed.

use jiff::{SignedDuration, Timestamp};
use osb_core::Phase;

use super::{Findings, MOST_LINES, number, output, scope};
use crate::{app::Parts, error::ApiError, query, record::Record};

/// Which logs to show. A sandbox has one: what its entrypoint printed.
#[derive(Debug, Clone, Copy)]
pub(super) enum LogScope {
    Container,
    All,
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct Logs {
    pub(super) scope: Option<LogScope>,
    /// How many lines.
    pub(super) tail: usize,
    /// How far back.
    pub(super) since: Option<SignedDuration>,
}

impl LogScope {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::All => "all",
        }
    }
}

impl Logs {
    pub(super) fn parse(raw: &str) -> Result<Self, ApiError> {
        let mut logs = Self { scope: None, tail: 100, since: None };
        for (key, value) in query::pairs(raw) {
            let value = value.unwrap_or_default();
            match key.as_str() {
                "scope" => {
                    let all =
                        [LogScope::Container, LogScope::All].map(|scope| (scope.word(), scope));
                    logs.scope = Some(scope(&value, &all)?);
                }
                "tail" => logs.tail = number("tail", &value, MOST_LINES)?,
                "since" => logs.since = Some(span(&value)?),
                "container" if !value.is_empty() => {
                    return Err(ApiError::unsupported(
                        "a sandbox of this server is one container: leave container out",
                    ));
                }
                _ => {}
            }
        }
        Ok(logs)
    }

    pub(super) async fn find(&self, app: &Parts, record: &Record) -> Findings {
        let since = self.since.map(|span| back(app.clock.now(), span));
        let mut warnings = Vec::new();
        let answered = match record.phase() {
            Phase::Pending => {
                warnings.push("the sandbox is not up yet, and has printed nothing".to_owned());
                return Findings { warnings, ..Findings::default() };
            }
            Phase::Paused | Phase::Pausing => {
                warnings.push("the sandbox is paused".to_owned());
                None
            }
            Phase::Terminated | Phase::Failed => {
                let how = &record.desired.status.message;
                warnings.push(format!("the sandbox is over: {how}"));
                None
            }
            Phase::Running | Phase::Resuming | Phase::Stopping => {
                output::ask(app, record, since, &mut warnings).await
            }
        };
        let tail = match answered {
            Some(tail) => tail,
            None => output::find(app, record, since, &mut warnings).await,
        };
        Findings { cut: tail.lines(self.tail), warnings }
    }
}

/// The moment so long before `now`, or the first of all.
fn back(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// How far back, such as `90s`, `10m`, `2h` or `1d`.
fn span(text: &str) -> Result<SignedDuration, ApiError> {
    let text = text.trim();
    let unit = |seconds| move |digits: &str| (digits.to_owned(), seconds);
    let parts = (text.strip_suffix('s').map(unit(1)))
        .or_else(|| text.strip_suffix('m').map(unit(60)))
        .or_else(|| text.strip_suffix('h').map(unit(3600)))
        .or_else(|| text.strip_suffix('d').map(unit(86_400)));
    let seconds = parts.and_then(|(digits, seconds)| {
        // A sign is no digit.
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| is_plain)?.checked_mul(seconds)
    });
    seconds.map(SignedDuration::from_secs).ok_or_else(|| {
        ApiError::invalid("since must be a whole number of s, m, h or d, such as 10m")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("2h", 7200), (" 1d ", 86_400)] {
            assert_eq!(span(text).expect("a span"), SignedDuration::from_secs(seconds));
        }
        for text in ["", "s", "10", "-1m", "+1m", "1.5h", "1w", "9223372036854775807d"] {
            assert!(span(text).is_err(), "{text:?} was accepted");
        }
    }
}
