//! What it costs that everything a sandbox sends passes through the server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    client::{Client, Sandbox},
    hosts::{self, Hosts},
    measure::per_second,
    memory::Process,
    sample::Sample,
    server::Server,
};
use crate::checkout;

/// How often inside and outside take turns.
const ROUNDS: usize = 5;
/// How many rules the large policy has.
pub(crate) const RULES: usize = 1000;
/// How many sandboxes are made to see what each needs of the server's memory.
const CROWD: u64 = 200;
/// Where this program is put, and whom programs in a sandbox trust.
const PROBE: &str = "/tmp/probe";
const TRUSTED: &str = "$SSL_CERT_FILE";

/// The same, done in a sandbox and outside of one.
#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) inside: Sample,
    pub(crate) outside: Sample,
}

impl Both {
    /// What the sandbox adds to a percentile, in milliseconds.
    pub(crate) fn added(&self, percent: usize) -> f64 {
        self.inside.percentile(percent) - self.outside.percentile(percent)
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) connect: Both,
    /// Bytes a second to the sandbox and from it, inside and outside.
    pub(crate) receive: (f64, f64),
    pub(crate) send: (f64, f64),
    /// Absent where nobody can listen at the port of HTTPS.
    pub(crate) request: Option<Both>,
    pub(crate) ask: Sample,
    /// A policy with many rules: all of it replaced, and one rule added.
    pub(crate) replace: Sample,
    pub(crate) patch: Sample,
    /// Bytes of the server's memory for each sandbox with a policy.
    pub(crate) memory: u64,
}

impl Network {
    pub(crate) async fn measure(
        osb: &std::path::Path,
        count: usize,
        mebibytes: usize,
    ) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("osb-bench-hosts-").tempdir()?;
        let hosts = Hosts::start(place.path())?;
        let settings = format!(
            "[egress]\nresolvers = ['{}']\nallow-private = ['{}']\nnew-connections = 100000\n",
            hosts.resolver,
            hosts::ADDRESS,
        );
        let server = Server::start_trusting(osb, &settings, &hosts.authority).await?;
        let client = server.client();
        let measured = measure(&server, &client, &hosts, count, mebibytes).await;
        let removed = client.remove_all().await;
        server.stop()?;
        removed.and(measured)
    }
}

async fn measure(
    server: &Server,
    client: &Client,
    hosts: &Hosts,
    count: usize,
    mebibytes: usize,
) -> Result<Network> {
    let memory = memory(server, client).await?;
    let sandbox = client.create_with(&with_vault()).await?;
    let program = std::env::current_exe().context("this program has no file")?;
    client.upload_file(&sandbox, PROBE, osb_sys::fs::read(program)?.into()).await?;
    fill_vault(client, &sandbox).await?;
    let probe = Probe { client, sandbox: &sandbox };

    let connect = probe.both(hosts.greeter.port(), "connect", count).await?;
    let ask = probe.inside(hosts.greeter.port(), &format!("ask {count}")).await?;
    let receive = probe.speed(hosts.source.port(), "receive", mebibytes).await?;
    let send = probe.speed(hosts.sink.port(), "send", mebibytes).await?;
    let request = match hosts.tls {
        Some(at) => Some(probe.requests(at.port(), hosts, count).await?),
        None => None,
    };
    let (replace, patch) = changes(client, &sandbox.id, count).await?;
    Ok(Network { connect, receive, send, request, ask: Sample::new(ask), replace, patch, memory })
}

/// A sandbox that reaches the hosts alone, and gets credentials there.
fn with_vault() -> Value {
    json!({
        "image": { "uri": "host" },
        "networkPolicy": policy(0),
        "credentialProxy": { "enabled": true },
    })
}

/// The hosts are allowed after so many other rules.
fn policy(rules: usize) -> Value {
    let others = (0..rules).map(|number| format!("host-{number}.example.com"));
    let rules: Vec<Value> = others
        .chain([hosts::NAME.to_owned()])
        .map(|target| json!({ "action": "allow", "target": target }))
        .collect();
    json!({ "defaultAction": "deny", "egress": rules })
}

async fn fill_vault(client: &Client, sandbox: &Sandbox) -> Result<()> {
    let vault = json!({
        "credentials": [{ "name": "token", "source": { "type": "inline", "value": hosts::TOKEN } }],
        "bindings": [{
            "name": "host",
            "match": { "hosts": [hosts::NAME] },
            "auth": { "type": "bearer", "credential": "token" },
        }],
    });
    client.egress(&sandbox.id, "/credential-vault", &vault).await
}

/// How the server grows with each of many sandboxes.
async fn memory(server: &Server, client: &Client) -> Result<u64> {
    /// Those who come first pay for what all share.
    const FIRST: u64 = 20;
    let process = Process::new(server.id());
    let wanted = json!({ "image": { "uri": "host" }, "networkPolicy": policy(10) });
    let mut before = 0;
    for number in 0..FIRST + CROWD {
        if number == FIRST {
            before = process.weigh()?.private;
        }
        client.create_with(&wanted).await?;
    }
    let after = process.weigh()?.private;
    client.remove_all().await?;
    Ok(after.saturating_sub(before) / CROWD)
}

/// How long it takes until a policy of many rules is in force.
async fn changes(client: &Client, id: &str, count: usize) -> Result<(Sample, Sample)> {
    let (mut replace, mut patch) = (Vec::new(), Vec::new());
    for number in 0..count {
        // Another one each time.
        let large = policy(RULES - 1 - number % 2);
        let rule = json!([{ "action": "allow", "target": format!("new-{number}.example.com") }]);
        let began = Instant::now();
        client.change_policy(&hyper::Method::PUT, id, &large).await?;
        replace.push(began.elapsed());
        let began = Instant::now();
        client.change_policy(&hyper::Method::PATCH, id, &rule).await?;
        patch.push(began.elapsed());
    }
    Ok((Sample::new(replace), Sample::new(patch)))
}

/// This program, in a sandbox and here.
struct Probe<'a> {
    client: &'a Client,
    sandbox: &'a Sandbox,
}

impl Probe<'_> {
    async fn inside(&self, port: u16, what: &str) -> Result<Vec<Duration>> {
        let command = format!("{PROBE} probe {}:{port} {what} 2>&1", hosts::NAME);
        let mut said = String::new();
        let keep = |line: &str| {
            said.push_str(line);
            said.push('\n');
        };
        self.client.run_lines(self.sandbox, &command, keep).await?;
        times(&said).with_context(|| format!("{command} said {said}"))
    }

    fn outside(port: u16, what: &str) -> Result<Vec<Duration>> {
        let program = std::env::current_exe().context("this program has no file")?;
        let mut command = osb_sys::command::command(program);
        command.args(["probe", &format!("{}:{port}", hosts::ADDRESS)]);
        command.args(what.split(' '));
        times(&String::from_utf8(checkout::output(&mut command)?)?)
    }

    /// Some inside and some outside, in turn, so that whatever else the machine does is in both.
    async fn both(&self, port: u16, what: &str, count: usize) -> Result<Both> {
        let what = format!("{what} {}", count.div_ceil(ROUNDS));
        self.in_turn(port, &what, &what).await
    }

    async fn in_turn(&self, port: u16, inside: &str, outside: &str) -> Result<Both> {
        let (mut within, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            within.extend(self.inside(port, inside).await?);
            without.extend(Self::outside(port, outside)?);
        }
        Ok(Both { inside: Sample::new(within), outside: Sample::new(without) })
    }

    async fn requests(&self, port: u16, hosts: &Hosts, count: usize) -> Result<Both> {
        let (count, name) = (count.div_ceil(ROUNDS), hosts::NAME);
        let inside = format!("request {count} {name} {TRUSTED} none");
        let authority = hosts.authority.display();
        let outside = format!("request {count} {name} {authority} {}", hosts::TOKEN);
        self.in_turn(port, &inside, &outside).await
    }

    /// Bytes a second, inside and outside.
    async fn speed(&self, port: u16, what: &str, mebibytes: usize) -> Result<(f64, f64)> {
        let bytes = mebibytes * 1024 * 1024;
        let what = format!("{what} {bytes}");
        let Both { inside, outside } = self.in_turn(port, &what, &what).await?;
        let speed = |sample: &Sample| {
            per_second(bytes, Duration::from_secs_f64(sample.percentile(50) / 1e3))
        };
        Ok((speed(&inside), speed(&outside)))
    }
}

/// What a probe has printed.
fn times(said: &str) -> Result<Vec<Duration>> {
    said.lines().map(|line| Ok(Duration::from_nanos(line.trim().parse()?))).collect()
}
