use std::{borrow::Cow, fmt, net::Ipv6Addr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Digest;

/// The registry of names that name none.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Where the images are that have no owner, at the registry above.
const DEFAULT_OWNER: &str = "library";
const DEFAULT_TAG: &str = "latest";
/// The longest registry and repository together, and the longest tag.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// The name of an image: `registry/repository:tag@digest`, of which people leave out most.
///
/// `debian` is `docker.io/library/debian:latest`. Something is a registry if it stands before a slash
/// and has a dot or a port, or is `localhost`. What stands for the same is the same value.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Text that is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of an image: {problem}")]
pub struct InvalidReference {
    text: String,
    problem: &'static str,
}

impl Reference {
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        Self::read(text).map_err(|problem| InvalidReference {
            text: text.chars().take(LONGEST_NAME).collect(),
            problem,
        })
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        let (text, digest) = match text.split_once('@') {
            Some((text, digest)) => {
                let digest = Digest::parse(digest).map_err(|_| {
                    "after @ comes a digest, which is sha256: and 64 lower-case hexadecimal digits"
                })?;
                (text, Some(digest))
            }
            None => (text, None),
        };
        // A colon before the last slash is that of a port.
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (text, None),
        };
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let (registry, repository) = split(name)?;
        if registry.len() + 1 + repository.len() > LONGEST_NAME {
            return Err("registry and repository together have at most 255 characters");
        }
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        let (registry, repository) = (registry.into_owned(), repository.into_owned());
        Ok(Self { registry, repository, tag, digest })
    }

    /// Such as `docker.io` or `localhost:5000`, in lower case.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Such as `library/debian`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Absent only if there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same repository at this digest, which is then all that decides.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// What a registry is asked for: the digest if there is one.
    pub fn version(&self) -> &str {
        match &self.digest {
            Some(digest) => digest.as_str(),
            None => self.tag.as_deref().unwrap_or(DEFAULT_TAG),
        }
    }

    /// As people write it, without what they leave out: `debian:latest`.
    pub fn familiar(&self) -> String {
        let whole = format!("{}/{}", self.registry, self.repository);
        let owned = whole.strip_prefix("docker.io/");
        let short = owned.map(|owned| owned.strip_prefix("library/").unwrap_or(owned));
        // The shortest that still is the same name: `docker.io/a.b/c` is not the one of `a.b`.
        let same = |name: &&str| {
            split(name).is_ok_and(|(registry, repository)| {
                registry == self.registry && repository == self.repository
            })
        };
        let name = [short, owned].into_iter().flatten().find(same).unwrap_or(&whole);
        self.with_version(name)
    }

    fn with_version(&self, name: &str) -> String {
        let mut text = name.to_owned();
        for (mark, part) in [(':', self.tag()), ('@', self.digest().map(Digest::as_str))] {
            if let Some(part) = part {
                text.push(mark);
                text.push_str(part);
            }
        }
        text
    }
}

/// Registry and repository of a name without tag and digest.
fn split(name: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    let is_registry =
        |first: &str| first.contains(['.', ':', '[']) || first.eq_ignore_ascii_case("localhost");
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (canonical_registry(first)?, rest),
        _ => (DEFAULT_REGISTRY.into(), name),
    };
    check_repository(repository)?;
    let is_default = registry == DEFAULT_REGISTRY;
    if is_default
        && !name.contains('/')
        && repository.len() == 64
        && repository.bytes().all(|it| it.is_ascii_hexdigit())
    {
        return Err(
            "64 hexadecimal digits are a digest: write sha256: before them, after a name and @",
        );
    }
    let repository = if is_default && !repository.contains('/') {
        format!("{DEFAULT_OWNER}/{repository}").into()
    } else {
        repository.into()
    };
    Ok((registry, repository))
}

fn canonical_registry(text: &str) -> Result<Cow<'_, str>, &'static str> {
    const WRONG: &str = "before the first slash stands a registry: a host, and perhaps a port";
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = match host.strip_prefix('[') {
        Some(rest) => {
            let address: Ipv6Addr =
                rest.strip_suffix(']').and_then(|it| it.parse().ok()).ok_or(WRONG)?;
            format!("[{address}]")
        }
        None if is_host(host) => host.to_ascii_lowercase(),
        None => return Err(WRONG),
    };
    let is_hub = ["docker.io", "index.docker.io", "registry-1.docker.io"].contains(&host.as_str());
    let Some(port) = port else {
        return Ok(if is_hub { DEFAULT_REGISTRY.into() } else { host.into() });
    };
    let is_number = (1..=5).contains(&port.len()) && port.bytes().all(|it| it.is_ascii_digit());
    let number = port.parse::<u16>().ok().filter(|number| is_number && *number > 0).ok_or(WRONG)?;
    Ok(format!("{host}:{number}").into())
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let inside = label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
        (1..=63).contains(&label.len())
            && inside
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

/// Parts between slashes: letters and digits, with one dot, one or two underscores or any number of
/// hyphens between them.
fn check_repository(repository: &str) -> Result<(), &'static str> {
    if repository.bytes().any(|it| it.is_ascii_uppercase()) {
        return Err("repositories are written in lower case");
    }
    let is_letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = part.starts_with(is_letter) && part.ends_with(is_letter);
        let mut between = part.split(is_letter).filter(|between| !between.is_empty());
        ends && between
            .all(|it| ["", ".", "_", "__"].contains(&it) || it.bytes().all(|it| it == b'-'))
    };
    if repository.split('/').all(is_part) {
        Ok(())
    } else {
        Err("a repository is made of lower-case letters and digits, with single . _ - between \
             them and slashes between its parts")
    }
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    let begins = tag.bytes().next().is_some_and(is_word);
    let rest = tag.bytes().all(|it| is_word(it) || it == b'.' || it == b'-');
    if begins && rest && tag.len() <= LONGEST_TAG {
        Ok(())
    } else {
        Err("a tag has up to 128 letters, digits, _ . and -, and begins with none of the last two")
    }
}

/// The whole name.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_version(&format!("{}/{}", self.registry, self.repository)))
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({self})")
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        Self::parse(text)
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
