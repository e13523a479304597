//! The programs that make root file systems from packages.

use std::{
    ffi::OsString,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use osb_sys::{command::command, fs};
use rustix::process::geteuid;
use tokio::task;

use super::{Distribution, Rootfs, Source, child::Running, place::Place};
use crate::{env::Environment, failure::Failure, progress::Progress};

/// Where programs are if `PATH` does not say.
const PLACES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What debootstrap leaves behind.
const LEFT_OUT: [&str; 4] =
    ["dev/*", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "var/log/bootstrap.log"];
/// How many of a program's last lines are told if it failed.
const TOLD: usize = 20;
/// How large what `apt-config` says may be.
const SETTINGS: usize = 1 << 20;

/// What to make.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) distribution: Distribution,
    pub(super) sources: Vec<Source>,
    /// Of apt, for as long as this takes.
    pub(super) settings: Vec<String>,
    pub(super) include: Vec<String>,
    pub(super) variant: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Mmdebstrap(PathBuf),
    Debootstrap(PathBuf),
}

impl Maker {
    /// The one that this machine has.
    pub(super) fn find(environment: &Environment) -> Result<Self, Failure> {
        Self::among(|name| find(name, environment), geteuid().is_root())
    }

    fn among(find: impl Fn(&str) -> Option<PathBuf>, is_root: bool) -> Result<Self, Failure> {
        if let Some(path) = find("mmdebstrap") {
            return Ok(Self::Mmdebstrap(path));
        }
        let missing = |text: &str| Failure::Machine {
            doing: "cannot make an image from packages",
            source: text.into(),
        };
        match find("debootstrap") {
            Some(path) if is_root => Ok(Self::Debootstrap(path)),
            Some(_) => Err(missing(
                "debootstrap works for root only, and mmdebstrap is not installed: \
                 apt-get install mmdebstrap uidmap",
            )),
            None => Err(missing(
                "neither mmdebstrap nor debootstrap is installed here: apt-get install mmdebstrap \
                 (and uidmap, if you are not root), or get the image with `osb image pull`",
            )),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Mmdebstrap(_) => "mmdebstrap",
            Self::Debootstrap(_) => "debootstrap",
        }
    }

    /// Makes it, and tells what is being done.
    pub(super) async fn make(
        &self,
        order: &Order,
        environment: &Environment,
        progress: &mut Progress<'_, '_>,
    ) -> Result<Rootfs, Failure> {
        match self {
            Self::Mmdebstrap(path) => {
                let mut command = plain(path, environment);
                command.args(order.mmdebstrap());
                run(command, self.name(), progress).await
            }
            Self::Debootstrap(path) => {
                let tar = find("tar", environment).ok_or_else(|| Failure::Machine {
                    doing: "cannot make an image from packages",
                    source: "tar is not installed here".into(),
                })?;
                let place = Place::make()?;
                // What it says goes to the standard output.
                let mut command = plain(Path::new("/bin/sh"), environment);
                command.args(["-c", "exec \"$@\" >&2", "sh"]).arg(path);
                command.args(order.debootstrap(place.path())?);
                drop(run(command, self.name(), progress).await?);
                order.finish(place.path())?;
                progress.stage("packing what was made");
                let mut command = plain(&tar, environment);
                command.args(["--create", "--one-file-system", "--numeric-owner", "--xattrs"]);
                command.arg("--xattrs-include=*");
                command.args(LEFT_OUT.map(|path| format!("--exclude=./{path}")));
                command.arg("--directory").arg(place.path()).arg(".");
                run(command, "tar", progress).await
            }
        }
    }
}

impl Order {
    fn mmdebstrap(&self) -> Vec<OsString> {
        let mut words = vec![
            "--mode=auto".to_owned(),
            "--format=tar".to_owned(),
            format!("--variant={}", self.variant),
        ];
        if !self.include().is_empty() {
            words.push(format!("--include={}", self.include().join(",")));
        }
        words.extend(self.settings.iter().map(|setting| format!("--aptopt={setting}")));
        for key in self.keys() {
            let (key, directory) = (key.display(), key.parent().unwrap_or(key).display());
            words.push(format!("--customize-hook=mkdir -p \"$1{directory}\""));
            words.push(format!("--customize-hook=upload {key} {key}"));
        }
        // What is about this machine is not about the image.
        words.push(
            "--customize-hook=rm -f \"$1/etc/apt/apt.conf.d/99mmdebstrap\" \"$1/etc/hostname\"; \
             : > \"$1/etc/resolv.conf\""
                .to_owned(),
        );
        words.extend([self.distribution.suite().to_owned(), "-".to_owned()]);
        words.extend(self.sources.iter().map(ToString::to_string));
        words.into_iter().map(OsString::from).collect()
    }

    fn debootstrap(&self, to: &Path) -> Result<Vec<OsString>, Failure> {
        let first = self.sources.first();
        let url = first.and_then(Source::url).ok_or_else(|| {
            Failure::Usage("debootstrap needs the URL of a mirror: --mirror http://…".to_owned())
        })?;
        let mut words = vec![format!("--variant={}", self.variant)];
        if !self.include().is_empty() {
            words.push(format!("--include={}", self.include().join(",")));
        }
        if let Some(key) = first.and_then(Source::signed_by) {
            words.push(format!("--keyring={}", key.display()));
        }
        words.push(self.distribution.suite().to_owned());
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.push(to.into());
        words.push(url.into());
        Ok(words)
    }

    /// What debootstrap leaves to others: where more packages come from, and what is not the image's.
    fn finish(&self, root: &Path) -> Result<(), Failure> {
        let apt = root.join("etc/apt");
        let mut text = String::new();
        for source in &self.sources {
            match source {
                Source::Url(url) => {
                    writeln!(text, "deb {url} {} main", self.distribution.suite())
                }
                Source::Line(_) | Source::Known(_) => writeln!(text, "{source}"),
            }
            .expect("writing to a string succeeds");
        }
        fs::write(apt.join("sources.list"), text)?;
        for key in self.keys() {
            let to = root.join(key.strip_prefix("/").unwrap_or(key));
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            fs::write(&to, fs::read(key)?)?;
        }
        fs::write(root.join("etc/resolv.conf"), "")?;
        fs::remove_file(root.join("etc/hostname"))?;
        Ok(())
    }

    /// Packages beyond the variant.
    fn include(&self) -> Vec<&str> {
        let mut include: Vec<_> = self.include.iter().map(String::as_str).collect();
        let is_https = |source: &Source| source.url().is_some_and(|url| url.starts_with("https:"));
        let certificates = "ca-certificates";
        // Otherwise nothing could ever be installed from there.
        if self.sources.iter().any(is_https) && !include.contains(&certificates) {
            include.push(certificates);
        }
        include
    }

    /// Keys that no package of the image brings.
    fn keys(&self) -> Vec<&Path> {
        let keys = self.sources.iter().filter_map(Source::signed_by);
        let mut keys: Vec<_> = keys.filter(|key| !key.starts_with("/usr/share/keyrings")).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// How apt of this machine reaches the network: proxies, certificates, logins.
pub(super) fn settings(environment: &Environment) -> Vec<String> {
    let Some(program) = find("apt-config", environment) else { return Vec::new() };
    let Ok(said) = plain(&program, environment).arg("dump").output() else { return Vec::new() };
    let text = said.stdout.get(..SETTINGS).unwrap_or(&said.stdout);
    let mut settings = chosen(&String::from_utf8_lossy(text));
    for (path, name) in [("/etc/apt/auth.conf", "netrc"), ("/etc/apt/auth.conf.d", "netrcparts")] {
        if Path::new(path).exists() {
            settings.push(format!("Dir::Etc::{name} \"{path}\""));
        }
    }
    settings
}

/// Those of what `apt-config dump` prints that are about the network.
fn chosen(text: &str) -> Vec<String> {
    let is_ours = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        let names = ["acquire::http::", "acquire::https::", "acquire::retries"];
        names.iter().any(|name| lower.starts_with(name)) && !line.ends_with(" \"\"")
    };
    let lines = text.lines().map(|line| line.trim().trim_end_matches(';'));
    lines.filter(is_ours).map(ToOwned::to_owned).collect()
}

fn find(name: &str, environment: &Environment) -> Option<PathBuf> {
    let path = environment.path.clone().unwrap_or_default();
    let places = std::env::split_paths(&path).chain(std::env::split_paths(PLACES));
    let mut found = places.map(|place| place.join(name));
    found.find(|path| path.is_absolute() && path.is_file())
}

/// A command with what programs need to know.
fn plain(program: &Path, environment: &Environment) -> Command {
    let mut command = command(program);
    let own = environment.path.clone().unwrap_or_default();
    let places = std::env::split_paths(&own).chain(std::env::split_paths(PLACES));
    command.env("PATH", std::env::join_paths(places).unwrap_or_else(|_| PLACES.into()));
    command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    for (name, value) in [("HOME", &environment.home), ("TMPDIR", &environment.temporary)] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.envs(environment.proxies.iter().map(|(name, value)| (*name, value)));
    command
}

/// Runs a program to its end, and keeps what it writes as a root file system.
async fn run(
    command: Command,
    name: &'static str,
    progress: &mut Progress<'_, '_>,
) -> Result<Rootfs, Failure> {
    let doing = "cannot make an image from packages";
    let wrong = |source: io::Error| Failure::Machine { doing, source: source.into() };
    let (running, mut lines, stdout) = Running::start(command).map_err(wrong)?;
    let packing = task::spawn_blocking(move || Rootfs::pack(stdout));
    let mut last = std::collections::VecDeque::new();
    while let Some(line) = lines.recv().await {
        let line = line.trim_end();
        match told(line) {
            Told::Stage(text) => progress.stage(text),
            Told::Status(text) => progress.status(text),
            Told::Nothing => {}
        }
        if last.len() >= TOLD {
            last.pop_front();
        }
        last.push_back(crate::table::clean(line));
    }
    let packed = packing.await.map_err(|error| wrong(io::Error::other(error)))?;
    let ended = running.wait().map_err(wrong)?;
    if !ended.success() {
        let said = last.into_iter().collect::<Vec<_>>().join("\n  ");
        return Err(wrong(io::Error::other(format!("{name} ended with {ended}:\n  {said}"))));
    }
    packed.map_err(wrong)
}

/// What is to be told of a line that a program said.
#[derive(Debug, PartialEq, Eq)]
enum Told<'a> {
    Stage(&'a str),
    Status(&'a str),
    Nothing,
}

fn told(line: &str) -> Told<'_> {
    const STAGES: [&str; 5] =
        ["running apt-get", "downloading", "extracting", "installing", "creating"];
    let text = line.trim().trim_start_matches("I: ").trim_end_matches('.');
    if STAGES.iter().any(|stage| text.starts_with(stage)) {
        Told::Stage(text)
    } else if text.is_empty() || text.starts_with(|first: char| first.is_ascii_lowercase()) {
        // How mmdebstrap goes about it.
        Told::Nothing
    } else {
        Told::Status(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sources: &[&str]) -> Order {
        Order {
            distribution: Distribution::parse("debian:bookworm").unwrap(),
            sources: sources.iter().map(|source| source.parse().unwrap()).collect(),
            settings: vec!["Acquire::http::Proxy \"http://p:1\"".to_owned()],
            include: vec!["curl".to_owned()],
            variant: "minbase".to_owned(),
        }
    }

    #[test]
    fn without_a_program_one_hears_how_to_get_it() {
        let among = |names: &'static [&'static str], is_root| {
            let find = |name: &str| names.contains(&name).then(|| Path::new("/usr/bin").join(name));
            Maker::among(find, is_root)
        };
        let both = ["mmdebstrap", "debootstrap"].as_slice();
        assert_eq!(among(both, false).unwrap().name(), "mmdebstrap");
        assert_eq!(among(&["debootstrap"], true).unwrap().name(), "debootstrap");
        for (names, is_root) in [(&["debootstrap"][..], false), (&[], true)] {
            let report = among(names, is_root).unwrap_err().report().unwrap();
            assert!(report.contains("apt-get install mmdebstrap"), "{report}");
        }
    }

    #[test]
    fn the_image_learns_nothing_of_the_machine() {
        let words = order(&["https://m.example/debian"]).mmdebstrap();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert!(words.contains(&"--include=curl,ca-certificates"), "{words:?}");
        assert!(words.contains(&"--aptopt=Acquire::http::Proxy \"http://p:1\""), "{words:?}");
        assert!(words.iter().any(|word| word.contains("99mmdebstrap")), "{words:?}");
        assert_eq!(words[words.len() - 3..], ["bookworm", "-", "https://m.example/debian"]);
    }

    #[test]
    fn the_older_program_takes_one_mirror() {
        let order = order(&["deb [trusted=yes] http://m.example/debian bookworm main"]);
        let words = order.debootstrap(Path::new("/x")).unwrap();
        let expected =
            ["--variant=minbase", "--include=curl", "bookworm", "/x", "http://m.example/debian"];
        assert_eq!(words, expected.map(OsString::from));
    }

    #[test]
    fn of_what_programs_say_the_stages_matter() {
        assert_eq!(
            told("I: installing essential packages..."),
            Told::Stage("installing essential packages")
        );
        assert_eq!(told("I: using /tmp/x as tempdir"), Told::Nothing);
        assert_eq!(told("I: Retrieving libc6 2.36"), Told::Status("Retrieving libc6 2.36"));
        assert_eq!(told("E: no such suite"), Told::Status("E: no such suite"));
    }

    #[test]
    fn only_what_is_about_the_network_is_taken_over() {
        let dump = "APT::Architecture \"amd64\";\nAcquire \"\";\nAcquire::http \"\";\n\
                    Acquire::http::Proxy \"http://p:1\";\nAcquire::https::CaInfo \"/x.pem\";\n\
                    Acquire::https::Proxy \"\";\nAcquire::Languages \"none\";\n\
                    DPkg::Post-Invoke:: \"rm -f /x\";\nAcquire::Retries \"3\";\n";
        assert_eq!(
            chosen(dump),
            [
                "Acquire::http::Proxy \"http://p:1\"",
                "Acquire::https::CaInfo \"/x.pem\"",
                "Acquire::Retries \"3\"",
            ]
        );
    }
}
