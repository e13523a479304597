//! Numbers for those who watch the server, in the text format of Prometheus.

mod audit;
mod egress;
mod images;

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use axum::{extract::State, response::IntoResponse};
use http::header;
use osb_core::{Phase, PoolStatus, StageTimes};

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

/// How many sandboxes there are, how the warm pools fare, and what a start takes.
pub(super) async fn show(State(app): State<App>) -> impl IntoResponse {
    let mut counts = Phase::ALL.map(|phase| (phase, 0_u64));
    for record in app.store.index().newest_first(|_| true) {
        if let Some((_, count)) = counts.iter_mut().find(|(phase, _)| *phase == record.phase()) {
            *count += 1;
        }
    }
    let text = text(&counts, &app.reconciler.pools(), &app.reconciler.stages())
        .and_then(|text| egress::add(text, &app.reconciler.egress().counts()))
        .and_then(|text| audit::add(text, app.audit.counts()))
        .and_then(|text| images::add(text, app.reconciler.library().map(Arc::as_ref)));
    ([(header::CONTENT_TYPE, FORMAT)], text.expect("invariant: a string takes any text"))
}

fn text(
    phases: &[(Phase, u64)],
    pools: &[PoolStatus],
    stages: &[StageTimes],
) -> Result<String, fmt::Error> {
    let mut text = String::new();
    let phases = phases.iter().map(|(phase, count)| (phase.as_str(), *count));
    let about = ("opensandbox_sandboxes", "gauge", "Sandboxes by phase.");
    family(&mut text, about, "phase", phases)?;
    for (name, kind, help, number) in POOL {
        let values = pools.iter().map(|pool| (pool.image.as_str(), number(pool)));
        family(&mut text, (&format!("opensandbox_pool_{name}"), kind, help), "image", values)?;
    }
    histogram(&mut text, stages)?;
    Ok(text)
}

/// How long each stage of a start took; nothing if the runtime does not tell.
fn histogram(text: &mut String, stages: &[StageTimes]) -> fmt::Result {
    const NAME: &str = "opensandbox_start_stage_seconds";
    if stages.is_empty() {
        return Ok(());
    }
    writeln!(text, "# HELP {NAME} What the stages of starting a sandbox take.")?;
    writeln!(text, "# TYPE {NAME} histogram")?;
    for StageTimes { stage, within, slower, total } in stages {
        let mut count = 0;
        for (bound, more) in within {
            count += more;
            let bound = bound.as_secs_f64();
            writeln!(text, "{NAME}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {count}")?;
        }
        count += slower;
        writeln!(text, "{NAME}_bucket{{stage=\"{stage}\",le=\"+Inf\"}} {count}")?;
        writeln!(text, "{NAME}_sum{{stage=\"{stage}\"}} {}", total.as_secs_f64())?;
        writeln!(text, "{NAME}_count{{stage=\"{stage}\"}} {count}")?;
    }
    Ok(())
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
    use std::time::Duration;

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
        let text = text(&[(Phase::Running, 4)], &[pool], &[]).expect("text");
        assert!(text.contains("# TYPE opensandbox_sandboxes gauge\n"), "{text}");
        assert!(text.contains("opensandbox_sandboxes{phase=\"Running\"} 4\n"), "{text}");
        assert!(text.contains("# TYPE opensandbox_pool_claims_total counter\n"), "{text}");
        assert!(text.contains(r#"opensandbox_pool_claims_total{image="a\"b\\c"} 7"#), "{text}");
    }

    #[test]
    fn without_pools_there_is_nothing_to_say_of_them() {
        let text = text(&[(Phase::Running, 0)], &[], &[]).expect("text");
        assert!(!text.contains("pool") && !text.contains("stage"), "{text}");
    }

    #[test]
    fn what_a_stage_took_is_counted_from_the_fastest_on() {
        let ms = Duration::from_millis;
        let within = vec![(ms(1), 3), (ms(2), 0), (ms(10), 2)];
        let times = StageTimes { stage: "spawn", within, slower: 1, total: ms(1250) };
        let text = text(&[], &[], &[times]).expect("text");
        assert_eq!(
            text,
            "# HELP opensandbox_start_stage_seconds What the stages of starting a sandbox take.\n\
             # TYPE opensandbox_start_stage_seconds histogram\n\
             opensandbox_start_stage_seconds_bucket{stage=\"spawn\",le=\"0.001\"} 3\n\
             opensandbox_start_stage_seconds_bucket{stage=\"spawn\",le=\"0.002\"} 3\n\
             opensandbox_start_stage_seconds_bucket{stage=\"spawn\",le=\"0.01\"} 5\n\
             opensandbox_start_stage_seconds_bucket{stage=\"spawn\",le=\"+Inf\"} 6\n\
             opensandbox_start_stage_seconds_sum{stage=\"spawn\"} 1.25\n\
             opensandbox_start_stage_seconds_count{stage=\"spawn\"} 6\n"
        );
    }
}
