//! A daemon of Docker that is there for one test, and in nobody's way.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use osb_registry::Digest;
use osb_sys::{command::command, fs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{text, tree::Tree};

/// Where Debian's package has it.
const DAEMON: &str = "/usr/sbin/dockerd";

/// What `overlay2` cannot unpack: what one layer removes and makes anew is a mark of the overlay by then, in
/// which no file can be made.
pub(crate) const CANNOT: [&str; 2] = [".wh.again", "again/new"];

/// What `overlay2` has otherwise, since it unpacks every layer alone. A directory that is on the way to a file,
/// and in no entry of that layer, has what nobody said; and where a link of a layer below is on the way, there is a
/// directory instead. `vfs` unpacks into what is below, and so do we.
pub(crate) const ALONE: [&str; 13] = [
    ".",
    "./absolute",
    "./absolute/other.so",
    "./home",
    "./home/user",
    "./kept",
    "./lib",
    "./lib/new.so",
    "./noted",
    "./turned",
    "./usr",
    "./usr/lib/new.so",
    "./usr/lib/other.so",
];

/// What every driver has otherwise: a file with a capability and several names loses it when the next name is
/// made, since its owner is set again.
pub(crate) const LOST: [&str; 3] = ["./bin/ping", "./bin/ping6", "./sbin/ping"];

/// What every driver has, and no sandbox: devices.
pub(crate) const DEVICES: [&str; 2] = ["./null", "./sizes/1"];

/// What `vfs` has otherwise: it copies what is below without attributes that are not of the system's security.
pub(crate) const COPIED: [&str; 1] = ["./noted"];

/// What `vfs` has otherwise: a directory that is in no entry of any layer can be entered by root alone. `overlay2`
/// lets all enter it, and so do we.
pub(crate) fn unnamed() -> Vec<String> {
    let named = ["again", "bin", "gone", "kept/inner", "sbin"].map(str::to_owned);
    let long = (1..=60).map(|depth| vec!["long"; depth].join("/"));
    named.into_iter().chain(long).map(|path| format!("./{path}")).collect()
}

/// How long it may take to begin and to end on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Docker {
    daemon: Child,
    driver: &'static str,
    directory: PathBuf,
}

impl Docker {
    pub(crate) fn is_here() -> bool {
        Path::new(DAEMON).exists() && Path::new("/usr/bin/docker").exists()
    }

    /// Starts one that keeps images with this driver below a directory. Its mounts and its network are its own,
    /// and it sees nothing of what another one has in `/run`.
    pub(crate) fn start(directory: &Path, driver: &'static str) -> Self {
        fs::create_dir_all(directory).unwrap();
        // What the machine's own daemon is told is nothing for this one.
        fs::write(directory.join("daemon.json"), "{}").unwrap();
        let at = |name: &str| text(&directory.join(name)).to_owned();
        let mut daemon = command("/usr/bin/unshare");
        daemon.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", directory);
        daemon.args(["--mount", "--net", "/bin/sh", "-ec"]);
        daemon.args([r#"mount -t tmpfs tmpfs /run; exec "$@""#, "sh", DAEMON]);
        daemon.args(["--iptables=false", "--ip-forward=false", "--bridge=none"]);
        daemon.args(["--config-file", &at("daemon.json"), "--pidfile", &at("pid")]);
        daemon.args(["--data-root", &at("data"), "--exec-root", &at("exec")]);
        daemon.args(["--storage-driver", driver, "--host", &format!("unix://{}", at("socket"))]);
        daemon.stdin(Stdio::null()).stdout(Stdio::null());
        daemon.stderr(fs::create(directory.join("log"), 0o600).unwrap());
        let daemon = daemon.spawn().unwrap();
        let mut docker = Self { daemon, driver, directory: directory.to_owned() };
        docker.wait_until_it_answers();
        docker
    }

    fn wait_until_it_answers(&mut self) {
        let began = Instant::now();
        while self.ask(&["version"]).is_err() {
            let ended = self.daemon.try_wait().unwrap();
            let said = || fs::read_to_string(self.directory.join("log")).unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}\n{}", said());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// What a command printed, or what it complained about.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut docker = command("/usr/bin/docker");
        let socket = format!("unix://{}", text(&self.directory.join("socket")));
        docker.env("HOME", "/nonexistent").args(["--host", &socket]).args(arguments);
        let output = docker.output().unwrap();
        let lossy = |said: &[u8]| String::from_utf8_lossy(said).into_owned();
        if output.status.success() { Ok(lossy(&output.stdout)) } else { Err(lossy(&output.stderr)) }
    }

    pub(crate) fn load(&self, archive: &Path) {
        self.ask(&["load", "--input", text(archive)]).unwrap();
    }

    /// The files of an image as its containers see them.
    pub(crate) fn seen(&self, name: &str) -> Tree {
        let said = self.ask(&["image", "inspect", name]).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        match self.driver {
            "vfs" => Tree::of(&self.topmost(&said[0]["RootFS"]["Layers"])),
            _ => Tree::of_layers(&layers(&said[0]["GraphDriver"]["Data"])),
        }
    }

    /// Where `vfs` has a layer with all below it.
    fn topmost(&self, layers: &Value) -> PathBuf {
        let layers = layers.as_array().unwrap().iter().map(|layer| layer.as_str().unwrap());
        let chain = layers
            .map(str::to_owned)
            .reduce(|below, layer| Digest::of(format!("{below} {layer}").as_bytes()).to_string());
        let data = self.directory.join("data");
        let known = data.join("image/vfs/layerdb").join(chain.unwrap().replace(':', "/"));
        data.join("vfs/dir").join(fs::read_to_string(known.join("cache-id")).unwrap())
    }
}

/// Where `overlay2` has the layers of an image, topmost first.
fn layers(data: &Value) -> Vec<PathBuf> {
    let lower = data["LowerDir"].as_str().unwrap_or_default().split(':');
    let all = [data["UpperDir"].as_str().unwrap()].into_iter().chain(lower);
    all.filter(|layer| !layer.is_empty()).map(PathBuf::from).collect()
}

impl Drop for Docker {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.daemon);
        let _ = kill_process(pid, Signal::TERM);
        let began = Instant::now();
        while self.daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
            if began.elapsed() > PATIENCE {
                drop(self.daemon.kill());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
