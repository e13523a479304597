//! What becomes of sandboxes: claimed, paused, resumed, removed, and many.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::{client::Client, measure, memory, sample::Sample};

/// How many are made side by side where many are needed.
const HANDS: usize = 8;
/// How long making many may take; then there are fewer.
const LONGEST: Duration = Duration::from_mins(1);
/// How often creating is measured beside many.
const BESIDE_MANY: usize = 50;
/// How much memory must be free for each of many.
const ROOM: u64 = 4 << 20;
/// How long the pool may take to be full again.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a full pool is left in peace before somebody claims of it.
const SETTLING: Duration = Duration::from_millis(50);

/// From the request for a sandbox that waits in a pool to the first output of its first command.
pub(crate) async fn claim_to_output(client: &Client, count: usize) -> Result<Sample> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        settled(client).await?;
        let one = measure::create_to_output(client, 1).await?;
        times.extend(one.times());
    }
    ensure!(client.number("opensandbox_pool_misses_total").await? == 0, "not all were claimed");
    Ok(Sample::new(times))
}

/// Waits until the pool is full and at rest.
pub(crate) async fn settled(client: &Client) -> Result<()> {
    let began = Instant::now();
    while client.number("opensandbox_pool_ready").await?
        < client.number("opensandbox_pool_target").await?
    {
        ensure!(began.elapsed() < PATIENCE, "the pool does not fill");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The last one that was started is still at its first steps, beside which nobody claims.
    tokio::time::sleep(SETTLING).await;
    Ok(())
}

/// How long each request takes that changes a sandbox, until it is done.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) pause: Sample,
    pub(crate) resume: Sample,
    pub(crate) remove: Sample,
}

impl Changes {
    pub(crate) async fn measure(client: &Client, count: usize) -> Result<Self> {
        let (mut pauses, mut resumes, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let sandbox = client.create().await?;
            client.run_until(&sandbox, "true", "execution_complete").await?;
            let began = Instant::now();
            client.change(&sandbox.id, "pause").await?;
            pauses.push(began.elapsed());
            let began = Instant::now();
            client.change(&sandbox.id, "resume").await?;
            resumes.push(began.elapsed());
            let began = Instant::now();
            client.remove(&sandbox.id).await?;
            removals.push(began.elapsed());
        }
        Ok(Self {
            pause: Sample::new(pauses),
            resume: Sample::new(resumes),
            remove: Sample::new(removals),
        })
    }
}

/// Many idle sandboxes, and what it is like to make another one beside them.
#[derive(Debug)]
pub(crate) struct Many {
    pub(crate) count: usize,
    /// Bytes that each has for itself alone, on average.
    pub(crate) private: u64,
    pub(crate) create: Sample,
}

impl Many {
    pub(crate) async fn measure(client: &Client, wanted: usize) -> Result<Self> {
        let ids = make(client, wanted).await?;
        let private = memory::private(&ids)? / u64::try_from(ids.len().max(1))?;
        let create = measure::create_to_output(client, BESIDE_MANY).await?;
        client.remove_all().await?;
        Ok(Self { count: ids.len(), private, create })
    }
}

/// Makes so many sandboxes, as far as there is memory and time for them; returns their ids.
pub(crate) async fn make(client: &Client, wanted: usize) -> Result<Vec<String>> {
    let room = usize::try_from(memory::available()? / ROOM)?;
    let count = wanted.min(room).max(1);
    let deadline = Instant::now() + LONGEST;
    let mut hands = JoinSet::new();
    for hand in 0..HANDS {
        let client = client.clone();
        let share = count / HANDS + usize::from(hand < count % HANDS);
        hands.spawn(async move {
            let mut ids = Vec::with_capacity(share);
            while ids.len() < share && Instant::now() < deadline {
                ids.push(client.create().await?.id);
            }
            anyhow::Ok(ids)
        });
    }
    let mut ids = Vec::with_capacity(count);
    for made in hands.join_all().await {
        ids.extend(made?);
    }
    Ok(ids)
}
