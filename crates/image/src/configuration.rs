//! What images say about how they are run.

use std::collections::{BTreeMap, BTreeSet};

use osb_registry::Digest;
use serde::{Deserialize, Deserializer, Serialize};

/// What programs in an image begin with, if nobody says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageConfig {
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// In the image's order; of two with one name the last counts.
    pub env: Vec<(String, String)>,
    /// A name or number, perhaps with a group after a colon.
    pub user: Option<String>,
    pub workdir: Option<String>,
    /// A name such as `SIGTERM` or a number.
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub healthcheck: Option<Healthcheck>,
    pub labels: BTreeMap<String, String>,
    /// Such as `80/tcp`.
    pub exposed_ports: Vec<String>,
    pub volumes: Vec<String>,
    pub architecture: String,
    pub os: String,
    /// When the image was made, as it says itself.
    pub created: Option<String>,
}

/// The document that a manifest calls its configuration, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, deserialize_with = "or_null")]
    pub config: RunConfiguration,
    pub rootfs: LayerList,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub history: Vec<Step>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfiguration {
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_null")]
    pub user: String,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set")]
    pub exposed_ports: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub cmd: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "set")]
    pub volumes: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_null")]
    pub working_dir: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_null")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_null")]
    pub stop_signal: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub shell: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub on_build: Vec<String>,
}

/// How to find out whether what runs is well. Times are in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    /// `NONE`; `CMD` and arguments; or `CMD-SHELL` and a line for the shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_null")]
    pub test: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_period: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_interval: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}

/// The layers by what they hash to when they are not compressed, lowest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerList {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default, deserialize_with = "or_null")]
    pub diff_ids: Vec<Digest>,
}

/// How an image came to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

impl Configuration {
    /// What runs in the image begins with this.
    pub fn image_config(&self) -> ImageConfig {
        let run = &self.config;
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let assignment = |line: &String| {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        };
        ImageConfig {
            entrypoint: run.entrypoint.clone(),
            cmd: run.cmd.clone(),
            env: run.env.iter().map(assignment).collect(),
            user: said(&run.user),
            workdir: said(&run.working_dir),
            stop_signal: said(&run.stop_signal),
            shell: run.shell.clone(),
            healthcheck: run.healthcheck.clone(),
            labels: run.labels.clone(),
            exposed_ports: run.exposed_ports.iter().cloned().collect(),
            volumes: run.volumes.iter().cloned().collect(),
            architecture: self.architecture.clone(),
            os: self.os.clone(),
            created: self.created.clone(),
        }
    }
}

/// `null` where there should be nothing: some programs write it.
fn or_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Sets are written as objects whose members are empty objects.
mod set {
    use std::collections::BTreeSet;

    use serde::{Deserialize, Deserializer, Serializer, ser::SerializeMap};

    pub(super) fn serialize<S: Serializer>(
        set: &BTreeSet<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(set.len()))?;
        for member in set {
            map.serialize_entry(member, &serde_json::Map::new())?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<String>, D::Error> {
        let map = Option::<serde_json::Map<_, _>>::deserialize(deserializer)?;
        Ok(map.unwrap_or_default().into_iter().map(|(member, _)| member).collect())
    }
}

/// A word where there should be a list of them: old programs wrote that.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        Many(Vec<String>),
        One(String),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Words::Many(words)) => words,
        Some(Words::One(word)) => vec![word],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_writes_is_read() {
        let text = r#"{
            "architecture": "amd64", "os": "linux", "created": "2024-01-01T00:00:00Z",
            "config": {
                "Hostname": "x", "User": "app", "ExposedPorts": {"80/tcp": {}},
                "Env": ["PATH=/bin", "EMPTY=", "A=b=c"], "Cmd": ["sh"], "Entrypoint": null,
                "Volumes": null, "WorkingDir": "/srv", "Labels": {"a": "b"}, "OnBuild": null,
                "Healthcheck": {"Test": ["CMD-SHELL", "true"], "Interval": 30000000000},
                "StopSignal": "SIGINT"
            },
            "history": [{"created_by": "x", "empty_layer": true}],
            "rootfs": {"type": "layers", "diff_ids": []}
        }"#;
        let configuration: Configuration = serde_json::from_str(text).unwrap();
        let config = configuration.image_config();
        assert_eq!(config.env[2], ("A".to_owned(), "b=c".to_owned()));
        assert_eq!((config.cmd, config.entrypoint), (vec!["sh".to_owned()], Vec::new()));
        assert_eq!(config.user.as_deref(), Some("app"));
        assert_eq!(config.exposed_ports, ["80/tcp"]);
        assert_eq!(config.healthcheck.unwrap().interval, Some(30_000_000_000));
        let again = serde_json::to_value(&configuration).unwrap();
        assert_eq!(again["config"]["ExposedPorts"], serde_json::json!({"80/tcp": {}}));
    }

    #[test]
    fn nothing_but_layers_is_enough() {
        let text = r#"{"rootfs":{"type":"layers","diff_ids":null},"config":null,"history":null}"#;
        let configuration: Configuration = serde_json::from_str(text).unwrap();
        assert_eq!(configuration.image_config(), ImageConfig::default());
    }
}
