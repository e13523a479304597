use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Descriptor, Platform, descriptor::or_null, media};

/// The longest manifest or index that is read.
pub(crate) const LARGEST: usize = 4 << 20;
/// More layers, or more images in an index, nobody has had a reason for.
const MOST: usize = 4096;

/// An image: its configuration and its layers, lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_null")]
    pub annotations: BTreeMap<String, String>,
}

/// Images that are one image on several platforms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub manifests: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_null")]
    pub annotations: BTreeMap<String, String>,
}

/// What a registry may answer with when it is asked for a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Manifest(Box<Manifest>),
    Index(Index),
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidManifest {
    #[error("the manifest is longer than {LARGEST} bytes")]
    TooLong,
    #[error("the manifest is not as the specification of images says")]
    Malformed(#[source] serde_json::Error),
    #[error("the manifest is of a kind that is not understood here: {0}")]
    Unknown(String),
    #[error("the manifest lists more than {MOST} parts")]
    TooMany,
    #[error("the manifest names {0}, which is not as it should be")]
    Inconsistent(&'static str),
}

impl Document {
    /// Reads a manifest or an index. `said` is what the registry, or the index that led here, calls
    /// it; the document's own word counts as well, and both must not be of different kinds.
    pub fn parse(content: &[u8], said: Option<&str>) -> Result<Self, InvalidManifest> {
        if content.len() > LARGEST {
            return Err(InvalidManifest::TooLong);
        }
        let shape: Shape = serde_json::from_slice(content).map_err(InvalidManifest::Malformed)?;
        if shape.schema_version != 2 {
            let version = shape.schema_version;
            return Err(InvalidManifest::Unknown(format!("schema version {version}")));
        }
        let said =
            said.map(essence).filter(|said| said.contains("manifest") || said.contains("index"));
        let kind = match (shape.media_type.as_deref(), said) {
            // One that is an image to some and an index to others would be two images by one digest.
            (Some(own), Some(said)) if media::is_index(own) != media::is_index(said) => {
                return Err(InvalidManifest::Inconsistent("two kinds for itself"));
            }
            (Some(own), _) => own,
            (None, Some(said)) => said,
            (None, None) if shape.manifests.is_some() => media::OCI_INDEX,
            (None, None) => media::OCI_MANIFEST,
        };
        if !media::MANIFESTS.contains(&kind) {
            return Err(InvalidManifest::Unknown(kind.chars().take(100).collect()));
        }
        if (shape.manifests.is_some(), shape.layers.is_some())
            != (media::is_index(kind), !media::is_index(kind))
        {
            return Err(InvalidManifest::Inconsistent("layers and images, or neither"));
        }
        let malformed = InvalidManifest::Malformed;
        let (document, count) = if media::is_index(kind) {
            let index: Index = serde_json::from_slice(content).map_err(malformed)?;
            let count = index.manifests.len();
            (Self::Index(index), count)
        } else {
            let manifest: Manifest = serde_json::from_slice(content).map_err(malformed)?;
            let count = manifest.layers.len();
            (Self::Manifest(Box::new(manifest)), count)
        };
        if count > MOST { Err(InvalidManifest::TooMany) } else { Ok(document) }
    }

    /// What it is: what it says itself, or else what others do.
    pub fn media_type<'a>(&'a self, said: Option<&'a str>) -> &'a str {
        let (own, usual) = match self {
            Self::Manifest(manifest) => (&manifest.media_type, media::OCI_MANIFEST),
            Self::Index(index) => (&index.media_type, media::OCI_INDEX),
        };
        let said = said.map(essence).filter(|said| media::MANIFESTS.contains(said));
        own.as_deref().or(said).unwrap_or(usual)
    }
}

/// A media type without its parameters.
pub(crate) fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// What tells documents apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    #[serde(default)]
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
}

impl Index {
    /// The image for a platform: of those that run there the nearest, and of equals the first.
    pub fn choose(&self, wanted: &Platform) -> Option<&Descriptor> {
        let fitting = self
            .manifests
            .iter()
            .filter_map(|manifest| Some((manifest.platform.as_ref()?.distance(wanted)?, manifest)));
        fitting.min_by_key(|(distance, _)| *distance).map(|(_, manifest)| manifest)
    }

    /// For what there are images, without what builders store beside them.
    pub fn platforms(&self) -> impl Iterator<Item = &Platform> {
        let known = self.manifests.iter().filter_map(|manifest| manifest.platform.as_ref());
        known.filter(|platform| platform.os != "unknown" && !platform.os.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(kind: &str, content: &str) -> Value {
        serde_json::to_value(Descriptor::of(kind, content.as_bytes())).unwrap()
    }

    fn manifest() -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": media::OCI_MANIFEST,
            "config": descriptor(media::OCI_CONFIG, "{}"),
            "layers": [descriptor(media::OCI_LAYER_GZIP, "a")],
        })
    }

    fn index(platforms: &[&str]) -> Value {
        let manifests = platforms.iter().map(|name| {
            let platform = Platform::parse(name);
            json!(Descriptor { platform, ..Descriptor::of(media::OCI_MANIFEST, name.as_bytes()) })
        });
        json!({
            "schemaVersion": 2,
            "mediaType": media::OCI_INDEX,
            "manifests": manifests.collect::<Vec<_>>(),
        })
    }

    fn parse(document: &Value, said: Option<&str>) -> Result<Document, InvalidManifest> {
        Document::parse(document.to_string().as_bytes(), said)
    }

    #[test]
    fn manifests_and_indexes_are_told_apart() {
        for said in [None, Some(media::OCI_MANIFEST), Some("application/json; charset=utf-8")] {
            assert!(matches!(parse(&manifest(), said), Ok(Document::Manifest(_))), "{said:?}");
        }
        let index = index(&["linux/amd64"]);
        assert!(matches!(parse(&index, Some(media::DOCKER_INDEX)), Ok(Document::Index(_))));
        // What has no word for itself is what it looks like.
        for (mut document, is_index) in [(manifest(), false), (index, true)] {
            document.as_object_mut().unwrap().remove("mediaType");
            let parsed = parse(&document, None).unwrap();
            assert_eq!(matches!(parsed, Document::Index(_)), is_index);
        }
    }

    #[test]
    fn a_document_that_is_two_things_is_refused() {
        let error = |document: &Value, said| parse(document, said).unwrap_err().to_string();
        assert!(error(&manifest(), Some(media::OCI_INDEX)).contains("two kinds"));
        let mut both = manifest();
        both["manifests"] = json!([]);
        assert!(error(&both, None).contains("layers and images"));
        let mut old = manifest();
        old["schemaVersion"] = json!(1);
        assert!(error(&old, None).contains("schema version 1"));
        let mut strange = manifest();
        strange["mediaType"] = json!("application/vnd.strange+json");
        assert!(error(&strange, None).contains("vnd.strange"));
    }

    #[test]
    fn documents_without_end_are_refused() {
        let layer = descriptor(media::OCI_LAYER, "a");
        let mut many = manifest();
        many["layers"] = Value::Array(vec![layer; MOST + 1]);
        assert!(matches!(parse(&many, None), Err(InvalidManifest::TooMany)));
        let long = vec![b' '; LARGEST + 1];
        assert!(matches!(Document::parse(&long, None), Err(InvalidManifest::TooLong)));
        let deep = "[".repeat(1 << 20);
        assert!(matches!(
            Document::parse(deep.as_bytes(), None),
            Err(InvalidManifest::Malformed(_))
        ));
    }

    #[test]
    fn the_nearest_image_for_a_platform_is_chosen() {
        let all =
            ["linux/arm/v5", "linux/arm/v7", "linux/arm/v6", "linux/amd64", "unknown/unknown"];
        let Document::Index(index) = parse(&index(&all), None).unwrap() else { unreachable!() };
        let chosen = |wanted: &str| {
            let chosen = index.choose(&Platform::parse(wanted).unwrap());
            chosen.and_then(|it| it.platform.as_ref()).map(ToString::to_string)
        };
        assert_eq!(chosen("linux/arm/v7").as_deref(), Some("linux/arm/v7"));
        assert_eq!(chosen("linux/arm/v6").as_deref(), Some("linux/arm/v6"));
        assert_eq!(chosen("linux/amd64").as_deref(), Some("linux/amd64"));
        assert_eq!(chosen("linux/arm64"), None);
        let known: Vec<_> = index.platforms().map(ToString::to_string).collect();
        assert_eq!(known, &all[..4]);
    }
}
