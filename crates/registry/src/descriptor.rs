use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::Digest;

/// What a manifest says of content: what it is, how long, and what it hashes to.
///
/// Other places to take it from (`urls`) are left out: content comes from the registry that was
/// asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_null")]
    pub annotations: BTreeMap<String, String>,
}

/// `null` where there should be nothing: some programs write it.
pub(crate) fn or_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Descriptor {
    pub fn new(media_type: impl Into<String>, digest: Digest, size: u64) -> Self {
        let annotations = BTreeMap::new();
        let media_type = media_type.into();
        Self { media_type, digest, size, platform: None, artifact_type: None, annotations }
    }

    /// That of content which is at hand.
    pub fn of(media_type: impl Into<String>, content: &[u8]) -> Self {
        Self::new(media_type, Digest::of(content), content.len() as u64)
    }
}

/// On what an image runs, in the words of manifests: `linux`, `amd64`, and for some `v7` or the like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, rename = "os.version", skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
}

impl Platform {
    /// That of this program.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" => ("ppc64le", None),
            other => (other, None),
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
            os_version: None,
        }
    }

    /// `linux/arm64` or `linux/arm/v7`, as people write it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let is_word = |part: &&str| {
            let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=32).contains(&part.len()) && part.bytes().all(is_fine)
        };
        let os = parts.next().filter(is_word)?.to_ascii_lowercase();
        let architecture = parts.next().filter(is_word)?.to_ascii_lowercase();
        let variant = match parts.next() {
            Some(variant) => Some(Some(variant).filter(is_word)?.to_ascii_lowercase()),
            None => None,
        };
        let architecture = match architecture.as_str() {
            "x86_64" | "x86-64" => "amd64".to_owned(),
            "aarch64" => "arm64".to_owned(),
            _ => architecture,
        };
        parts.next().is_none().then_some(Self { os, architecture, variant, os_version: None })
    }

    /// How well something for `self` runs where `wanted` is asked for; less is better.
    pub(crate) fn distance(&self, wanted: &Self) -> Option<u32> {
        if (&self.os, &self.architecture) != (&wanted.os, &wanted.architecture) {
            return None;
        }
        let level = |platform: &Self| match (&platform.variant, platform.architecture.as_str()) {
            (Some(variant), _) => variant.strip_prefix('v')?.parse::<u32>().ok(),
            // What no word is said about.
            (None, "arm") => Some(7),
            (None, "arm64") => Some(8),
            (None, _) => Some(1),
        };
        match (level(self), level(wanted)) {
            // A newer processor runs what was made for an older one.
            (Some(have), Some(want)) => want.checked_sub(have),
            _ => (self.variant == wanted.variant).then_some(0),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        Platform::parse(text).unwrap()
    }

    #[test]
    fn platforms_read_as_people_write_them() {
        for text in ["linux/amd64", "linux/arm/v7", "windows/amd64"] {
            assert_eq!(platform(text).to_string(), text);
        }
        assert_eq!(platform("Linux/x86_64").to_string(), "linux/amd64");
        for text in ["", "linux", "linux/", "/amd64", "linux/arm/", "a/b/c/d", "linux/am d64"] {
            assert_eq!(Platform::parse(text), None, "{text}");
        }
    }

    #[test]
    fn older_variants_run_on_newer_ones_and_not_the_other_way_round() {
        let distance = |have: &str, want: &str| platform(have).distance(&platform(want));
        assert_eq!(distance("linux/arm64", "linux/arm64/v8"), Some(0));
        assert_eq!(distance("linux/arm64/v8", "linux/arm64"), Some(0));
        assert_eq!(distance("linux/arm/v6", "linux/arm/v7"), Some(1));
        assert_eq!(distance("linux/arm/v7", "linux/arm/v6"), None);
        assert_eq!(distance("linux/amd64/v3", "linux/amd64"), None);
        assert_eq!(distance("linux/amd64", "linux/arm64"), None);
        assert_eq!(distance("windows/amd64", "linux/amd64"), None);
        assert_eq!(distance("linux/riscv64/rva20", "linux/riscv64/rva20"), Some(0));
        assert_eq!(distance("linux/riscv64/rva20", "linux/riscv64"), None);
    }

    #[test]
    fn what_programs_write_is_read() {
        let text = format!(
            r#"{{"mediaType":"a/b","digest":"{}","size":3,"urls":["http://x"],"annotations":null,
                "platform":{{"os":"linux","architecture":"arm64","variant":"v8"}}}}"#,
            Digest::of(b"abc")
        );
        let read: Descriptor = serde_json::from_str(&text).unwrap();
        let platform = platform("linux/arm64/v8");
        let expected = Descriptor { platform: Some(platform), ..Descriptor::of("a/b", b"abc") };
        assert_eq!(read, expected);
        let again = serde_json::to_value(&read).unwrap();
        assert!(again.get("annotations").is_none() && again.get("urls").is_none(), "{again}");
        let negative = text.replace("\"size\":3", "\"size\":-3");
        assert!(serde_json::from_str::<Descriptor>(&negative).is_err());
    }
}
