use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
};

use osb_sys::{fs, identity::Identity, scope};
use serde_json::json;
use uuid::Uuid;

use super::message::Key;
use crate::{daemon::Daemon, driven::Birth};

/// Where connection files are, unless `TMPDIR` says otherwise.
const PLACE: &str = "/tmp";

/// How a kernel is to be spoken to, which it reads in a file that nobody else can read. The file
/// goes with this value.
#[derive(Debug)]
pub(super) struct Connection {
    directory: PathBuf,
    /// Whose file it is, if not of this process.
    owner: Option<Identity>,
    pub(super) ports: Ports,
    pub(super) key: Key,
}

/// On loopback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) shell: u16,
    pub(super) control: u16,
    pub(super) iopub: u16,
    stdin: u16,
    heartbeat: u16,
}

impl Connection {
    /// Thinks of one, and writes it down for whoever the programs of the sandbox run as.
    pub(super) fn make(daemon: &Daemon, birth: &Birth) -> io::Result<Self> {
        let place = birth.env.get(std::ffi::OsStr::new("TMPDIR")).map(PathBuf::from);
        let place = place.filter(|place| place.is_dir()).unwrap_or_else(|| PLACE.into());
        let directory = place.join(format!("kernel-{}", Uuid::new_v4().simple()));
        let owner = daemon.environment.user().cloned();
        let connection = Self { directory, owner, ports: Ports::free()?, key: Key::random() };
        let content = connection.content();
        let write = || {
            fs::create_private_dir_all(&connection.directory)?;
            fs::write_whole(connection.file(), content.as_bytes(), 0o600)
        };
        daemon.environment.as_owner(write)?.map_err(io::Error::other)?;
        Ok(connection)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.directory.join("connection.json")
    }

    fn content(&self) -> String {
        let Ports { shell, control, iopub, stdin, heartbeat } = self.ports;
        let content = json!({
            "transport": "tcp",
            "ip": "127.0.0.1",
            "shell_port": shell,
            "control_port": control,
            "iopub_port": iopub,
            "stdin_port": stdin,
            "hb_port": heartbeat,
            "signature_scheme": "hmac-sha256",
            "key": self.key.as_str(),
            "kernel_name": "",
        });
        content.to_string()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (file, directory) = (self.file(), std::mem::take(&mut self.directory));
        let owner = self.owner.take();
        // No more than its owner could, who may have put something else in its place.
        let remove = move || match owner {
            Some(owner) => scope::owning(&owner, || remove(&file, &directory)).unwrap_or(()),
            None => remove(&file, &directory),
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// What is left of it does no harm.
fn remove(file: &Path, directory: &Path) {
    fs::remove_file(file).ok();
    fs::remove_empty_dir(directory).ok();
}

impl Ports {
    /// Such as nobody listens on at this moment. Somebody may be faster than the kernel, which then
    /// does not start.
    fn free() -> io::Result<Self> {
        let mut held = Vec::new();
        let mut next = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            held.push(listener);
            io::Result::Ok(port)
        };
        Ok(Self {
            shell: next()?,
            control: next()?,
            iopub: next()?,
            stdin: next()?,
            heartbeat: next()?,
        })
    }
}
