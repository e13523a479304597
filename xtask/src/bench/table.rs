mod code;
mod images;
mod network;
mod plane;

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::{
    code::Code,
    daemon::{AT_ONCE, Daemon},
    images::Images,
    life::{Changes, Many},
    network::Network,
    plane::Plane,
    sample::{Sample, milliseconds},
    snapshots::Snapshots,
};

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Everything that one run found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) create: Sample,
    /// Creating where sandboxes wait in a pool.
    pub(crate) warm: Sample,
    pub(crate) crowd_size: usize,
    pub(crate) crowd: Duration,
    pub(crate) changes: Changes,
    pub(crate) many: Many,
    pub(crate) snapshots: Snapshots,
    pub(crate) daemon: Daemon,
    pub(crate) network: Network,
    pub(crate) images: Images,
    pub(crate) code: Code,
    pub(crate) plane: Plane,
    pub(crate) namespaces_floor: Option<Sample>,
    pub(crate) loopback_floor: f64,
    pub(crate) docker: Option<Sample>,
    pub(crate) runc: Option<Sample>,
}

/// One promise: what was hoped, what was found, and what the same costs otherwise.
#[derive(Default)]
struct Row {
    promise: String,
    goal: &'static str,
    measured: String,
    /// Whether the goal is met; nothing where nothing is measured.
    met: Option<bool>,
    floor: String,
    others: String,
}

impl Row {
    fn not_yet(promise: &str, goal: &'static str) -> Self {
        let measured = "not yet measured".to_owned();
        Self { promise: promise.to_owned(), goal, measured, ..Self::default() }
    }

    fn cells(&self) -> [&str; 6] {
        let met = self.met.map_or("", |met| if met { "yes" } else { "NO" });
        [&self.promise, self.goal, &self.measured, met, &self.floor, &self.others]
    }
}

impl Report {
    fn rows(&self) -> Vec<Row> {
        let create = self.create.percentile(50);
        let crowd = milliseconds(self.crowd);
        let mut rows = vec![
            Row {
                promise: "create → first output, p50 / p99".to_owned(),
                goal: "10 / 30 ms",
                measured: times(&self.create),
                met: Some(create <= 10.0 && self.create.percentile(99) <= 30.0),
                floor: self
                    .namespaces_floor
                    .as_ref()
                    .map_or_else(|| "no unshare here".to_owned(), |sample| ratio(sample, create)),
                others: format!(
                    "{} / {}",
                    beside(self.docker.as_ref(), create, "no daemon here"),
                    beside(self.runc.as_ref(), create, "not here")
                ),
            },
            Row {
                promise: "the same from a warm pool, p50 / p99".to_owned(),
                goal: "3 ms",
                measured: times(&self.warm),
                met: Some(self.warm.percentile(50) <= 3.0),
                floor: format!(
                    "{:.2} ms its program alone",
                    self.daemon.plain_floor.percentile(50)
                ),
                ..Row::default()
            },
            Row {
                promise: format!("{} created at once, all usable", self.crowd_size),
                goal: "800 ms",
                measured: format!("{crowd:.0} ms"),
                met: (self.crowd_size >= 100).then_some(crowd <= 800.0),
                floor: self
                    .namespaces_floor
                    .as_ref()
                    .map(|sample| {
                        #[expect(clippy::cast_precision_loss, reason = "a crowd is small")]
                        let all = sample.percentile(50) * self.crowd_size as f64;
                        format!("{all:.0} ms one by one (×{:.1})", crowd / all)
                    })
                    .unwrap_or_default(),
                ..Row::default()
            },
        ];
        rows.extend(self.life_rows());
        rows.extend(self.snapshot_rows());
        rows.extend(self.latency_rows());
        rows.extend(self.size_rows());
        rows.extend(self.network_rows());
        rows.extend(images::rows(&self.images));
        rows.extend(code::rows(&self.code));
        rows.extend(plane::rows(&self.plane));
        rows
    }

    /// What becomes of sandboxes.
    fn life_rows(&self) -> Vec<Row> {
        let Changes { pause, resume, remove } = &self.changes;
        let Many { count, private, create } = &self.many;
        let private = mebibytes(*private);
        let slower = create.percentile(50) / self.create.percentile(50);
        vec![
            Row {
                promise: "remove, everything gone, p50 / p99".to_owned(),
                goal: "15 ms",
                measured: times(remove),
                met: Some(remove.percentile(50) <= 15.0),
                ..Row::default()
            },
            Row {
                promise: "pause / resume, p50".to_owned(),
                goal: "3 ms",
                measured: format!("{:.2} / {:.2} ms", pause.percentile(50), resume.percentile(50)),
                met: Some(pause.percentile(50) <= 3.0 && resume.percentile(50) <= 3.0),
                ..Row::default()
            },
            Row {
                promise: format!("{count} idle sandboxes, private memory of each"),
                goal: "1.5 MiB",
                measured: format!("{private:.2} MiB"),
                met: Some(private <= 1.5),
                ..Row::default()
            },
            Row {
                promise: format!("create → first output beside {count}, p50 / p99"),
                goal: "×1.5",
                measured: format!("{} (×{slower:.1})", times(create)),
                met: Some(slower <= 1.5),
                ..Row::default()
            },
        ]
    }

    /// How long it takes to keep files, and to start with them.
    fn snapshot_rows(&self) -> Vec<Row> {
        let Snapshots { take, restore } = &self.snapshots;
        vec![
            Row {
                promise: "snapshot of 10 MB changed, p50 / p99".to_owned(),
                goal: "30 ms",
                measured: times(take),
                met: Some(take.percentile(50) <= 30.0),
                ..Row::default()
            },
            Row {
                promise: "restore → first output, p50 / p99".to_owned(),
                goal: "12 ms",
                measured: times(restore),
                met: Some(restore.percentile(50) <= 12.0),
                floor: ratio(&self.create, restore.percentile(50)),
                ..Row::default()
            },
        ]
    }

    /// How long commands take.
    fn latency_rows(&self) -> Vec<Row> {
        let Daemon { argv, argv_floor, plain, plain_floor, shell, shell_floor, .. } = &self.daemon;
        let Daemon { first_byte, at_once, at_once_floor, .. } = &self.daemon;
        let shell_ratio = shell.percentile(50) / shell_floor.percentile(50);
        let crowd_ratio = at_once.percentile(50) / at_once_floor.percentile(50);
        vec![
            Row {
                promise: "argv `true` over execd's socket, p50 / p99".to_owned(),
                goal: "1 / 5 ms",
                measured: times(argv),
                met: Some(argv.percentile(50) <= 1.0 && argv.percentile(99) <= 5.0),
                floor: ratio(argv_floor, argv.percentile(50)),
                ..Row::default()
            },
            Row {
                promise: "`true` through server and gateway, p50 / p99".to_owned(),
                goal: "2 ms",
                measured: times(plain),
                met: Some(plain.percentile(50) <= 2.0),
                floor: ratio(plain_floor, plain.percentile(50)),
                ..Row::default()
            },
            Row {
                promise: "a shell's `:` through server and gateway, p50 / p99".to_owned(),
                goal: "2 ms, ×1.5",
                measured: times(shell),
                met: Some(shell.percentile(50) <= 2.0 && shell_ratio <= 1.5),
                floor: ratio(shell_floor, shell.percentile(50)),
                ..Row::default()
            },
            Row {
                promise: "output after the child wrote it, p50 / p99".to_owned(),
                goal: "1 ms",
                measured: times(first_byte),
                met: Some(first_byte.percentile(50) <= 1.0),
                ..Row::default()
            },
            Row {
                promise: format!("{AT_ONCE} commands at once in one sandbox"),
                goal: "×3",
                measured: format!("{:.0} ms", at_once.percentile(50)),
                met: Some(crowd_ratio <= 3.0),
                floor: ratio(at_once_floor, at_once.percentile(50)),
                ..Row::default()
            },
        ]
    }

    /// How fast bytes go through, and how much room that and the daemon itself take.
    fn size_rows(&self) -> Vec<Row> {
        let Daemon { transfer, own_growth, server_growth, idle, binary, writing_floor, .. } =
            &self.daemon;
        let (own_growth, server_growth) = (mebibytes(*own_growth), mebibytes(*server_growth));
        let (private, resident) = (mebibytes(idle.private), mebibytes(idle.resident));
        #[expect(clippy::cast_precision_loss, reason = "a program is far below 2^52 bytes")]
        let binary = *binary as f64 / 1e6;
        vec![
            Row {
                promise: "upload / download on loopback".to_owned(),
                goal: "500 MB/s",
                measured: format!("{} / {}", speed(transfer.upload), speed(transfer.download)),
                met: Some(transfer.upload >= 500e6 && transfer.download >= 500e6),
                floor: format!(
                    "{} bare file, {} bare TCP (×{:.1} / ×{:.1})",
                    speed(*writing_floor),
                    speed(self.loopback_floor),
                    self.loopback_floor.min(*writing_floor) / transfer.upload,
                    self.loopback_floor / transfer.download
                ),
                ..Row::default()
            },
            Row {
                promise: "more memory meanwhile, execd / server".to_owned(),
                goal: "8 MiB",
                measured: format!("{own_growth:.1} / {server_growth:.1} MiB"),
                met: Some(own_growth <= 8.0 && server_growth <= 8.0),
                ..Row::default()
            },
            Row {
                promise: "idle execd, private / resident".to_owned(),
                goal: "0.6 / 3 MiB",
                measured: format!("{private:.2} / {resident:.2} MiB"),
                met: Some(private <= 0.6 && resident <= 3.0),
                ..Row::default()
            },
            Row {
                promise: "execd as a file".to_owned(),
                goal: "5 MB",
                measured: format!("{binary:.2} MB"),
                met: Some(binary <= 5.0),
                ..Row::default()
            },
        ]
    }

    pub(crate) fn json(&self) -> Value {
        let Daemon { transfer, idle, .. } = &self.daemon;
        json!({
            "create_to_first_output": sample(&self.create),
            "created_at_once": { "count": self.crowd_size, "wall_ms": milliseconds(self.crowd) },
            "claim_to_first_output": sample(&self.warm),
            "remove": sample(&self.changes.remove),
            "pause": sample(&self.changes.pause),
            "resume": sample(&self.changes.resume),
            "idle_sandboxes": {
                "count": self.many.count,
                "private_bytes_each": self.many.private,
                "create_to_first_output": sample(&self.many.create),
            },
            "snapshot_of_10_mb": sample(&self.snapshots.take),
            "restore_to_first_output": sample(&self.snapshots.restore),
            "argv_over_socket": sample(&self.daemon.argv),
            "program_through_server": sample(&self.daemon.plain),
            "shell_through_server": sample(&self.daemon.shell),
            "output_after_write": sample(&self.daemon.first_byte),
            "commands_at_once": sample(&self.daemon.at_once),
            "upload_bytes_per_second": transfer.upload,
            "download_bytes_per_second": transfer.download,
            "transfer_growth_bytes": {
                "execd": self.daemon.own_growth,
                "server": self.daemon.server_growth,
            },
            "idle_execd_bytes": { "private": idle.private, "resident": idle.resident },
            "execd_file_bytes": self.daemon.binary,
            "network": self.network_json(),
            "images": images::json(&self.images),
            "code": code::json(&self.code),
            "plane": plane::json(&self.plane),
            "floor": {
                "namespaces": self.namespaces_floor.as_ref().map(sample),
                "process": sample(&self.daemon.argv_floor),
                "shell": sample(&self.daemon.shell_floor),
                "spawns_at_once": sample(&self.daemon.at_once_floor),
                "loopback_bytes_per_second": self.loopback_floor,
                "writing_bytes_per_second": self.daemon.writing_floor,
            },
            "docker_run": self.docker.as_ref().map(sample),
            "runc_run": self.runc.as_ref().map(sample),
        })
    }
}

fn sample(sample: &Sample) -> Value {
    json!({
        "count": sample.len(),
        "p50_ms": sample.percentile(50),
        "p99_ms": sample.percentile(99),
    })
}

/// What another program needs, and how much more that is.
fn beside(other: Option<&Sample>, ours: f64, absent: &str) -> String {
    other.map_or_else(
        || absent.to_owned(),
        |other| {
            let other = other.percentile(50);
            format!("{other:.0} ms (×{:.0})", other / ours)
        },
    )
}

fn times(sample: &Sample) -> String {
    format!("{:.2} / {:.2} ms", sample.percentile(50), sample.percentile(99))
}

fn ratio(floor: &Sample, value: f64) -> String {
    format!("{:.2} ms (×{:.1})", floor.percentile(50), value / floor.percentile(50))
}

fn speed(bytes: f64) -> String {
    format!("{:.0} MB/s", bytes / 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

/// The part of the table that is about code.
pub(crate) fn of_code(code: &Code) -> String {
    Table(code::rows(code)).to_string()
}

/// The part of the table that is about the server by itself.
pub(crate) fn of_plane(plane: &Plane) -> String {
    Table(plane::rows(plane)).to_string()
}

/// The part of the table that is about images.
pub(crate) fn of_images(images: &Images) -> String {
    Table(images::rows(images)).to_string()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Table(self.rows()).fmt(f)
    }
}

struct Table(Vec<Row>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["promise", "goal", "measured", "met", "floor", "docker run / runc run"];
        let rows = &self.0;
        let lines: Vec<[&str; 6]> =
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
    use super::{
        super::{measure::Transfer, memory::Weight, network::Both, proxies::Proxies},
        *,
    };

    #[test]
    fn the_table_has_a_row_for_every_promise_and_lines_up() {
        let sample = || Sample::new(vec![Duration::from_millis(4)]);
        let daemon = Daemon {
            argv: sample(),
            plain: sample(),
            shell: sample(),
            first_byte: sample(),
            at_once: sample(),
            transfer: Transfer { upload: 1e9, download: 2e9 },
            own_growth: 1 << 20,
            server_growth: 9 << 20,
            idle: Weight { private: 512 << 10, resident: 2 << 20 },
            binary: 4_000_000,
            argv_floor: sample(),
            plain_floor: sample(),
            shell_floor: sample(),
            at_once_floor: sample(),
            writing_floor: 3e9,
        };
        let both = || Both { inside: sample(), outside: sample() };
        let network = Network {
            connect: both(),
            receive: (1e9, 4e9),
            send: (5e8, 4e9),
            request: Some(both()),
            ask: sample(),
            replace: sample(),
            patch: sample(),
            memory: 100 << 10,
        };
        let report = Report {
            create: sample(),
            crowd_size: 100,
            crowd: Duration::from_millis(500),
            warm: sample(),
            changes: Changes { pause: sample(), resume: sample(), remove: sample() },
            many: Many { count: 1000, private: 1024 * 1024, create: sample() },
            snapshots: Snapshots { take: sample(), restore: sample() },
            daemon,
            network,
            images: Images {
                unpack: sample(),
                tar: sample(),
                one: sample(),
                forty: sample(),
                rebuild: sample(),
                pull: Some((sample(), sample())),
            },
            code: Code {
                warm: sample(),
                claim: sample(),
                cold: sample(),
                by_hand: sample(),
                first: sample(),
                command: sample(),
                output: 1e8,
                kernels: None,
            },
            plane: Plane {
                many: 1000,
                get: sample(),
                endpoint: sample(),
                resident: 50 << 20,
                restart: Duration::from_millis(900),
                proxies: Proxies {
                    direct: sample(),
                    gateway: sample(),
                    gateway_per_core: 4e4,
                    nginx: Some((sample(), 5e4)),
                },
                pretended: None,
            },
            namespaces_floor: None,
            loopback_floor: 4e9,
            docker: Some(Sample::new(vec![Duration::from_millis(400)])),
            runc: None,
        };
        let table = report.to_string();
        assert!(table.contains("400 ms (×100) / not here"), "{table}");
        assert!(table.contains("3000 MB/s bare file, 4000 MB/s bare TCP (×3.0 / ×2.0)"), "{table}");
        let missed: Vec<&str> = table.lines().filter(|line| line.contains("| NO ")).collect();
        assert_eq!(missed.len(), 10, "{missed:#?}");
        let widths: Vec<usize> =
            table.lines().filter(|line| line.starts_with('|')).map(|l| l.chars().count()).collect();
        assert_eq!(widths.len(), 45);
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}
