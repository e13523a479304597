//! Numbers for those who watch the server, in the text format of Prometheus.

use std::fmt::{self, Write as _};

use axum::{extract::State, response::IntoResponse};
use http::header;
use osb_core::{Phase, PoolStatus};

use crate::app::App;

/// The version of the format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A number of a pool: its name and kind, what it says, and where it stands.
type Number = (&'static str, &'static str, &'static str, fn(&PoolStatus) -> u64);

const POOL: [Number; 5] = [
    ("ready", "gauge", "Sandboxes that wait to be claimed.", |pool| pool.ready as u64),
    ("target", "gauge", "Sandboxes that should wait.", |pool| pool.target as u64),
    ("claims_total", "counter", "Sandboxes that were claimed.", |pool| pool.claims),
    ("misses_total", "counter", "Times that none was ready.", |pool| pool.misses),
    ("failures_total", "counter", "Times that one could not be kept ready.", |pool| pool.failures),
];

/// How many sandboxes there are, and how the warm pools fare.
pub(super) async fn show(State(app): State<App>) -> impl IntoResponse {
    let mut counts = Phase::ALL.map(|phase| (phase, 0_u64));
    for record in app.store.index().newest_first(|_| true) {
        if let Some((_, count)) = counts.iter_mut().find(|(phase, _)| *phase == record.phase()) {
            *count += 1;
        }
    }
    let text = text(&counts, &app.reconciler.pools());
    ([(header::CONTENT_TYPE, FORMAT)], text.expect("invariant: a string takes any text"))
}

fn text(phases: &[(Phase, u64)], pools: &[PoolStatus]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    let phases = phases.iter().map(|(phase, count)| (phase.as_str(), *count));
    let about = ("opensandbox_sandboxes", "gauge", "Sandboxes by phase.");
    family(&mut text, about, "phase", phases)?;
    for (name, kind, help, number) in POOL {
        let values = pools.iter().map(|pool| (pool.image.as_str(), number(pool)));
        family(&mut text, (&format!("opensandbox_pool_{name}"), kind, help), "image", values)?;
    }
    Ok(text)
}

/// One family of numbers that differ in one label; nothing if there are none.
fn family<'a>(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    for (value, number) in values {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        writeln!(text, "{name}{{{label}=\"{value}\"}} {number}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use osb_core::ImageName;

    use super::*;

    #[test]
    fn each_number_has_its_kind_and_its_label() {
        let pool = PoolStatus {
            image: ImageName::new("a\"b\\c"),
            ready: 2,
            target: 3,
            claims: 7,
            misses: 1,
            failures: 0,
        };
        let text = text(&[(Phase::Running, 4)], &[pool]).expect("text");
        assert!(text.contains("# TYPE opensandbox_sandboxes gauge\n"), "{text}");
        assert!(text.contains("opensandbox_sandboxes{phase=\"Running\"} 4\n"), "{text}");
        assert!(text.contains("# TYPE opensandbox_pool_claims_total counter\n"), "{text}");
        assert!(text.contains(r#"opensandbox_pool_claims_total{image="a\"b\\c"} 7"#), "{text}");
    }

    #[test]
    fn without_pools_there_is_nothing_to_say_of_them() {
        let text = text(&[(Phase::Running, 0)], &[]).expect("text");
        assert!(!text.contains("pool"), "{text}");
    }
}
