use std::{fs::Metadata, os::unix::fs::MetadataExt};

use http::{HeaderMap, HeaderName, header};
use jiff::{Timestamp, fmt::rfc2822};

/// What tells one state of a file from another, so that nobody fetches again what they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validators {
    pub(super) tag: String,
    /// When it was changed, if that is a time that a header can carry.
    pub(super) modified: Option<String>,
    seconds: i64,
}

impl Validators {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let (number, size) = (metadata.ino(), metadata.len());
        Self::new(&format!("\"{number:x}-{size:x}-{seconds:x}.{nanoseconds:x}\""), seconds)
    }

    fn new(tag: &str, seconds: i64) -> Self {
        let modified = Timestamp::from_second(seconds).ok().and_then(|time| {
            rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
        });
        Self { tag: tag.to_owned(), modified, seconds }
    }

    /// Whether the caller has the file in this state already.
    pub(super) fn are_known(&self, headers: &HeaderMap) -> bool {
        if let Some(tags) = text(headers, &header::IF_NONE_MATCH) {
            let known = |tag: &str| tag == "*" || tag.trim_start_matches("W/") == self.tag;
            return tags.split(',').any(|tag| known(tag.trim()));
        }
        let since = text(headers, &header::IF_MODIFIED_SINCE).and_then(time);
        since.is_some_and(|since| self.seconds <= since)
    }

    /// Whether a range is of use to the caller: not if it is to complete another state.
    pub(super) fn allow_range(&self, headers: &HeaderMap) -> bool {
        text(headers, &header::IF_RANGE)
            .is_none_or(|condition| condition == self.tag || time(condition) == Some(self.seconds))
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default().trim())
}

fn time(text: &str) -> Option<i64> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: HeaderName, value: &str) -> (bool, bool) {
        let validators = Validators::new("\"tag\"", 784_111_777);
        assert_eq!(validators.modified.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
        (validators.are_known(&headers), validators.allow_range(&headers))
    }

    #[test]
    fn a_state_is_known_by_its_tag_or_its_time() {
        for (value, expected) in [
            ("\"tag\"", true),
            ("W/\"tag\"", true),
            ("\"a\", \"tag\"", true),
            ("*", true),
            ("\"other\"", false),
            ("tag", false),
        ] {
            assert_eq!(known(header::IF_NONE_MATCH, value).0, expected, "{value}");
        }
        for (value, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:36 GMT", false),
            ("nonsense", false),
        ] {
            assert_eq!(known(header::IF_MODIFIED_SINCE, value).0, expected, "{value}");
        }
    }

    #[test]
    fn a_range_of_another_state_is_not_given() {
        for (value, expected) in [
            ("\"tag\"", true),
            ("W/\"tag\"", false),
            ("\"other\"", false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
        ] {
            assert_eq!(known(header::IF_RANGE, value).1, expected, "{value}");
        }
    }
}
