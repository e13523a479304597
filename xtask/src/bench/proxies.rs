//! Requests into a sandbox through the gateway, beside the same through nginx to the same program
//! outside of one.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    asker::Asker,
    client::{Client, Sandbox},
    hosts,
    memory::Process,
    sample::Sample,
    server::Server,
};
use crate::checkout::tool;

/// Where the program listens in its sandbox.
const PORT: u16 = 8000;
const PROBE: &str = "/tmp/probe";
/// How many connections ask at once, and for how long.
const CONNECTIONS: usize = 8;
const WHILE: Duration = Duration::from_secs(2);
/// How often the ways take turns.
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Proxies {
    pub(crate) direct: Sample,
    pub(crate) gateway: Sample,
    /// Requests for each second of a processor that the one in between has used.
    pub(crate) gateway_per_core: f64,
    /// The same for nginx, where it is installed.
    pub(crate) nginx: Option<(Sample, f64)>,
}

impl Proxies {
    pub(crate) async fn measure(server: &Server, client: &Client, count: usize) -> Result<Self> {
        let sandbox = client.create().await?;
        let program = std::env::current_exe().context("this program has no file")?;
        client.upload_file(&sandbox, PROBE, osb_sys::fs::read(program)?.into()).await?;
        let command = format!("setsid {PROBE} probe 127.0.0.1:{PORT} answer >/dev/null 2>&1 &");
        client.run_until(&sandbox, &command, "execution_complete").await?;
        let backend = hosts::answer(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)?;
        let nginx = Nginx::start(backend)?;
        let ways = Ways { server, sandbox: &sandbox, backend, nginx: nginx.as_ref() };
        let measured = ways.measure(count);
        client.remove(&sandbox.id).await?;
        measured
    }
}

/// The same program, reached in three ways.
struct Ways<'a> {
    server: &'a Server,
    sandbox: &'a Sandbox,
    backend: SocketAddr,
    nginx: Option<&'a Nginx>,
}

/// One of them: where to connect, and what to say.
#[derive(Clone)]
struct Way {
    to: SocketAddr,
    request: String,
    /// Who is in between, if anybody is.
    through: Option<u32>,
}

impl Ways<'_> {
    fn measure(&self, count: usize) -> Result<Proxies> {
        let plain = |to, through| Way {
            to,
            request: "GET /things HTTP/1.1\r\nhost: bench\r\n\r\n".to_owned(),
            through,
        };
        let direct = plain(self.backend, None);
        let gateway = Way {
            to: self.server.address(),
            request: self.sandbox.request(PORT, "/things"),
            through: Some(self.server.id()),
        };
        let nginx = self.nginx.map(|nginx| plain(nginx.address, Some(nginx.process.id())));
        let all = [Some(&direct), Some(&gateway), nginx.as_ref()];
        for way in all.into_iter().flatten() {
            way.wait()?;
        }
        // In turn, so that whatever else the machine does is in all of them.
        let mut times = all.map(|_| Vec::new());
        let mut rates = all.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for ((way, times), rates) in all.iter().zip(&mut times).zip(&mut rates) {
                if let Some(way) = way {
                    times.extend(way.one_by_one(count.div_ceil(ROUNDS))?);
                    rates.push(way.at_once()?);
                }
            }
        }
        let middle = |mut rates: Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let [direct, gateway, by_nginx] = times.map(Sample::new);
        let [_, gateway_per_core, nginx_per_core] = rates.map(middle);
        let nginx = nginx.map(|_| (by_nginx, nginx_per_core));
        Ok(Proxies { direct, gateway, gateway_per_core, nginx })
    }
}

impl Way {
    fn open(&self) -> Result<Asker<TcpStream>> {
        let stream = TcpStream::connect(self.to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Asker::new(stream, self.request.clone()))
    }

    /// Waits until somebody answers.
    fn wait(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.open().and_then(|mut asker| asker.ask()) {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn one_by_one(&self, count: usize) -> Result<Vec<Duration>> {
        let mut asker = self.open()?;
        asker.ask()?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            asker.ask()?;
            times.push(began.elapsed());
        }
        Ok(times)
    }

    /// Asks on many connections at once; returns how many requests were answered for each second of
    /// a processor that the one in between used.
    fn at_once(&self) -> Result<f64> {
        let Some(process) = self.through.map(Process::new) else { return Ok(f64::NAN) };
        let over = AtomicBool::new(false);
        let before = process.processor_time()?;
        let answered: Result<usize> = thread::scope(|scope| {
            let ask = || {
                let mut asker = self.open()?;
                let mut answered = 0;
                while !over.load(Ordering::Relaxed) {
                    asker.ask()?;
                    answered += 1;
                }
                anyhow::Ok(answered)
            };
            let askers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
            thread::sleep(WHILE);
            over.store(true, Ordering::Relaxed);
            let counts = askers.into_iter().map(|asker| asker.join().expect("it does not panic"));
            counts.sum()
        });
        let used = process.processor_time()?.saturating_sub(before);
        ensure!(!used.is_zero(), "nobody was in between");
        #[expect(clippy::cast_precision_loss, reason = "they are few")]
        let answered = answered? as f64;
        Ok(answered / used.as_secs_f64())
    }
}

/// nginx as one process that passes everything on to one address on kept connections.
struct Nginx {
    process: Child,
    address: SocketAddr,
    /// Where its settings are, until it has ended.
    _place: tempfile::TempDir,
}

impl Nginx {
    /// Nothing where it is not installed.
    fn start(backend: SocketAddr) -> Result<Option<Self>> {
        let is_there =
            tool("nginx").arg("-v").stderr(Stdio::null()).status().is_ok_and(|it| it.success());
        if !is_there {
            return Ok(None);
        }
        let place = tempfile::Builder::new().prefix("osb-bench-nginx-").tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let settings = place.path().join("nginx.conf");
        std::fs::File::create(&settings)?
            .write_all(settings_for(place.path(), address, backend).as_bytes())?;
        let process = tool("nginx").arg("-c").arg(&settings).stderr(Stdio::null()).spawn()?;
        Ok(Some(Self { process, address, _place: place }))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The only failure is that it has ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn settings_for(place: &Path, address: SocketAddr, backend: SocketAddr) -> String {
    let place = place.display();
    format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
           access_log off; client_body_temp_path {place}/a; proxy_temp_path {place}/b;\n\
           fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;\n\
           keepalive_requests 1000000000;\n\
           upstream backend {{ server {backend}; keepalive 32; keepalive_requests 1000000000; }}\n\
           server {{\n\
             listen {address};\n\
             location / {{\n\
               proxy_pass http://backend; proxy_http_version 1.1;\n\
               proxy_set_header Connection \"\"; proxy_buffering off;\n\
             }}\n\
           }}\n\
         }}\n"
    )
}
