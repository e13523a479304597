//! What happened to a sandbox, a line each.

use std::fmt::Write as _;

use jiff::Timestamp;
use osb_egress::{Asked, By, Decision, Ruling, Verdict};

use super::{Findings, lines::Cut, scope};
use crate::{
    app::Parts,
    error::ApiError,
    history::{Entry, Source},
    record::Record,
    routes::decisions,
};

/// Which events to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventScope {
    /// What its runtime saw.
    Runtime,
    /// That, and what was asked for.
    Lifecycle,
    /// What it tried in the network.
    Network,
    All,
}

impl EventScope {
    const ALL: [Self; 4] = [Self::Runtime, Self::Lifecycle, Self::Network, Self::All];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Lifecycle => "lifecycle",
            Self::Network => "network",
            Self::All => "all",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        scope(text, &Self::ALL.map(|scope| (scope.word(), scope)))
    }

    fn includes(self, entry: &Entry) -> bool {
        match self {
            Self::Runtime => entry.what.source() == Source::Runtime,
            Self::Lifecycle | Self::All => true,
            Self::Network => false,
        }
    }

    fn has_network(self) -> bool {
        matches!(self, Self::Network | Self::All)
    }
}

/// The latest events, at most so many, in the order in which they happened.
pub(super) fn find(app: &Parts, record: &Record, scope: EventScope, limit: usize) -> Findings {
    let entries = record.history.entries().iter().filter(|entry| scope.includes(entry));
    let mut events: Vec<(Timestamp, String)> =
        entries.map(|entry| (entry.at, told(entry))).collect();
    let mut warnings = Vec::new();
    let forgotten = record.history.forgotten();
    if forgotten > 0 && scope != EventScope::Network {
        warnings.push(format!("{forgotten} earlier events were forgotten"));
    }
    if scope.has_network() {
        if app.reconciler.has_network() {
            let recent = app.reconciler.egress().recent(record.id());
            events.extend(recent.iter().map(|decision| (decision.at, decided(decision))));
            events.sort_by_key(|(at, _)| *at);
            if scope == EventScope::Network {
                warnings.extend(gone(record, recent.first()));
            }
        } else if scope == EventScope::Network {
            let why = "the runtime of this server does not control what sandboxes reach";
            warnings.push(why.to_owned());
        }
    }
    let spare = events.len().saturating_sub(limit);
    let text = events.into_iter().skip(spare).map(|(_, line)| line).collect();
    Findings { cut: Cut { text, is_cut: spare > 0 }, warnings }
}

/// What is said of decisions that are not there any more.
fn gone(record: &Record, oldest: Option<&Decision>) -> Option<String> {
    if record.phase().is_over() {
        return Some("the sandbox is over, and what it tried in the network is forgotten".into());
    }
    let forgotten = oldest.map_or(0, |oldest| oldest.number.saturating_sub(1));
    (forgotten > 0).then(|| "earlier decisions were forgotten".to_owned())
}

fn told(entry: &Entry) -> String {
    let source = match entry.what.source() {
        Source::Runtime => "runtime",
        Source::Request => "lifecycle",
    };
    line(entry.at, source, entry.what.word(), &entry.what.to_string(), entry.times)
}

fn decided(decision: &Decision) -> String {
    let Decision { at, what, ruling, times, .. } = decision;
    let word = match ruling.verdict {
        Verdict::Allow => "ALLOWED",
        Verdict::Deny => "DENIED",
    };
    let host = match (&what.name, what.address) {
        (Some(name), Some(address)) => format!("{name} ({address})"),
        (Some(name), None) => name.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "?".to_owned(),
    };
    let mut message = format!("{} {host} port {}", what.protocol.as_str(), what.port);
    if let Some(Asked { method, path, .. }) = &what.request {
        // A string takes any text.
        write!(message, " {method} {path}").ok();
    }
    write!(message, ": {}", why(ruling)).ok();
    line(*at, "network", word, &message, *times)
}

fn why(ruling: &Ruling) -> String {
    match &ruling.by {
        By::Rule(rule) => format!("rule {rule}"),
        By::Operator(rule) => format!("rule {rule} of the operator"),
        By::Default => "no rule is about it".to_owned(),
        By::Guard(guarded) => format!("{} addresses are guarded", decisions::kind(*guarded)),
        By::Mismatch => "it was for another host than it said".to_owned(),
        By::Limit => "there were too many at once".to_owned(),
        By::Binding(name) => format!("binding {name}"),
    }
}

fn line(at: Timestamp, source: &str, word: &str, message: &str, times: u64) -> String {
    // What a sandbox named must not look like another line.
    let message: String = message
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
    format!("{at:.3} {source} {word} {message}{times}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_on_its_line() {
        let shown = line(Timestamp::UNIX_EPOCH, "network", "DENIED", "a\nb\u{1b}", 3);
        assert_eq!(shown, "1970-01-01T00:00:00.000Z network DENIED a\\nb\\u{1b} (3 times)\n");
    }
}
