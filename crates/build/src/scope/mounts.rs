//! `RUN --mount`, with its variables replaced.

use std::collections::BTreeMap;

use osb_sys::userns::RANGE;

use super::{Scope, absolute};
use crate::{
    dockerfile::{Mount, check_kind},
    plan::{self, Source},
    problem::Fault,
};

/// Files that a step sees and that are none of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mounted {
    Bind {
        from: Source,
        source: String,
        target: String,
    },
    Cache {
        id: String,
        target: String,
        read_only: bool,
        sharing: Sharing,
        mode: u32,
        user: u32,
        group: u32,
    },
    Tmpfs {
        target: String,
        size: Option<u64>,
    },
    Secret {
        id: String,
        target: Option<String>,
        variable: Option<String>,
        required: bool,
        mode: u32,
        user: u32,
        group: u32,
    },
}

/// Who may write to a cache at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Everybody who has it.
    Shared,
    /// One after another.
    Locked,
    /// Whoever comes while it is in use gets one of his own.
    Private,
}

impl Mounted {
    /// Where it is, if it is a place.
    pub(crate) fn target(&self) -> Option<&str> {
        match self {
            Self::Bind { target, .. } | Self::Cache { target, .. } | Self::Tmpfs { target, .. } => {
                Some(target)
            }
            Self::Secret { target, .. } => target.as_deref(),
        }
    }
}

/// What is left to be read of a mount.
struct Fields {
    given: BTreeMap<&'static str, Option<String>>,
}

impl Fields {
    fn take(&mut self, key: &str) -> Option<String> {
        self.given.remove(key).flatten()
    }

    fn number(&mut self, key: &str, radix: u32) -> Result<Option<u32>, Fault> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let wrong = || Fault::new(format!("{key}={text} of a mount is no number"));
        u32::from_str_radix(&text, radix).map(Some).map_err(|_| wrong())
    }

    /// A user or a group that sandboxes have.
    fn account(&mut self, key: &str) -> Result<u32, Fault> {
        let id = self.number(key, 10)?.unwrap_or_default();
        if id >= RANGE {
            let last = RANGE - 1;
            let what =
                format!("{key}={id} of a mount is none that a sandbox has: they go to {last}");
            return Err(Fault(what));
        }
        Ok(id)
    }

    fn switch(&mut self, key: &str) -> Result<Option<bool>, Fault> {
        match self.given.remove(key) {
            None => Ok(None),
            Some(None) => Ok(Some(true)),
            Some(Some(text)) => match text.as_str() {
                "true" | "1" => Ok(Some(true)),
                "false" | "0" => Ok(Some(false)),
                _ => Err(Fault::new(format!("{key} of a mount is true or false, not {text}"))),
            },
        }
    }

    fn end(self, kind: &str) -> Result<(), Fault> {
        match self.given.into_keys().next() {
            Some(key) => Err(Fault::new(format!("a mount of the type {kind} takes no {key}"))),
            None => Ok(()),
        }
    }
}

impl Scope<'_> {
    pub(super) fn mount(&self, mount: &Mount) -> Result<Mounted, Fault> {
        let mut fields = Fields { given: BTreeMap::new() };
        let mut kind = "bind".to_owned();
        for (key, value) in &mount.fields {
            let value = value.as_deref().map(|value| self.word(value)).transpose()?;
            let key = match key.as_str() {
                "type" => {
                    kind = value.unwrap_or_default().to_ascii_lowercase();
                    continue;
                }
                "src" | "source" => "source",
                "dst" | "destination" | "target" => "target",
                "ro" | "readonly" => "readonly",
                "rw" | "readwrite" => "readwrite",
                "from" => "from",
                "id" => "id",
                "sharing" => "sharing",
                "required" => "required",
                "size" => "size",
                "mode" => "mode",
                "uid" => "uid",
                "gid" => "gid",
                _ => "env",
            };
            let is_switch = matches!(key, "readonly" | "readwrite" | "required");
            if value.is_none() && !is_switch {
                return Err(Fault::new(format!("{key} of a mount lacks its value")));
            }
            fields.given.insert(key, value);
        }
        check_kind(&kind)?;
        let mounted = match kind.as_str() {
            "bind" => self.bind(&mut fields)?,
            "cache" => self.cache(&mut fields)?,
            "tmpfs" => self.tmpfs(&mut fields)?,
            "secret" => self.secret(&mut fields)?,
            _ => {
                return Err(Fault::new(
                    "a mount of the type ssh is not possible, for no agent is reached from a sandbox: \
                     use --mount=type=secret with a key, or a credential of the egress policy",
                ));
            }
        };
        fields.end(&kind)?;
        Ok(mounted)
    }

    /// A place that is not the whole image.
    fn target(&self, fields: &mut Fields) -> Result<String, Fault> {
        let Some(target) = fields.take("target").filter(|target| !target.is_empty()) else {
            return Err(Fault::new("a mount needs a target: write target=/path"));
        };
        self.place(&target)
    }

    fn place(&self, target: &str) -> Result<String, Fault> {
        let target = absolute(self.workdir(), target)?;
        if target == "/" {
            return Err(Fault::new("a mount cannot be all of the image: choose a target below /"));
        }
        Ok(target)
    }

    fn bind(&self, fields: &mut Fields) -> Result<Mounted, Fault> {
        let target = self.target(fields)?;
        let from = match fields.take("from") {
            Some(from) => plan::source(&self.plan.file, self.stage, &from)?,
            None => Source::Context,
        };
        // What is written there is thrown away in any case.
        fields.switch("readonly")?;
        fields.switch("readwrite")?;
        let source = absolute("/", &fields.take("source").unwrap_or_default())?;
        Ok(Mounted::Bind { from, source, target })
    }

    fn cache(&self, fields: &mut Fields) -> Result<Mounted, Fault> {
        let target = self.target(fields)?;
        if fields.given.contains_key("from") || fields.given.contains_key("source") {
            return Err(Fault::new(
                "from and source of a cache are not possible: it begins empty; fill it in the step if it is",
            ));
        }
        let sharing = match fields.take("sharing").as_deref() {
            None | Some("shared") => Sharing::Shared,
            Some("locked") => Sharing::Locked,
            Some("private") => Sharing::Private,
            Some(other) => {
                return Err(Fault::new(format!(
                    "sharing is shared, private or locked, not {other}"
                )));
            }
        };
        let is_read_only = fields.switch("readonly")?;
        let is_writable = fields.switch("readwrite")?;
        Ok(Mounted::Cache {
            id: fields.take("id").filter(|id| !id.is_empty()).unwrap_or_else(|| target.clone()),
            target,
            read_only: is_read_only.unwrap_or_else(|| is_writable == Some(false)),
            sharing,
            mode: fields.number("mode", 8)?.unwrap_or(0o755),
            user: fields.account("uid")?,
            group: fields.account("gid")?,
        })
    }

    fn tmpfs(&self, fields: &mut Fields) -> Result<Mounted, Fault> {
        let target = self.target(fields)?;
        let size = fields.take("size").map(|text| size(&text)).transpose()?;
        fields.switch("readwrite")?;
        Ok(Mounted::Tmpfs { target, size })
    }

    fn secret(&self, fields: &mut Fields) -> Result<Mounted, Fault> {
        let target = fields.take("target").map(|target| self.place(&target)).transpose()?;
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let id = match (fields.take("id"), fields.take("source")) {
            (Some(_), Some(_)) => {
                return Err(Fault::new(
                    "a secret has an id or a source, which is the same: keep one",
                ));
            }
            (Some(id), None) | (None, Some(id)) => id,
            (None, None) => target.as_deref().map(last).unwrap_or_default(),
        };
        if id.is_empty() {
            return Err(Fault::new("a secret needs an id: write id=name"));
        }
        let variable = fields.take("env");
        let target = match (target, &variable) {
            (Some(target), _) => Some(target),
            // In a variable alone.
            (None, Some(_)) => None,
            (None, None) => Some(self.place(&format!("/run/secrets/{}", last(&id)))?),
        };
        fields.switch("readonly")?;
        Ok(Mounted::Secret {
            target,
            variable,
            required: fields.switch("required")?.unwrap_or_default(),
            mode: fields.number("mode", 8)?.unwrap_or(0o400),
            user: fields.account("uid")?,
            group: fields.account("gid")?,
            id,
        })
    }
}

/// `64m`, `1g`
fn size(text: &str) -> Result<u64, Fault> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match lower.chars().last() {
        Some('k') => (lower.trim_end_matches('k'), 10),
        Some('m') => (lower.trim_end_matches('m'), 20),
        Some('g') => (lower.trim_end_matches('g'), 30),
        _ => (lower, 0),
    };
    let number = digits.trim().parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|size| *size > 0)
        .ok_or_else(|| Fault::new(format!("{text} is no size: write 64m or 1g")))
}
