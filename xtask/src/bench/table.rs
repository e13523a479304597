use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::{
    measure::Transfer,
    sample::{Sample, milliseconds},
};

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Everything that one run found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) create: Sample,
    pub(crate) round_trip: Sample,
    pub(crate) crowd_size: usize,
    pub(crate) crowd: Duration,
    /// Bytes per idle sandbox.
    pub(crate) private_memory: u64,
    pub(crate) transfer: Transfer,
    pub(crate) namespaces_floor: Option<Sample>,
    pub(crate) process_floor: Sample,
    pub(crate) loopback_floor: f64,
    pub(crate) docker: Option<Sample>,
}

/// One promise: what was hoped, what was found, and what the same costs otherwise.
struct Row {
    promise: String,
    goal: &'static str,
    measured: String,
    floor: String,
    docker: String,
}

impl Row {
    fn not_yet(promise: &str, goal: &'static str) -> Self {
        Self {
            promise: promise.to_owned(),
            goal,
            measured: "not yet measured".to_owned(),
            floor: String::new(),
            docker: String::new(),
        }
    }

    fn cells(&self) -> [&str; 5] {
        [&self.promise, self.goal, &self.measured, &self.floor, &self.docker]
    }
}

impl Report {
    fn rows(&self) -> Vec<Row> {
        let create = self.create.percentile(50);
        let trip = self.round_trip.percentile(50);
        let crowd = milliseconds(self.crowd);
        let floor = |sample: &Sample, value: f64| {
            format!("{:.2} ms (×{:.1})", sample.percentile(50), value / sample.percentile(50))
        };
        let times = |sample: &Sample| {
            format!("{:.2} / {:.2} ms", sample.percentile(50), sample.percentile(99))
        };
        let speed = |bytes: f64| format!("{:.0} MB/s", bytes / 1e6);
        vec![
            Row {
                promise: "create → first output, p50 / p99".to_owned(),
                goal: "10 / 30 ms",
                measured: times(&self.create),
                floor: self
                    .namespaces_floor
                    .as_ref()
                    .map_or_else(|| "no unshare here".to_owned(), |sample| floor(sample, create)),
                docker: self.docker.as_ref().map_or_else(
                    || "no daemon here".to_owned(),
                    |docker| {
                        let docker = docker.percentile(50);
                        format!("{docker:.0} ms (×{:.0})", docker / create)
                    },
                ),
            },
            Row::not_yet("the same from a warm pool", "3 ms"),
            Row {
                promise: format!("{} created at once, all usable", self.crowd_size),
                goal: "800 ms",
                measured: format!("{crowd:.0} ms"),
                floor: self
                    .namespaces_floor
                    .as_ref()
                    .map(|sample| {
                        #[expect(clippy::cast_precision_loss, reason = "a crowd is small")]
                        let all = sample.percentile(50) * self.crowd_size as f64;
                        format!("{all:.0} ms one by one (×{:.1})", crowd / all)
                    })
                    .unwrap_or_default(),
                docker: String::new(),
            },
            Row {
                promise: "round trip of `true`, p50 / p99".to_owned(),
                goal: "2 ms",
                measured: times(&self.round_trip),
                floor: floor(&self.process_floor, trip),
                docker: String::new(),
            },
            Row {
                promise: "private memory of an idle sandbox".to_owned(),
                goal: "1.5 MiB",
                measured: format!("{:.2} MiB", self.mebibytes()),
                floor: String::new(),
                docker: String::new(),
            },
            Row::not_yet("first Python cell, warm / cold kernel", "15 / 350 ms"),
            Row::not_yet("credential proxy, added per request", "1 ms"),
            Row {
                promise: "upload / download on loopback".to_owned(),
                goal: "500 MB/s",
                measured: format!(
                    "{} / {}",
                    speed(self.transfer.upload),
                    speed(self.transfer.download)
                ),
                floor: format!(
                    "{} bare TCP (×{:.1} / ×{:.1})",
                    speed(self.loopback_floor),
                    self.loopback_floor / self.transfer.upload,
                    self.loopback_floor / self.transfer.download
                ),
                docker: String::new(),
            },
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    fn mebibytes(&self) -> f64 {
        self.private_memory as f64 / MEBIBYTE
    }

    pub(crate) fn json(&self) -> Value {
        let sample = |sample: &Sample| {
            json!({
                "count": sample.len(),
                "p50_ms": sample.percentile(50),
                "p99_ms": sample.percentile(99),
            })
        };
        json!({
            "create_to_first_output": sample(&self.create),
            "round_trip_of_true": sample(&self.round_trip),
            "created_at_once": { "count": self.crowd_size, "wall_ms": milliseconds(self.crowd) },
            "private_memory_of_idle_sandbox_bytes": self.private_memory,
            "upload_bytes_per_second": self.transfer.upload,
            "download_bytes_per_second": self.transfer.download,
            "floor": {
                "namespaces": self.namespaces_floor.as_ref().map(sample),
                "process": sample(&self.process_floor),
                "loopback_bytes_per_second": self.loopback_floor,
            },
            "docker_run": self.docker.as_ref().map(sample),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["promise", "goal", "measured", "floor", "docker run"];
        let rows = self.rows();
        let lines: Vec<[&str; 5]> =
            std::iter::once(heads).chain(rows.iter().map(Row::cells)).collect();
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| {
                let cells = lines.iter().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
            })
            .collect();
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "| {} |", cells.join(" | "))?;
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(f, "| {} |", rule.join(" | "))?;
            }
        }
        write!(f, "goals are for one 2-core machine; × is the ratio between the two")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_every_promise_and_lines_up() {
        let sample = || Sample::new(vec![Duration::from_millis(4)]);
        let report = Report {
            create: sample(),
            round_trip: sample(),
            crowd_size: 100,
            crowd: Duration::from_millis(500),
            private_memory: 1024 * 1024,
            transfer: Transfer { upload: 1e9, download: 2e9 },
            namespaces_floor: None,
            process_floor: sample(),
            loopback_floor: 4e9,
            docker: Some(Sample::new(vec![Duration::from_millis(400)])),
        };
        let table = report.to_string();
        assert!(table.contains("400 ms (×100)"), "{table}");
        assert!(table.contains("4000 MB/s bare TCP (×4.0 / ×2.0)"), "{table}");
        let widths: Vec<usize> =
            table.lines().filter(|line| line.starts_with('|')).map(|l| l.chars().count()).collect();
        assert_eq!(widths.len(), 10);
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}
