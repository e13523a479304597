//! The server by itself: what it takes to ask it something where there is much to know.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::{
    client::Client, life, memory::Process, proxies::Proxies, sample::Sample, server::Server,
};

/// How many sandboxes are pretended, and how many of them are on a page.
pub(crate) const PRETENDED: usize = 5000;
pub(crate) const PAGE: usize = 100;
/// How many ask for them at once.
const HANDS: usize = 16;

#[derive(Debug)]
pub(crate) struct Plane {
    /// How many sandboxes there were for the next four.
    pub(crate) many: usize,
    pub(crate) get: Sample,
    pub(crate) endpoint: Sample,
    /// Bytes of the server's memory.
    pub(crate) resident: u64,
    /// From the start of a new server, where one was killed, until it answers.
    pub(crate) restart: Duration,
    pub(crate) proxies: Proxies,
    /// What is measured where sandboxes are only pretended.
    pub(crate) pretended: Option<Pretended>,
}

#[derive(Debug)]
pub(crate) struct Pretended {
    pub(crate) creates_per_second: f64,
    pub(crate) list: Sample,
}

impl Plane {
    pub(crate) async fn measure(
        osb: &Path,
        pretend: Option<&Path>,
        count: usize,
        many: usize,
    ) -> Result<Self> {
        let mut server = Server::start(osb, "").await?;
        let client = server.client();
        let measured = beside_many(&mut server, osb, count, many).await;
        let removed = client.remove_all().await;
        server.stop()?;
        let plane = removed.and(measured)?;
        let pretended = match pretend {
            Some(pretend) => Some(Pretended::measure(pretend, count).await?),
            None => None,
        };
        Ok(Self { pretended, ..plane })
    }
}

async fn beside_many(server: &mut Server, osb: &Path, count: usize, many: usize) -> Result<Plane> {
    let client = server.client();
    let proxies = Proxies::measure(server, &client, count).await?;
    let ids = life::make(&client, many).await?;
    let (mut gets, mut endpoints) = (Vec::new(), Vec::new());
    for id in ids.iter().cycle().step_by(7).take(count) {
        let began = Instant::now();
        client.get(id).await?;
        gets.push(began.elapsed());
        let began = Instant::now();
        client.endpoint(id, 8000).await?;
        endpoints.push(began.elapsed());
    }
    let resident = Process::new(server.id()).weigh()?.resident;
    let restart = server.replace(osb).await?;
    ensure!(server.client().count().await? == ids.len(), "the new server has lost sandboxes");
    Ok(Plane {
        many: ids.len(),
        get: Sample::new(gets),
        endpoint: Sample::new(endpoints),
        resident,
        restart,
        proxies,
        pretended: None,
    })
}

impl Pretended {
    async fn measure(pretend: &Path, count: usize) -> Result<Self> {
        let server = Server::start(pretend, "").await?;
        let client = server.client();
        let measured = Self::ask(&client, count).await;
        server.stop()?;
        measured
    }

    async fn ask(client: &Client, count: usize) -> Result<Self> {
        let began = Instant::now();
        let mut hands = JoinSet::new();
        for hand in 0..HANDS {
            let client = client.clone();
            let share = PRETENDED / HANDS + usize::from(hand < PRETENDED % HANDS);
            hands.spawn(async move {
                for _ in 0..share {
                    client.make().await?;
                }
                anyhow::Ok(())
            });
        }
        for made in hands.join_all().await {
            made?;
        }
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let creates_per_second = PRETENDED as f64 / began.elapsed().as_secs_f64();
        let mut lists = Vec::with_capacity(count);
        for number in 0..count {
            let began = Instant::now();
            let found = client.page(number % (PRETENDED / PAGE) + 1, PAGE).await?;
            lists.push(began.elapsed());
            ensure!(found == PAGE, "{found} on a page of {PAGE}");
        }
        Ok(Self { creates_per_second, list: Sample::new(lists) })
    }
}
