use serde_json::{Value, json};

use super::{Row, mebibytes, sample, times};
use crate::bench::{
    plane::{PAGE, PRETENDED, Plane, Pretended},
    proxies::Proxies,
    sample::milliseconds,
};

/// What the server takes by itself.
pub(super) fn rows(plane: &Plane) -> Vec<Row> {
    let Plane { many, get, endpoint, resident, restart, proxies, pretended } = plane;
    let (get, endpoint) = (get.percentile(50), endpoint.percentile(50));
    let (resident, restart) = (mebibytes(*resident), milliseconds(*restart));
    let mut rows = vec![
        Row {
            promise: format!("get / endpoint of one among {many}, p50"),
            goal: "0.3 ms",
            measured: format!("{get:.2} / {endpoint:.2} ms"),
            met: Some(get <= 0.3 && endpoint <= 0.3),
            ..Row::default()
        },
        Row {
            promise: format!("memory of the server with {many} sandboxes"),
            goal: "100 MiB",
            measured: format!("{resident:.0} MiB"),
            met: Some(resident <= 100.0),
            ..Row::default()
        },
        Row {
            promise: format!("a new server takes over {many} sandboxes and serves"),
            goal: "1 s",
            measured: format!("{restart:.0} ms"),
            met: Some(restart <= 1000.0),
            ..Row::default()
        },
    ];
    rows.extend(of_proxies(proxies));
    rows.extend(of_pretended(pretended.as_ref()));
    rows
}

fn of_proxies(proxies: &Proxies) -> [Row; 2] {
    let Proxies { direct, gateway, gateway_per_core, nginx } = proxies;
    let added = gateway.percentile(50) - direct.percentile(50);
    let by_nginx = nginx.as_ref().map(|(sample, _)| sample.percentile(50) - direct.percentile(50));
    let ratio = nginx.as_ref().map(|(_, per_core)| gateway_per_core / per_core);
    let absent = || "no nginx here".to_owned();
    [
        Row {
            promise: "what the gateway adds to a request, p50".to_owned(),
            goal: "0.3 ms",
            measured: format!("{added:.2} ms"),
            met: Some(added <= 0.3),
            floor: by_nginx.map_or_else(absent, |added| format!("{added:.2} ms nginx")),
            ..Row::default()
        },
        Row {
            promise: "requests through the gateway, per processor".to_owned(),
            goal: "×0.5",
            measured: format!("{gateway_per_core:.0}/s"),
            met: ratio.map(|ratio| ratio >= 0.5),
            floor: nginx.as_ref().zip(ratio).map_or_else(absent, |((_, per_core), ratio)| {
                format!("{per_core:.0}/s nginx (×{ratio:.2})")
            }),
            ..Row::default()
        },
    ]
}

fn of_pretended(pretended: Option<&Pretended>) -> [Row; 2] {
    let creates = "creates a second, sandboxes only pretended".to_owned();
    let list = format!("a page of {PAGE} among {PRETENDED}, p50 / p99");
    let (measured, met) = match pretended {
        Some(Pretended { creates_per_second, list }) => (
            [format!("{creates_per_second:.0}/s"), times(list)],
            [Some(*creates_per_second >= 2000.0), Some(list.percentile(50) <= 5.0)],
        ),
        None => (["not asked for", "not asked for"].map(str::to_owned), [None, None]),
    };
    let [creates_measured, list_measured] = measured;
    let [creates_met, list_met] = met;
    [
        Row {
            promise: creates,
            goal: "2000/s",
            measured: creates_measured,
            met: creates_met,
            ..Row::default()
        },
        Row {
            promise: list,
            goal: "5 ms",
            measured: list_measured,
            met: list_met,
            ..Row::default()
        },
    ]
}

pub(super) fn json(plane: &Plane) -> Value {
    let Plane { many, get, endpoint, resident, restart, proxies, pretended } = plane;
    let Proxies { direct, gateway, gateway_per_core, nginx } = proxies;
    json!({
        "sandboxes": many,
        "get": sample(get),
        "endpoint": sample(endpoint),
        "resident_bytes": resident,
        "restart_ms": milliseconds(*restart),
        "direct": sample(direct),
        "gateway": sample(gateway),
        "gateway_requests_per_processor_second": gateway_per_core,
        "nginx": nginx.as_ref().map(|(times, per_core)| json!({
            "request": sample(times),
            "requests_per_processor_second": per_core,
        })),
        "pretended": pretended.as_ref().map(|Pretended { creates_per_second, list }| json!({
            "creates_per_second": creates_per_second,
            "list": sample(list),
        })),
    })
}
