use osb_registry::Reference;

/// A release of a distribution, by the name that its image has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Distribution {
    name: String,
    kind: Kind,
    suite: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Debian,
    Ubuntu,
}

/// Releases by the numbers that images have.
const DEBIAN: [(&str, &str); 6] = [
    ("10", "buster"),
    ("11", "bullseye"),
    ("12", "bookworm"),
    ("13", "trixie"),
    ("14", "forky"),
    ("latest", "stable"),
];
const UBUNTU: [(&str, &str); 5] = [
    ("18.04", "bionic"),
    ("20.04", "focal"),
    ("22.04", "jammy"),
    ("24.04", "noble"),
    ("26.04", "resolute"),
];

impl Distribution {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "it should look like debian:bookworm or ubuntu:24.04".to_owned();
        let name = Reference::parse(text).map_err(|_| wrong())?;
        let (kind, releases) = match (name.registry(), name.repository()) {
            ("docker.io", "library/debian") => (Kind::Debian, &DEBIAN[..]),
            ("docker.io", "library/ubuntu") => (Kind::Ubuntu, &UBUNTU[..]),
            _ => return Err(wrong()),
        };
        let tag = name.tag().filter(|_| name.digest().is_none()).ok_or_else(wrong)?;
        let tag = tag.strip_suffix("-slim").unwrap_or(tag);
        let known = releases.iter().find(|(release, _)| *release == tag);
        let suite = known.map_or(tag, |(_, suite)| suite);
        let is_word = suite.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        if !is_word || suite.starts_with('-') {
            return Err(format!("{tag} is no release that is known here: name it, as in bookworm"));
        }
        if suite == "latest" {
            return Err("say which release, as in ubuntu:24.04".to_owned());
        }
        Ok(Self { name: name.familiar(), kind, suite: suite.to_owned() })
    }

    /// What the image is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn suite(&self) -> &str {
        &self.suite
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it has no updates beside it, since it always has the newest.
    pub(super) fn is_rolling(&self) -> bool {
        ["sid", "unstable", "experimental", "devel"].contains(&self.suite.as_str())
    }
}

impl Kind {
    /// How a system says in `/etc/os-release` that it is one.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Ubuntu => "ubuntu",
        }
    }

    /// What images of it install from.
    pub(super) fn components(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &["main"],
            Self::Ubuntu => &["main", "restricted", "universe", "multiverse"],
        }
    }

    /// The keys that packages of it are signed with, and the package that has them.
    pub(super) fn keyring(self) -> (&'static str, &'static str) {
        match self {
            Self::Debian => {
                ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring")
            }
            Self::Ubuntu => ("/usr/share/keyrings/ubuntu-archive-keyring.gpg", "ubuntu-keyring"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_names_and_numbers() {
        for (text, suite, name) in [
            ("debian:bookworm", "bookworm", "debian:bookworm"),
            ("debian:12", "bookworm", "debian:12"),
            ("debian:trixie-slim", "trixie", "debian:trixie-slim"),
            ("docker.io/library/debian:sid", "sid", "debian:sid"),
            ("debian", "stable", "debian:latest"),
            ("ubuntu:24.04", "noble", "ubuntu:24.04"),
            ("ubuntu:jammy", "jammy", "ubuntu:jammy"),
        ] {
            let found = Distribution::parse(text).unwrap();
            assert_eq!((found.suite(), found.name()), (suite, name), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "fedora:40", "ghcr.io/debian:12", "debian:99", "ubuntu", "debian:../x"] {
            assert!(Distribution::parse(text).is_err(), "{text}");
        }
    }
}
