use serde::{Deserialize, Serialize};

use super::ImportedImage;
use crate::ErrorBody;

/// What is told while an image is pulled, pushed or built: one JSON document in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ImageEvent {
    /// The registry is asked what the name stands for.
    Resolving {
        name: String,
    },
    /// How far the layers of a pull are.
    Pulling {
        name: String,
        layers: Vec<PulledLayer>,
    },
    /// Bytes that the registry has, and all that it will have.
    Pushing {
        bytes: u64,
        total: u64,
    },
    /// Something in a Dockerfile that is hardly meant.
    Warning {
        line: u64,
        message: String,
    },
    /// A step of a build begins.
    Began {
        step: String,
        title: String,
    },
    /// What it would do was done before.
    Cached {
        step: String,
    },
    /// A line that it said.
    Output {
        step: String,
        stream: OutputStream,
        text: String,
    },
    Done {
        step: String,
        milliseconds: u64,
    },
    Failed {
        step: String,
        milliseconds: u64,
    },
    /// The last event, if all went well.
    Image(ImportedImage),
    /// The last event otherwise.
    Error(ErrorBody),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PulledLayer {
    pub digest: String,
    /// Bytes that are here, and all of them.
    pub bytes: u64,
    pub total: u64,
    pub stage: LayerStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LayerStage {
    Waiting,
    Downloading,
    Downloaded,
    Unpacking,
    Unpacked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl ImageEvent {
    /// Whether nothing comes after it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Image(_) | Self::Error(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_what_they_are() {
        let error = ErrorBody { code: "A::B".to_owned(), message: "no".to_owned() };
        let text = serde_json::to_string(&ImageEvent::Error(error)).unwrap();
        assert_eq!(text, r#"{"type":"error","code":"A::B","message":"no"}"#);
        let cached = ImageEvent::Cached { step: "0.2".to_owned() };
        let text = serde_json::to_string(&cached).unwrap();
        assert_eq!(text, r#"{"type":"cached","step":"0.2"}"#);
        assert_eq!(serde_json::from_str::<ImageEvent>(&text).unwrap(), cached);
    }
}
