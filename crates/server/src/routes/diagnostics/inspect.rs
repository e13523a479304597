//! What a sandbox is made of, for people. No secret is in it.

use std::{collections::BTreeMap, fmt::Write as _};

use osb_api::lifecycle::{NetworkAction, NetworkPolicy};
use osb_core::{Cpu, Memory, SandboxSpec, Used, Volume, VolumeSource};

use crate::{app::Parts, record::Record};

/// What stands for a value that may be a secret.
const MASK: &str = "********";
/// Names of variables whose values tell nothing. Any other may be a secret: passwords are in URLs
/// as well.
const HARMLESS: [&str; 16] = [
    "DEBIAN_FRONTEND",
    "EDITOR",
    "HOME",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_ENV",
    "PATH",
    "PWD",
    "PYTHONUNBUFFERED",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];
/// How many rules of a policy are shown.
const MOST_RULES: usize = 50;

pub(super) async fn describe(app: &Parts, record: &Record) -> String {
    let used = app.reconciler.usage(record.id()).await.ok();
    let policy = app.reconciler.has_network().then(|| app.reconciler.wire_policy(record));
    let mut page = Page::default();
    identity(&mut page, record);
    resources(&mut page, &record.desired.spec, used.as_ref());
    page.pairs("Environment", &masked(&record.desired.spec.env));
    page.pairs("Metadata", &record.metadata);
    page.pairs("Extensions", &record.extensions);
    page.list("Volumes", record.desired.spec.volumes.iter().map(volume));
    network(&mut page, record, policy.as_ref());
    page.0
}

fn identity(page: &mut Page, record: &Record) {
    let spec = &record.desired.spec;
    let status = &record.desired.status;
    page.field("Id", record.id());
    page.field("State", format_args!("{} ({})", status.phase, status.reason.as_str()));
    page.field("Message", &status.message);
    page.field("Since", status.since);
    page.field("Created", record.created_at);
    match record.desired.expires_at {
        Some(at) => page.field("Expires", at),
        None => page.field("Expires", "never"),
    }
    page.field("Image", &spec.image);
    if let Some(digest) = &spec.image_digest {
        page.field("Digest", digest.as_str());
    }
    match (record.template, spec.snapshot) {
        (Some(template), _) => page.field("Template", template),
        (None, Some(snapshot)) => page.field("Snapshot", snapshot),
        (None, None) => {}
    }
    if let Some(platform) = &record.platform {
        page.field("Platform", format_args!("{}/{}", platform.os, platform.arch));
    }
    page.field("Entrypoint", words(&spec.entrypoint));
    page.field("Secure access", if record.secure_access.is_some() { "on" } else { "off" });
}

fn resources(page: &mut Page, spec: &SandboxSpec, used: Option<&Used>) {
    let limits = &spec.resources;
    let bytes = |limit: Option<Memory>| limit.map(|limit| format!("{} bytes", limit.bytes()));
    let cores =
        |limit: Cpu| format!("{}.{:03} cores", limit.millis() / 1000, limit.millis() % 1000);
    page.heading("Resources");
    page.resource(
        "cpu",
        limits.cpu.map(cores),
        used.map(|used| format!("{} ms used so far", used.cpu.as_millis())),
    );
    let memory = used.map(|used| match used.memory_peak {
        Some(peak) => format!("{} bytes in use, {peak} at most", used.memory),
        None => format!("{} bytes in use", used.memory),
    });
    page.resource("memory", bytes(limits.memory), memory);
    page.resource(
        "processes",
        limits.pids.map(|pids| pids.to_string()),
        used.map(|used| format!("{} in use", used.processes)),
    );
    let disk = used.and_then(|used| used.disk).map(|disk| format!("{disk} bytes in use"));
    page.resource("disk", bytes(limits.disk), disk);
}

fn network(page: &mut Page, record: &Record, policy: Option<&NetworkPolicy>) {
    page.heading("Network");
    let Some(NetworkPolicy { default_action, egress }) = policy else {
        return page.item("the runtime of this server does not control what sandboxes reach");
    };
    let word = |action| match action {
        NetworkAction::Allow => "allow",
        NetworkAction::Deny => "deny",
    };
    let default = word(default_action.unwrap_or(NetworkAction::Deny));
    page.item(&format!("default: {default}, {} rules", egress.len()));
    for rule in egress.iter().take(MOST_RULES) {
        let mut text = format!("{} {}", word(rule.action), rule.target);
        for (what, list) in [
            ("ports", rule.ports.as_ref().map(|ports| words(ports))),
            ("methods", rule.methods.as_ref().map(|methods| words(methods))),
            ("paths", rule.paths.as_ref().map(|paths| words(paths))),
        ] {
            if let Some(list) = list {
                // A string takes any text.
                write!(text, " {what} {list}").ok();
            }
        }
        page.item(&text);
    }
    if egress.len() > MOST_RULES {
        page.item(&format!("and {} more rules", egress.len() - MOST_RULES));
    }
    page.item(if record.credential_proxy {
        "credential proxy: on"
    } else {
        "credential proxy: off"
    });
}

fn volume(volume: &Volume) -> String {
    let Volume { source, sub_path, at, read_only } = volume;
    let source = match source {
        VolumeSource::Host(path) => format!("host {}", path.display()),
        VolumeSource::Named { name, .. } => format!("volume {name}"),
        VolumeSource::Tmpfs { size } => format!("memory of {} bytes", size.bytes()),
    };
    let part = if sub_path.as_os_str().is_empty() {
        String::new()
    } else {
        format!(", its part {}", sub_path.display())
    };
    let mode = if *read_only { ", read-only" } else { "" };
    format!("{}: {source}{part}{mode}", at.display())
}

fn masked(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |name: &str| HARMLESS.contains(&name) || name.starts_with("LC_");
    env.iter()
        .map(|(name, value)| (name.clone(), if shown(name) { value } else { MASK }.to_owned()))
        .collect()
}

/// A list as JSON, so that it is clear where each word ends.
fn words<T: serde::Serialize>(words: &[T]) -> String {
    serde_json::to_string(words).unwrap_or_default()
}

/// Lines of text.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        self.0.extend(
            text.chars()
                .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }),
        );
        self.0.push('\n');
    }

    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        self.line(&format!("{:<15}{value}", format!("{name}:")));
    }

    fn heading(&mut self, name: &str) {
        self.line(&format!("{name}:"));
    }

    fn item(&mut self, text: &str) {
        self.line(&format!("  {text}"));
    }

    fn resource(&mut self, name: &str, limit: Option<String>, used: Option<String>) {
        let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
        let used = used.map(|used| format!(", {used}")).unwrap_or_default();
        self.item(&format!("{name}: {limit}{used}"));
    }

    fn pairs(&mut self, name: &str, pairs: &BTreeMap<String, String>) {
        self.list(name, pairs.iter().map(|(key, value)| format!("{key}={value}")));
    }

    fn list(&mut self, name: &str, items: impl ExactSizeIterator<Item = String>) {
        if items.len() == 0 {
            return self.field(name, "none");
        }
        self.heading(name);
        for item in items {
            self.item(&item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_unless_they_tell_nothing() {
        let env = [("PATH", "/bin"), ("LC_ALL", "C"), ("DATABASE_URL", "pg://u:p@h"), ("KEY", "k")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let shown = masked(&env);
        assert_eq!((shown["PATH"].as_str(), shown["LC_ALL"].as_str()), ("/bin", "C"));
        assert_eq!((shown["DATABASE_URL"].as_str(), shown["KEY"].as_str()), (MASK, MASK));
    }

    #[test]
    fn a_value_stays_on_its_line() {
        let mut page = Page::default();
        page.field("Message", "a\nState: Running");
        assert_eq!(page.0, "Message:       a\\nState: Running\n");
    }
}
