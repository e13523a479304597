//! For tests: a real registry, Debian's `docker-registry`, on loopback.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use osb_core::testkit::required;
use osb_sys::{command::command, fs};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpStream;

use crate::{Guard, Login, Reference, RegistrySettings, Settings, Transport};

const PROGRAM: &str = "/usr/bin/docker-registry";
/// The user `me` with the password `secret`: the registry takes nothing but bcrypt.
const USERS: &str = "me:$2y$05$46OJC7bHr4BJvqRCNo9bN.HQdfeYUXp9mN6nm1ECw.E.mIde/ds1q\n";

/// Machines that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A registry that ends with this value.
#[derive(Debug)]
pub struct Registry {
    process: Child,
    directory: tempfile::TempDir,
    address: SocketAddr,
    /// Whom it is believed by, if it speaks TLS.
    pub ca: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Open,
    Login,
    TlsAndLogin,
}

impl Registry {
    /// `None` if this machine has none.
    pub async fn start(kind: Kind) -> Option<Self> {
        if !required("docker-registry", Path::new(PROGRAM).exists()) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // Somebody may take the port before the registry does.
        loop {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let (config, ca) = configure(path, address, kind);
            fs::write(path.join("config.yml"), config).unwrap();
            let mut process = command(PROGRAM)
                .args(["serve", "config.yml"])
                .current_dir(path)
                .stdout(fs::create(path.join(format!("log-{}", address.port())), 0o600).unwrap())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while process.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).await.is_ok() {
                    return Some(Self { process, directory, address, ca });
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// What it was asked so far, as it notes it: method, path and status.
    pub fn requests(&self) -> Vec<String> {
        let log = self.directory.path().join(format!("log-{}", self.address.port()));
        let log = fs::read_to_string(log).unwrap();
        // address - - [time] "GET /v2/ HTTP/1.1" 200 …
        let noted = log.lines().filter_map(|line| {
            let (_, rest) = line.split_once('"')?;
            let (request, rest) = rest.split_once(" HTTP/1.1\"")?;
            Some(format!("{request} {}", rest.split_whitespace().next()?))
        });
        noted.collect()
    }

    /// What an operator would write about it.
    pub fn settings(&self) -> Settings {
        let transport = match &self.ca {
            Some(ca) => Transport::Tls { ca: Some(ca.clone()) },
            None => Transport::Plain,
        };
        let registry = RegistrySettings { transport, ..RegistrySettings::default() };
        let registries = [(self.name(), registry)].into();
        Settings { registries, tries: 2, connect_timeout: PATIENCE, ..Settings::default() }
    }

    pub fn reference(&self, rest: &str) -> Reference {
        Reference::parse(&format!("{}/{rest}", self.name())).unwrap()
    }
}

/// Whom every registry here lets in that asks for a login.
pub fn login() -> Login {
    Login { username: "me".to_owned(), password: "secret".into() }
}

/// Here 127.0.0.1 is somewhere on the Internet, and all else is near.
pub fn guard() -> Guard {
    Guard::new(|address| address.to_string() == "127.0.0.1")
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn configure(path: &Path, address: SocketAddr, kind: Kind) -> (String, Option<String>) {
    let mut config = format!(
        "version: 0.1\nlog: {{level: error}}\n\
         storage:\n  filesystem: {{rootdirectory: {}}}\n",
        path.join("data").display()
    );
    if kind != Kind::Open {
        fs::write(path.join("users"), USERS).unwrap();
        config += "auth:\n  htpasswd: {realm: test, path: users}\n";
    }
    let http = format!("http:\n  addr: {address}\n  secret: for tests\n");
    config.push_str(&http);
    if kind != Kind::TlsAndLogin {
        return (config, None);
    }
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(path.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(path.join("key.pem"), key.serialize_pem()).unwrap();
    config += "  tls: {certificate: cert.pem, key: key.pem}\n";
    (config, Some(issuer.pem()))
}
