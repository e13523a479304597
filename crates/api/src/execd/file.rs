use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::mode::Mode;
use crate::null;

/// What `stat` knows about a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FileInfo {
    /// The absolute path.
    pub path: String,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FileKind>,
    /// In bytes.
    pub size: u64,
    pub modified_at: Timestamp,
    pub created_at: Timestamp,
    /// The user's name, or its number if it has none.
    pub owner: String,
    /// The group's name, or its number if it has none.
    pub group: String,
    pub mode: Mode,
}

/// What a path names; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// Whose a file shall be and who may do what with it; what is absent stays as it is.
///
/// The value for each path in `POST /files/permissions` and `POST /directories`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ownership {
    #[serde(default, deserialize_with = "Mode::optional", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// A user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A group's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The `metadata` part that precedes each `file` part of `POST /files/upload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UploadMetadata {
    /// Where the file goes; directories on the way are made.
    #[serde(default, deserialize_with = "null::or_default")]
    pub path: String,
    #[serde(default, deserialize_with = "Mode::optional", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// A user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A group's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// One element of the array in `POST /files/mv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rename {
    pub src: String,
    /// Must not exist.
    pub dest: String,
}

/// The value for each path in `POST /files/replace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Replacement {
    /// The text to look for, never empty.
    pub old: String,
    /// What takes the place of each occurrence.
    #[serde(default, deserialize_with = "null::or_default")]
    pub new: String,
}

/// The value for each path in the answer of `POST /files/replace?verbose=true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Replaced {
    #[serde(rename = "replacedCount")]
    pub replaced_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_of_zero_or_null_leaves_the_mode_alone() {
        for text in
            [r#"{"path":"/a","mode":0}"#, r#"{"path":"/a","mode":null}"#, r#"{"path":"/a"}"#]
        {
            let metadata: UploadMetadata = serde_json::from_str(text).unwrap();
            assert_eq!(metadata, UploadMetadata { path: "/a".into(), ..Default::default() });
        }
        let metadata: UploadMetadata =
            serde_json::from_str(r#"{"path":"/a","mode":755,"owner":null,"group":"x"}"#).unwrap();
        assert_eq!(metadata.mode, Some(Mode::from_bits(0o755)));
        assert_eq!(metadata.group.as_deref(), Some("x"));
    }

    #[test]
    fn file_info_reads_as_published_clients_expect() {
        let info = FileInfo {
            path: "/tmp/a".into(),
            kind: Some(FileKind::File),
            size: 3,
            modified_at: Timestamp::from_second(0).unwrap(),
            created_at: Timestamp::from_second(1).unwrap(),
            owner: "root".into(),
            group: "1234".into(),
            mode: Mode::from_bits(0o644),
        };
        insta::assert_snapshot!(
            serde_json::to_string(&info).unwrap(),
            @r#"{"path":"/tmp/a","type":"file","size":3,"modified_at":"1970-01-01T00:00:00Z","created_at":"1970-01-01T00:00:01Z","owner":"root","group":"1234","mode":644}"#
        );
    }
}
