//! What sandboxes tried in the network and which credentials they used, written down.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_audit::{Audit, Counts, Entry, Keep};
use osb_core::Memory;
use osb_egress::{Attempt, Decision, Protocol, Verdict, Witness};
use osb_sys::fs::PathError;
use serde::{Deserialize, Serialize, Serializer};

use crate::{config::ConfigError, routes};

/// In the data directory: a directory per sandbox.
pub const AUDIT_DIRECTORY: &str = "audit";

/// The table `[audit]` of the program's configuration file, as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawAudit {
    /// For how many days what was written down is kept; 90 if absent. Since 0.1.
    keep_days: Option<u32>,
    /// How much of all sandboxes is kept, such as `10Gi`; `1Gi` if absent. Since 0.1.
    keep_disk: Option<String>,
}

impl RawAudit {
    const DAYS: std::ops::RangeInclusive<u32> = 1..=36_500;
    /// Less is a few files only.
    const LEAST: u64 = 64 << 20;

    pub fn check(&self) -> Result<Keep, ConfigError> {
        let mut keep = Keep::default();
        if let Some(days) = self.keep_days {
            if !Self::DAYS.contains(&days) {
                let (least, most) = (Self::DAYS.start(), Self::DAYS.end());
                let text = format!("audit.keep-days must be between {least} and {most}");
                return Err(ConfigError::Invalid(text));
            }
            keep.age = Duration::from_hours(24 * u64::from(days));
        }
        if let Some(disk) = &self.keep_disk {
            let disk: Memory = disk
                .parse()
                .map_err(|error| ConfigError::Invalid(format!("audit.keep-disk: {error}")))?;
            if disk.bytes() < Self::LEAST {
                return Err(ConfigError::Invalid(
                    "audit.keep-disk must be 64Mi at least".to_owned(),
                ));
            }
            keep.bytes = disk.bytes();
        }
        Ok(keep)
    }
}

/// Who writes down what sandboxes do.
#[derive(Debug)]
pub(crate) struct Auditor(Audit<Seen>);

impl Auditor {
    pub(crate) fn start(data_dir: &Path, keep: Keep) -> Result<Self, PathError> {
        Audit::start(&data_dir.join(AUDIT_DIRECTORY), keep).map(Self)
    }

    /// Nothing more comes of a sandbox.
    pub(crate) fn finish(&self, id: SandboxId) {
        self.0.finish(id);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.counts()
    }

    /// Writes all that waits, and ends.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

impl Witness for Auditor {
    fn saw(&self, decision: &Arc<Decision>) {
        self.0.note(decision.sandbox, Seen(Arc::clone(decision)));
    }
}

/// A decision as it is written down: as clients see it in the log of a sandbox.
#[derive(Debug)]
struct Seen(Arc<Decision>);

impl Serialize for Seen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        routes::show_decision(&self.0).serialize(serializer)
    }
}

impl Entry for Seen {
    fn at(&self) -> Timestamp {
        self.0.at
    }

    fn kind(&self) -> &'static str {
        match (self.0.what.protocol, self.0.ruling.verdict) {
            (Protocol::Credential, _) => "credential",
            (_, Verdict::Allow) => "egress-allowed",
            (_, Verdict::Deny) => "egress-denied",
        }
    }

    /// Requests are many, and so are questions: neither hides a connection.
    fn share(&self) -> &'static str {
        match (self.0.what.protocol, self.0.ruling.verdict) {
            (Protocol::Dns, Verdict::Allow) => "dns-allowed",
            (Protocol::Dns, Verdict::Deny) => "dns-denied",
            (Protocol::Tcp, Verdict::Allow) => "tcp-allowed",
            (Protocol::Tcp, Verdict::Deny) => "tcp-denied",
            (Protocol::Udp, Verdict::Allow) => "udp-allowed",
            (Protocol::Udp, Verdict::Deny) => "udp-denied",
            (Protocol::Http, Verdict::Allow) => "http-allowed",
            (Protocol::Http, Verdict::Deny) => "http-denied",
            (Protocol::Credential, Verdict::Allow) => "credential-used",
            (Protocol::Credential, Verdict::Deny) => "credential-withheld",
        }
    }

    /// Whom it is for, and whether it is the end of it, which tells of bytes.
    fn about(&self) -> u64 {
        let Attempt { name, address, port, .. } = &self.0.what;
        // Addresses of a name come and go.
        let address = address.filter(|_| name.is_none());
        let mut hasher = DefaultHasher::new();
        (name, address, port, self.0.end.is_some()).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(text: &str) -> Result<Keep, String> {
        let raw: RawAudit = toml::from_str(text).map_err(|error| error.to_string())?;
        raw.check().map_err(|error| error.to_string())
    }

    #[test]
    fn how_much_is_kept_can_be_written() {
        assert_eq!(keep(""), Ok(Keep::default()));
        let written = keep("keep-days = 7\nkeep-disk = '10Gi'");
        assert_eq!(written, Ok(Keep { bytes: 10 << 30, age: Duration::from_hours(7 * 24) }));
    }

    #[test]
    fn what_keeps_next_to_nothing_is_refused() {
        for text in [
            "keep-days = 0",
            "keep-days = 40000",
            "keep-disk = '1Mi'",
            "keep-disk = 'all'",
            "keep = 1",
        ] {
            assert!(keep(text).is_err(), "{text:?} was accepted");
        }
    }
}
