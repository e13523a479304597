//! Where this machine gets its packages.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use osb_registry::Platform;
use osb_sys::fs;

use super::distribution::{Distribution, Kind};
use crate::failure::Failure;

/// What is read of all files together.
const MOST_FILES: usize = 256;

/// Where packages come from, as a line of sources.list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Whatever the release needs is there.
    Url(String),
    /// As it was written.
    Line(String),
    Known(Known),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    url: String,
    suite: String,
    components: Vec<String>,
    signed_by: Option<PathBuf>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains(['\n', '\0']) {
            return Err("it should be one line".to_owned());
        }
        if text.starts_with("deb ") {
            Ok(Self::Line(text.to_owned()))
        } else if is_url(text) {
            Ok(Self::Url(text.to_owned()))
        } else {
            Err("it should look like http://mirror.example/debian, or like a line of sources.list \
                 that begins with `deb `"
                .to_owned())
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) | Self::Line(text) => f.write_str(text),
            Self::Known(Known { url, suite, components, signed_by }) => {
                f.write_str("deb ")?;
                if let Some(key) = signed_by {
                    write!(f, "[signed-by={}] ", key.display())?;
                }
                write!(f, "{url} {suite} {}", components.join(" "))
            }
        }
    }
}

impl Source {
    /// The address alone, for programs that take no more.
    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Self::Url(url) | Self::Known(Known { url, .. }) => Some(url),
            Self::Line(line) => line.split_whitespace().find(|word| is_url(word)),
        }
    }

    /// The file with the keys that it is signed with, if it says one.
    pub(super) fn signed_by(&self) -> Option<&Path> {
        match self {
            Self::Known(Known { signed_by, .. }) => signed_by.as_deref(),
            Self::Url(_) | Self::Line(_) => None,
        }
    }
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
}

/// A path that can be written down anywhere without quotes.
fn is_plain(path: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    path.starts_with('/') && !path.contains("..") && path.bytes().all(is_fine)
}

/// The settings of a machine.
#[derive(Debug, Default)]
pub(super) struct Apt {
    /// What it is, as `/etc/os-release` says.
    id: String,
    codename: String,
    sources: Vec<Known>,
    /// The file with the keys of a distribution is there.
    has_keys: Vec<&'static str>,
}

impl Apt {
    pub(super) fn of_this_machine() -> Self {
        let keyrings = [Kind::Debian, Kind::Ubuntu].map(|kind| kind.keyring().0);
        Self {
            has_keys: keyrings.into_iter().filter(|path| Path::new(path).exists()).collect(),
            ..Self::read(Path::new("/etc"))
        }
    }

    fn read(etc: &Path) -> Self {
        let release = fs::read_to_string(etc.join("os-release")).unwrap_or_default();
        let of = |key: &str| {
            let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches('"').to_owned()
        };
        let apt = etc.join("apt");
        let mut sources = Vec::new();
        let parts = apt.join("sources.list.d");
        let mut names = fs::names(&parts).unwrap_or_default();
        names.sort_unstable();
        names.truncate(MOST_FILES);
        let files = names.iter().map(|name| parts.join(name));
        for file in [apt.join("sources.list")].into_iter().chain(files) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => sources.extend(text.lines().filter_map(line)),
                Some("sources") => sources.extend(stanzas(&text)),
                _ => {}
            }
        }
        let sources = sources.into_iter().flatten().collect();
        Self { id: of("ID"), codename: of("VERSION_CODENAME"), sources, has_keys: Vec::new() }
    }

    /// Where this machine would get packages of the distribution from; or else its archive.
    pub(super) fn sources(&self, wanted: &Distribution) -> Result<Vec<Source>, Failure> {
        let mut found = Vec::new();
        if self.id == wanted.kind().id() && !self.codename.is_empty() {
            found.extend(self.sources.iter().filter_map(|known| self.moved(known, wanted)));
        }
        // Whatever has only updates has nothing to begin with.
        let is_whole = found.iter().any(|known| known.suite == wanted.suite());
        if is_whole {
            return Ok(found.into_iter().map(Source::Known).collect());
        }
        let (keyring, package) = wanted.kind().keyring();
        if !self.has_keys.contains(&keyring) {
            return Err(Failure::Usage(format!(
                "this machine does not have the keys of {}: apt-get install {package}, or say with \
                 --mirror where packages come from",
                wanted.kind().id()
            )));
        }
        Ok(archive(wanted))
    }

    /// The same source for another release.
    fn moved(&self, known: &Known, wanted: &Distribution) -> Option<Known> {
        let rest = known.suite.strip_prefix(&self.codename)?;
        let is_known = ["", "-updates", "-security", "/updates"].contains(&rest);
        if !is_known || (wanted.is_rolling() && !rest.is_empty()) {
            return None;
        }
        let offered = wanted.kind().components().iter().map(|name| (*name).to_owned());
        let components: Vec<_> = offered.filter(|name| known.components.contains(name)).collect();
        let suite = format!("{}{rest}", wanted.suite());
        (!components.is_empty()).then(|| Known { suite, components, ..known.clone() })
    }
}

/// Where everybody gets packages from.
fn archive(wanted: &Distribution) -> Vec<Source> {
    let (keyring, _) = wanted.kind().keyring();
    let has_ports = Platform::host().architecture != "amd64";
    let (main, security) = match wanted.kind() {
        Kind::Debian => ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security"),
        Kind::Ubuntu if has_ports => {
            ("http://ports.ubuntu.com/ubuntu-ports", "http://ports.ubuntu.com/ubuntu-ports")
        }
        Kind::Ubuntu => ("http://archive.ubuntu.com/ubuntu", "http://security.ubuntu.com/ubuntu"),
    };
    let of = |url: &str, rest: &str| {
        Source::Known(Known {
            url: url.to_owned(),
            suite: format!("{}{rest}", wanted.suite()),
            components: wanted.kind().components().iter().map(|name| (*name).to_owned()).collect(),
            signed_by: Some(keyring.into()),
        })
    };
    if wanted.is_rolling() {
        return vec![of(main, "")];
    }
    vec![of(main, ""), of(main, "-updates"), of(security, "-security")]
}

/// `deb [signed-by=/x] http://… bookworm main contrib`
fn line(text: &str) -> Option<Vec<Known>> {
    let text = text.split('#').next()?.trim();
    let rest = text.strip_prefix("deb")?.strip_prefix(char::is_whitespace)?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    let mut words = rest.split_whitespace().map(ToOwned::to_owned);
    let (url, suite) = (words.next()?, words.next()?);
    known(&[url], &[suite], &words.collect::<Vec<_>>(), signed_by)
}

/// The paragraphs of a file with fields.
fn stanzas(text: &str) -> Vec<Vec<Known>> {
    let mut all = Vec::new();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        let mut last = String::new();
        for line in stanza {
            if line.starts_with([' ', '\t']) {
                let value = fields.entry(last.clone()).or_default();
                value.push(' ');
                value.push_str(line.trim());
            } else if let Some((key, value)) = line.split_once(':') {
                last = key.trim().to_ascii_lowercase();
                fields.insert(last.clone(), value.trim().to_owned());
            }
        }
        let words = |key: &str| -> Vec<String> {
            let value = fields.get(key).map(String::as_str).unwrap_or_default();
            value.split_whitespace().map(ToOwned::to_owned).collect()
        };
        let is_off = fields.get("enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
        if is_off || !words("types").iter().any(|kind| kind == "deb") {
            continue;
        }
        let signed_by = fields.get("signed-by").map(String::as_str);
        all.extend(known(&words("uris"), &words("suites"), &words("components"), signed_by));
    }
    all
}

/// Each address with each suite. What is signed with a key that is not in a file is left out: nobody
/// else could check it.
fn known(
    urls: &[String],
    suites: &[String],
    components: &[String],
    signed_by: Option<&str>,
) -> Option<Vec<Known>> {
    if signed_by.is_some_and(|path| !is_plain(path)) {
        return None;
    }
    let mut all = Vec::new();
    for url in urls.iter().filter(|url| is_url(url)) {
        for suite in suites {
            all.push(Known {
                url: url.clone(),
                suite: suite.clone(),
                components: components.to_vec(),
                signed_by: signed_by.map(PathBuf::from),
            });
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(release: &str, files: &[(&str, &str)]) -> Apt {
        let etc = tempfile::tempdir().unwrap();
        fs::create_dir_all(etc.path().join("apt/sources.list.d")).unwrap();
        fs::write(etc.path().join("os-release"), release).unwrap();
        for (name, content) in files {
            fs::write(etc.path().join("apt").join(name), content).unwrap();
        }
        let has_keys = vec![Kind::Debian.keyring().0];
        Apt { has_keys, ..Apt::read(etc.path()) }
    }

    const BOOKWORM: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";
    const COMPANY: &str = "\
        Types: deb deb-src\n# why\nURIs: https://mirror.corp.example/debian\n\
        Suites: bookworm bookworm-updates\nComponents: main contrib\n\
        Signed-By: /etc/apt/keyrings/corp.gpg\n\n\
        Types: deb\nURIs: https://mirror.corp.example/security\nSuites:\n bookworm-security\n\
        Components: main\n\nEnabled: no\nTypes: deb\nURIs: http://off.example\nSuites: bookworm\n\
        Components: main\n";

    fn lines(apt: &Apt, name: &str) -> Vec<String> {
        let wanted = Distribution::parse(name).unwrap();
        apt.sources(&wanted).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn packages_come_from_where_the_machine_gets_its_own() {
        let node = "deb [signed-by=/x.gpg] https://deb.example/node nodistro main\n";
        let files = [("sources.list.d/a.sources", COMPANY), ("sources.list.d/b.list", node)];
        let apt = machine(BOOKWORM, &files);
        let corp = "deb [signed-by=/etc/apt/keyrings/corp.gpg] https://mirror.corp.example/debian";
        assert_eq!(
            lines(&apt, "debian:bookworm"),
            [
                format!("{corp} bookworm main"),
                format!("{corp} bookworm-updates main"),
                "deb https://mirror.corp.example/security bookworm-security main".to_owned(),
            ]
        );
        assert_eq!(lines(&apt, "debian:trixie")[1], format!("{corp} trixie-updates main"));
        assert_eq!(lines(&apt, "debian:sid"), [format!("{corp} sid main")]);
    }

    #[test]
    fn old_files_are_read_too() {
        let list = "# deb http://no.example/debian bookworm main\n\
                    deb-src http://no.example/debian bookworm main\n\
                    deb [arch=amd64 trusted=no] http://a.example/debian/ bookworm main # why\n\
                    deb cdrom:[Debian]/ bookworm main\n";
        let apt = machine(BOOKWORM, &[("sources.list", list)]);
        assert_eq!(lines(&apt, "debian:12"), ["deb http://a.example/debian/ bookworm main"]);
    }

    #[test]
    fn without_an_own_source_the_archive_is_asked() {
        let other = machine("ID=fedora\n", &[]);
        let found = lines(&other, "debian:bookworm");
        assert_eq!(found.len(), 3);
        assert!(found[2].ends_with("http://deb.debian.org/debian-security bookworm-security main"));
        assert_eq!(lines(&other, "debian:sid").len(), 1);
        let only_updates = "deb http://a.example/debian bookworm-updates main";
        let apt = machine(BOOKWORM, &[("sources.list", only_updates)]);
        assert!(lines(&apt, "debian:12")[0].contains("deb.debian.org"));
        let ubuntu = Distribution::parse("ubuntu:24.04").unwrap();
        let failure = other.sources(&ubuntu).unwrap_err().report().unwrap();
        assert!(failure.contains("apt-get install ubuntu-keyring"), "{failure}");
    }

    #[test]
    fn mirrors_are_addresses_or_lines() {
        let url: Source = "http://m.example/debian".parse().unwrap();
        assert_eq!(url.url(), Some("http://m.example/debian"));
        let line: Source = "deb [trusted=yes] http://m.example/d x main".parse().unwrap();
        assert_eq!(line.url(), Some("http://m.example/d"));
        for text in ["", "m.example", "ftp://m.example", "--hook=x", "http://", "deb-src http://x"]
        {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
