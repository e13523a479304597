use serde::{Deserialize, Serialize};

use super::event;

/// A change to a file, as `GET /files/watch` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Change {
    #[serde(rename = "type")]
    pub kind: ChangeKind,
    /// The absolute path of what has changed; absent where nothing has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where it was before it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether it is a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<bool>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// From now on changes are told.
    Ready,
    Created,
    Modified,
    Deleted,
    Moved,
    /// Its mode, owner or times were changed.
    Attrib,
    /// Not all changes could be told: too many at once, or too many directories to watch.
    Overflow,
    /// Nothing; the stream lives.
    Ping,
}

impl Change {
    /// What is not about any path.
    pub fn bare(kind: ChangeKind, timestamp: i64) -> Self {
        Self { kind, path: None, from: None, directory: None, timestamp }
    }

    /// Appends it as it travels: one line of JSON, then an empty line.
    pub fn frame(&self, out: &mut Vec<u8>) {
        event::frame(self, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_and_an_empty_line() {
        let mut out = Vec::new();
        Change::bare(ChangeKind::Ready, 5).frame(&mut out);
        let moved = Change {
            path: Some("/b\u{2028}".into()),
            from: Some("/a".into()),
            directory: Some(false),
            ..Change::bare(ChangeKind::Moved, 6)
        };
        moved.frame(&mut out);
        insta::assert_snapshot!(String::from_utf8(out).unwrap().trim_end(), @r#"
        {"type":"ready","timestamp":5}

        {"type":"moved","path":"/b\u2028","from":"/a","directory":false,"timestamp":6}
        "#);
    }
}
