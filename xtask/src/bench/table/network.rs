//! What leaves a sandbox.

use serde_json::{Value, json};

use super::{
    super::network::{Both, Network, RULES},
    Report, Row, sample, speed, times,
};

/// Eight gigabits, in bytes a second.
const FAST: f64 = 1e9;
const KIBIBYTE: f64 = 1024.0;

impl Report {
    pub(super) fn network_rows(&self) -> Vec<Row> {
        let Network { connect, receive, send, request, ask, replace, patch, memory } =
            &self.network;
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
        let memory = *memory as f64 / KIBIBYTE;
        let is_fast = |(inside, outside): &(f64, f64)| *inside >= FAST.min(0.7 * outside);
        let mut rows = vec![
            Row {
                promise: "allowed connect until the host speaks, added p50".to_owned(),
                goal: "0.5 ms",
                measured: format!("{:.2} ms", connect.added(50)),
                met: Some(connect.added(50) <= 0.5),
                floor: without(connect),
                ..Row::default()
            },
            Row {
                promise: "bytes to a sandbox / from it".to_owned(),
                goal: "×0.7 or 1000 MB/s",
                measured: format!("{} / {}", speed(receive.0), speed(send.0)),
                met: Some(is_fast(receive) && is_fast(send)),
                floor: format!(
                    "{} / {} without a sandbox (×{:.2} / ×{:.2})",
                    speed(receive.1),
                    speed(send.1),
                    receive.0 / receive.1,
                    send.0 / send.1
                ),
                ..Row::default()
            },
        ];
        rows.push(match request {
            Some(request) => Row {
                promise: "request with a credential, added p50 / p99".to_owned(),
                goal: "1 / 5 ms",
                measured: format!("{:.2} / {:.2} ms", request.added(50), request.added(99)),
                met: Some(request.added(50) <= 1.0 && request.added(99) <= 5.0),
                floor: without(request),
                ..Row::default()
            },
            None => Row {
                measured: "port 443 is not free".to_owned(),
                ..Row::not_yet("request with a credential, added p50 / p99", "1 / 5 ms")
            },
        });
        rows.extend([
            Row {
                promise: "answer to a known name, p50 / p99".to_owned(),
                goal: "0.3 ms",
                measured: times(ask),
                met: Some(ask.percentile(50) <= 0.3),
                ..Row::default()
            },
            Row {
                promise: format!("{RULES} rules replaced / one added, p50"),
                goal: "5 ms",
                measured: format!("{:.2} / {:.2} ms", replace.percentile(50), patch.percentile(50)),
                met: Some(replace.percentile(50) <= 5.0 && patch.percentile(50) <= 5.0),
                ..Row::default()
            },
            Row {
                promise: "more memory of the server for a sandbox with a policy".to_owned(),
                goal: "150 KiB",
                measured: format!("{memory:.0} KiB"),
                met: Some(memory <= 150.0),
                ..Row::default()
            },
        ]);
        rows
    }

    pub(super) fn network_json(&self) -> Value {
        let Network { connect, receive, send, request, ask, replace, patch, memory } =
            &self.network;
        let both = |both: &Both| json!({ "inside": sample(&both.inside), "outside": sample(&both.outside) });
        let speeds =
            |(inside, outside): &(f64, f64)| json!({ "inside": inside, "outside": outside });
        json!({
            "connect": both(connect),
            "receive_bytes_per_second": speeds(receive),
            "send_bytes_per_second": speeds(send),
            "request_with_credential": request.as_ref().map(both),
            "known_name": sample(ask),
            "replace_policy": sample(replace),
            "patch_policy": sample(patch),
            "server_bytes_each": memory,
        })
    }
}

fn without(both: &Both) -> String {
    let outside = &both.outside;
    format!("{:.2} / {:.2} ms without a sandbox", outside.percentile(50), outside.percentile(99))
}
