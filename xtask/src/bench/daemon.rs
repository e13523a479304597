//! What the daemon inside a sandbox costs: its commands, its transfers, itself.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use osb_core::{Clock as _, SystemClock};
use tokio::task::JoinSet;

use super::{
    client::{Client, Direct, Sandbox},
    floor,
    measure::{Transfer, transfer},
    memory::{self, Process},
    sample::Sample,
    server::Server,
};

/// How many commands are sent at once.
pub(crate) const AT_ONCE: usize = 100;
/// How often that is repeated; the median counts.
const ROUNDS: usize = 9;
/// How long a daemon must have done nothing to be called idle.
const IDLE: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(crate) struct Daemon {
    /// `argv: ["true"]` over the socket of the daemon itself.
    pub(crate) argv: Sample,
    /// The command `true`, through server and gateway. It needs no shell.
    pub(crate) plain: Sample,
    /// The shell running `:`, which is no program, through server and gateway.
    pub(crate) shell: Sample,
    /// From the moment a program reads the clock to print it until the client has it.
    pub(crate) first_byte: Sample,
    pub(crate) at_once: Sample,
    pub(crate) transfer: Transfer,
    /// How far each process grew beyond what it had before, at its worst, in bytes.
    pub(crate) own_growth: u64,
    pub(crate) server_growth: u64,
    pub(crate) idle: memory::Weight,
    pub(crate) binary: u64,
    /// The same done by a plain program on the host.
    pub(crate) argv_floor: Sample,
    pub(crate) plain_floor: Sample,
    pub(crate) shell_floor: Sample,
    pub(crate) at_once_floor: Sample,
    pub(crate) writing_floor: f64,
}

impl Daemon {
    pub(crate) async fn measure(
        server: &Server,
        client: &Client,
        count: usize,
        mebibytes: usize,
    ) -> Result<Self> {
        let sandbox = client.create().await?;
        // All daemons run one program: where there is a single one, it has the pages for itself.
        let another = client.create().await?;
        let process = Process::of_daemon(&sandbox.id)?;
        tokio::time::sleep(IDLE).await;
        let idle = process.weigh()?;
        client.remove(&another.id).await?;
        let binary = process.binary()?;

        let socket = find(&server.data(), &sandbox.id)?;
        let mut direct = Direct::connect(&socket, &sandbox).await?;
        let (argv, argv_floor) = argv(&mut direct, count * 10).await?;
        let (plain, plain_floor) =
            text(client, &sandbox, "true", floor::process, count * 10).await?;
        let (shell, shell_floor) = text(client, &sandbox, ":", floor::shell, count * 10).await?;
        let first_byte = first_byte(client, &sandbox, count).await?;
        let at_once = at_once(client, &sandbox).await?;
        client.remove(&sandbox.id).await?;

        let sandbox = client.create().await?;
        let process = Process::of_daemon(&sandbox.id)?;
        // The first transfer pays for the buffers that later ones find.
        transfer(client, &sandbox, 1).await?;
        let writing_floor = floor::writing(&server.data(), mebibytes)?;
        let server = Process::new(server.id());
        let (daemon_before, server_before) = (process.begin_peak()?, server.begin_peak()?);
        let transfer = transfer(client, &sandbox, mebibytes).await?;
        let own_growth = process.peak()?.saturating_sub(daemon_before);
        let server_growth = server.peak()?.saturating_sub(server_before);
        client.remove(&sandbox.id).await?;

        Ok(Self {
            argv,
            plain,
            shell,
            first_byte,
            at_once,
            transfer,
            own_growth,
            server_growth,
            idle,
            binary,
            argv_floor,
            plain_floor,
            shell_floor,
            at_once_floor: spawns_at_once()?,
            writing_floor,
        })
    }
}

/// Times of a command, and of the same done by a plain program: in turn, so that whatever else the
/// machine does meanwhile is in both.
async fn argv(direct: &mut Direct, count: usize) -> Result<(Sample, Sample)> {
    let (mut times, mut floor) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let began = Instant::now();
        direct.run(&["true"]).await?;
        times.push(began.elapsed());
        floor.push(floor::process()?);
    }
    Ok((Sample::new(times), Sample::new(floor)))
}

async fn text(
    client: &Client,
    sandbox: &Sandbox,
    command: &str,
    alone: fn() -> Result<Duration>,
    count: usize,
) -> Result<(Sample, Sample)> {
    let (mut times, mut floor) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let began = Instant::now();
        client.run_until(sandbox, command, "execution_complete").await?;
        times.push(began.elapsed());
        floor.push(alone()?);
    }
    Ok((Sample::new(times), Sample::new(floor)))
}

/// The shell prints the time at which it prints; how late is it when it is here?
async fn first_byte(client: &Client, sandbox: &Sandbox, count: usize) -> Result<Sample> {
    let script = format!("for n in $(seq {count}); do echo $EPOCHREALTIME; sleep 0.005; done");
    let mut times = Vec::with_capacity(count);
    client
        .run_lines(sandbox, &script, |line| {
            let now = SystemClock.now().as_microsecond();
            // Seconds with six digits behind the point, or the comma of some other country.
            let digits: String = line.chars().filter(char::is_ascii_digit).collect();
            if let Ok(written) = digits.parse::<i64>() {
                times
                    .push(Duration::from_micros(now.saturating_sub(written).max(0).unsigned_abs()));
            }
        })
        .await?;
    ensure!(times.len() == count, "{} of {count} lines told their time", times.len());
    Ok(Sample::new(times))
}

async fn at_once(client: &Client, sandbox: &Sandbox) -> Result<Sample> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..=ROUNDS {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (client, sandbox) = (client.clone(), sandbox.clone());
            tasks.spawn(async move { client.run_argv(&sandbox, &["true"]).await });
        }
        for result in tasks.join_all().await {
            result?;
        }
        rounds.push(began.elapsed());
    }
    // The first round opens the connections.
    Ok(Sample::new(rounds.split_off(1)))
}

fn spawns_at_once() -> Result<Sample> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut children = Vec::with_capacity(AT_ONCE);
        for _ in 0..AT_ONCE {
            let mut command = osb_sys::command::command("/bin/true");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            children.push(command.spawn().context("cannot start /bin/true")?);
        }
        for mut child in children {
            ensure!(child.wait()?.success(), "/bin/true failed");
        }
        rounds.push(began.elapsed());
    }
    Ok(Sample::new(rounds))
}

/// The socket on which the daemon of a sandbox listens.
fn find(data: &Path, id: &str) -> Result<PathBuf> {
    let mut places = vec![data.to_owned()];
    while let Some(place) = places.pop() {
        let socket = place.join("execd.sock");
        if place.ends_with(id) && socket.exists() {
            return Ok(socket);
        }
        let depth = place.strip_prefix(data).map_or(0, |below| below.components().count());
        if depth < 3 {
            let entries = place.read_dir().into_iter().flatten().flatten();
            places.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    anyhow::bail!("there is no socket of {id} below {}", data.display())
}
