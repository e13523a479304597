use serde_json::{Value, json};

use super::{Row, sample, speed, times};
use crate::bench::{code::Code, kernels::Kernels, sample::Sample};

/// How soon cells answer, and how fast they print.
pub(super) fn rows(code: &Code) -> Vec<Row> {
    let Code { warm, claim, cold, by_hand, first, command, output, kernels } = code;
    let slower = cold.percentile(50) / by_hand.percentile(50);
    let to_command = first.percentile(50) / command.percentile(50);
    let mut rows = vec![
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
    ];
    rows.extend(of_kernels(kernels.as_ref()));
    rows
}

fn of_kernels(kernels: Option<&Kernels>) -> Vec<Row> {
    const PROMISES: [(&str, &str); 3] = [
        ("`1 + 1` in a kernel of Python, p50 / p99", "5 ms"),
        ("warm claim → value of the kernel's first cell, p50", "15 ms"),
        ("create → value of the kernel's first cell, p50", "900 ms, ×1.2"),
    ];
    let Some(Kernels { cold, by_hand, claim, warm }) = kernels else {
        let measured = "no environment: `make test SUITES=environments`".to_owned();
        let row = |(promise, goal): (&str, _)| {
            let (promise, measured) = (promise.to_owned(), measured.clone());
            Row { promise, goal, measured, ..Row::default() }
        };
        return PROMISES.map(row).into();
    };
    let slower = cold.percentile(50) / by_hand.percentile(50);
    let floor = format!("{:.0} ms the kernel by hand (×{slower:.2})", by_hand.percentile(50));
    let measured: [(&Sample, bool, String); 3] = [
        (warm, warm.percentile(50) <= 5.0, String::new()),
        (claim, claim.percentile(50) <= 15.0, String::new()),
        (cold, cold.percentile(50) <= 900.0 && slower <= 1.2, floor),
    ];
    let rows = PROMISES.into_iter().zip(measured).map(|((promise, goal), (sample, met, floor))| {
        let (promise, measured) = (promise.to_owned(), times(sample));
        Row { promise, goal, measured, met: Some(met), floor, ..Row::default() }
    });
    rows.collect()
}

pub(super) fn json(code: &Code) -> Value {
    let Code { warm, claim, cold, by_hand, first, command, output, kernels } = code;
    json!({
        "cell": sample(warm),
        "claim_to_first_cell": sample(claim),
        "create_to_first_cell": sample(cold),
        "python_by_hand": sample(by_hand),
        "first_cell": sample(first),
        "python_as_command": sample(command),
        "output_bytes_per_second": output,
        "kernels": kernels.as_ref().map(|Kernels { cold, by_hand, claim, warm }| json!({
            "cell": sample(warm),
            "claim_to_first_cell": sample(claim),
            "create_to_first_cell": sample(cold),
            "kernel_by_hand": sample(by_hand),
        })),
    })
}
