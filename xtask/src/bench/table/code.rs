use serde_json::{Value, json};

use super::{Row, sample, speed, times};
use crate::bench::code::Code;

/// How soon cells answer, and how fast they print.
pub(super) fn rows(code: &Code) -> Vec<Row> {
    let Code { warm, claim, cold, by_hand, first, command, output } = code;
    let slower = cold.percentile(50) / by_hand.percentile(50);
    let to_command = first.percentile(50) / command.percentile(50);
    vec![
        Row {
            promise: "`1 + 1` in a Python context, p50 / p99".to_owned(),
            goal: "5 ms",
            measured: times(warm),
            met: Some(warm.percentile(50) <= 5.0),
            ..Row::default()
        },
        Row {
            promise: "warm claim → value of the first cell, p50".to_owned(),
            goal: "15 ms",
            measured: times(claim),
            met: Some(claim.percentile(50) <= 15.0),
            ..Row::default()
        },
        Row {
            promise: "create → value of the first cell, p50".to_owned(),
            goal: "120 ms, ×1.2",
            measured: times(cold),
            met: Some(cold.percentile(50) <= 120.0 && slower <= 1.2),
            floor: format!("{:.1} ms python3 by hand (×{slower:.2})", by_hand.percentile(50)),
            ..Row::default()
        },
        Row {
            promise: "first cell of a sandbox, p50".to_owned(),
            goal: "×1.1",
            measured: times(first),
            met: Some(to_command <= 1.1),
            floor: format!("{:.1} ms python3 -c (×{to_command:.2})", command.percentile(50)),
            ..Row::default()
        },
        Row {
            promise: "10 MB out of one cell".to_owned(),
            goal: "50 MB/s",
            measured: speed(*output),
            met: Some(*output >= 50e6),
            ..Row::default()
        },
    ]
}

pub(super) fn json(code: &Code) -> Value {
    let Code { warm, claim, cold, by_hand, first, command, output } = code;
    json!({
        "cell": sample(warm),
        "claim_to_first_cell": sample(claim),
        "create_to_first_cell": sample(cold),
        "python_by_hand": sample(by_hand),
        "first_cell": sample(first),
        "python_as_command": sample(command),
        "output_bytes_per_second": output,
    })
}
