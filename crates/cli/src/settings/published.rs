//! The keys of the published server, and what becomes of each here.

use toml::de::DeValue;

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// It is another name for this key of ours, in the same table.
    Is(&'static str),
    /// The address and the port of `listen`.
    Host,
    Port,
    /// It changes nothing, and this is why. Nobody is worse off.
    Idle(&'static str),
    /// It is as asked for if the value passes; otherwise it is refused, since somebody relies on it.
    Promise(fn(&DeValue<'_>) -> bool, &'static str),
    /// The same, but even then it changes nothing, for the first reason.
    Bound(fn(&DeValue<'_>) -> bool, &'static str, &'static str),
}

use Fate::{Bound, Host, Idle, Is, Port, Promise};

/// What becomes of a key of the published server, by its path.
pub(super) fn fate(path: &str) -> Option<Fate> {
    KEYS.iter().find(|(key, _)| *key == path).map(|(_, fate)| *fate)
}

/// The keys of one of its tables.
pub(super) fn keys_of(table: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(move |(path, _)| {
        let below = match table {
            "" => path,
            _ => path.strip_prefix(table)?.strip_prefix('.')?,
        };
        below.split('.').next()
    })
}

/// Whether this is one of its tables.
pub(super) fn is_table(path: &str) -> bool {
    keys_of(path).next().is_some()
}

const HTTP: &str = "HTTP is not served by another library here";
const DOCKER: &str = "sandboxes run on this host, and no Docker daemon is asked";
const PORTS: &str = "no port is published on the host: the server's gateway leads to all of them";
const CLUSTER: &str = "sandboxes run on this host, and no cluster is asked";
const OTEL: &str = "this server exports no OpenTelemetry; GET /metrics has its numbers";
const SIDECAR: &str = "policies are kept by the server itself, and there is no sidecar";
const LOG_FILE: &str = "the log goes to standard error, for whoever started the server to keep";
const POSTGRES: &str = "the database is a file in the data directory";
const REDIS: &str = "renewals need no queue";
const EXECD: &str = "execd is part of this program, and the first process of every sandbox";

const NO_PROXY: &str = "the server connects to hosts itself, so that what sandboxes send would not go \
                        through this proxy: leave the table out if that is acceptable";
const NO_TENANTS: &str = "this version has one key for everybody, so that tenants would not be kept \
                          apart: leave the table out, or run a server for each tenant";
const NO_RUNTIME: &str = "sandboxes are kept apart by the kernel of this host, and not by another \
                          runtime: leave it out if that is acceptable";
const NO_SIGNING: &str = "this server does not check URLs that are signed with these keys: leave the \
                          table out";
const NO_GATEWAY: &str = "this server is its own gateway: write \"direct\" or leave it out, and name the \
                          host that clients reach in server.public-host";
const NO_BINDS: &str = "no directory is shown to every sandbox: name it in storage.allowed-host-paths, \
                        and ask for it as a volume";

#[rustfmt::skip]
const KEYS: &[(&str, Fate)] = &[
    ("server.host", Host),
    ("server.port", Port),
    ("server.eip", Is("public-host")),
    ("server.timeout_graceful_shutdown", Is("drain-seconds")),
    ("server.timeout_keep_alive", Idle("idle connections are kept for a minute")),
    ("server.backlog", Idle("the kernel's own limit holds")),
    ("server.limit_concurrency", Idle("connections are limited instead, and more of them wait")),
    ("server.thread_pool_size", Idle("requests need no threads of their own")),
    ("server.loop", Idle(HTTP)),
    ("server.http", Idle(HTTP)),
    ("proxy.resolve_internal", Idle("the gateway reaches sandboxes without addresses")),
    ("log.file_enabled", Idle(LOG_FILE)),
    ("log.file_path", Idle(LOG_FILE)),
    ("log.access_file_path", Idle(LOG_FILE)),
    ("log.file_max_bytes", Idle(LOG_FILE)),
    ("log.file_backup_count", Idle(LOG_FILE)),
    ("runtime.execd_image", Idle(EXECD)),
    ("runtime.execd_run_as_init", Idle(EXECD)),
    ("docker.network_mode", Idle("every sandbox has a network of its own, and reaches what its policy says")),
    ("docker.api_timeout", Idle(DOCKER)),
    ("docker.host_ip", Idle(PORTS)),
    ("docker.drop_capabilities", Promise(are_not_kept, "sandboxes keep the powers over their own files and \
        users that programs expect: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETFCAP, SETGID, SETPCAP, SETUID \
        and SYS_CHROOT cannot be taken from them")),
    ("docker.apparmor_profile", Promise(is_empty, "no AppArmor profile is put on: leave it out if that is acceptable")),
    ("docker.seccomp_profile", Promise(is_empty, "sandboxes have a filter of system calls that is built in, and \
        this one would not be put on: leave it out if that is acceptable")),
    ("docker.no_new_privileges", Idle("it is always so")),
    ("docker.pids_limit", Bound(is_enough_processes, "a sandbox may have 1024 processes", "a sandbox may \
        have 1024 processes: this limit would not be kept")),
    ("docker.port_range_min", Idle(PORTS)),
    ("docker.port_range_max", Idle(PORTS)),
    ("docker.publish_host", Idle(PORTS)),
    ("docker.sandbox_env", Promise(is_empty, "no variables are given to every sandbox: name them when making one")),
    ("docker.sandbox_binds", Promise(is_empty, NO_BINDS)),
    ("kubernetes.kubeconfig_path", Idle(CLUSTER)),
    ("kubernetes.namespace", Idle(CLUSTER)),
    ("kubernetes.workload_provider", Idle(CLUSTER)),
    ("kubernetes.batchsandbox_template_file", Idle(CLUSTER)),
    ("kubernetes.insecure_skip_tls_verify", Idle(CLUSTER)),
    ("kubernetes.informer_resync_seconds", Idle(CLUSTER)),
    ("kubernetes.informer_watch_timeout_seconds", Idle(CLUSTER)),
    ("kubernetes.read_qps", Idle(CLUSTER)),
    ("kubernetes.read_burst", Idle(CLUSTER)),
    ("kubernetes.write_qps", Idle(CLUSTER)),
    ("kubernetes.write_burst", Idle(CLUSTER)),
    ("kubernetes.sandbox_create_timeout_seconds", Idle(CLUSTER)),
    ("kubernetes.sandbox_create_poll_interval_seconds", Idle(CLUSTER)),
    ("kubernetes.pool_acquisition_timeout_seconds", Idle(CLUSTER)),
    ("kubernetes.image_pull_policy", Idle(CLUSTER)),
    ("kubernetes.execd_init_resources", Idle(CLUSTER)),
    ("kubernetes.fastpath_endpoint", Idle(CLUSTER)),
    ("kubernetes.fastpath_timeout_seconds", Idle(CLUSTER)),
    ("kubernetes.fastpath_wait_ready_seconds", Idle(CLUSTER)),
    ("kubernetes.fastpath_resource_pool", Idle(CLUSTER)),
    ("kubernetes.template_s3_publish_secret", Idle(CLUSTER)),
    ("agent_sandbox.template_file", Idle(CLUSTER)),
    ("agent_sandbox.shutdown_policy", Idle(CLUSTER)),
    ("agent_sandbox.ingress_enabled", Idle(CLUSTER)),
    ("ingress.mode", Promise(|value| is_text(value, &["direct"]), NO_GATEWAY)),
    ("ingress.gateway", Promise(is_empty, NO_GATEWAY)),
    ("ingress.secure_access", Promise(is_empty, NO_SIGNING)),
    ("egress.image", Idle(SIDECAR)),
    ("egress.mode", Idle("names and addresses are always judged both")),
    ("egress.disable_ipv6", Idle("addresses of both kinds are judged by the same policy")),
    ("egress.otlp_endpoint", Idle(OTEL)),
    ("egress.readiness_timeout_seconds", Idle(SIDECAR)),
    ("egress.requests", Idle(SIDECAR)),
    ("egress.limits", Idle(SIDECAR)),
    ("egress.upstream_proxy", Promise(is_empty, NO_PROXY)),
    ("storage.volume_default_size", Idle("volumes with names are as large as they become")),
    ("storage.ossfs_mount_root", Idle("this server has no volumes of object storage, and refuses them")),
    ("store.type", Promise(|value| is_text(value, &["sqlite"]), "what sandboxes there are is kept in the data \
        directory: write \"sqlite\" or leave it out")),
    ("store.path", Idle("the database is in server.data-dir")),
    ("store.postgresql", Idle(POSTGRES)),
    ("secure_runtime.type", Promise(is_empty, NO_RUNTIME)),
    ("secure_runtime.docker_runtime", Promise(is_empty, NO_RUNTIME)),
    ("secure_runtime.k8s_runtime_class", Promise(is_empty, NO_RUNTIME)),
    ("renew_intent.enabled", Promise(is_off, "this server does not renew sandboxes that are used, so that they \
        would end: renew them, or make them with a longer timeout")),
    ("renew_intent.min_interval_seconds", Idle(REDIS)),
    ("renew_intent.redis", Idle(REDIS)),
    ("otel.enabled", Idle(OTEL)),
    ("otel.endpoint", Idle(OTEL)),
    ("otel.service_name", Idle(OTEL)),
    ("otel.export_interval_millis", Idle(OTEL)),
    ("tenants", Promise(|_| false, NO_TENANTS)),
];

/// Nothing is asked for.
fn is_empty(value: &DeValue<'_>) -> bool {
    value.as_str().is_some_and(str::is_empty)
        || value.as_array().is_some_and(|list| list.is_empty())
        || value.as_table().is_some_and(toml::map::Map::is_empty)
}

fn is_off(value: &DeValue<'_>) -> bool {
    value.as_bool() == Some(false)
}

fn is_text(value: &DeValue<'_>, these: &[&str]) -> bool {
    value.as_str().is_some_and(|text| these.contains(&text))
}

/// As many as a sandbox may have here, or more.
fn is_enough_processes(value: &DeValue<'_>) -> bool {
    let number = value.as_integer().and_then(|number| {
        i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
    });
    number.is_some_and(|number| number >= 1024)
}

/// Capabilities that sandboxes do not have, or that are of no use in the namespace of a sandbox.
fn are_not_kept(value: &DeValue<'_>) -> bool {
    const KEPT: [&str; 11] = [
        "ALL",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    value.as_array().is_some_and(|list| {
        list.iter().all(|item| {
            item.get_ref().as_str().is_some_and(|name| {
                let name = name.to_ascii_uppercase();
                !KEPT.contains(&name.strip_prefix("CAP_").unwrap_or(&name))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::settings::shape::Shape;

    #[test]
    fn a_key_has_one_fate_and_is_not_one_of_ours() {
        let file = Shape::of_file();
        let ours: HashSet<String> =
            file.leaves().into_iter().map(|leaf| leaf.replace('-', "_")).collect();
        let mut seen = HashSet::new();
        for (path, fate) in KEYS {
            assert!(seen.insert(path), "{path} is there twice");
            assert!(!ours.contains(*path), "{path} is a setting of this server");
            assert!(!path.contains('-'), "{path} is not as the published server writes it");
            if let Fate::Is(key) = fate {
                let (table, _) = path.split_once('.').unwrap();
                assert!(file.field(table).unwrap().shape.field(key).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn tables_and_their_keys_are_found() {
        assert!(is_table("docker") && is_table("store") && !is_table("dock"));
        assert!(keys_of("docker").any(|key| key == "pids_limit"));
        assert!(keys_of("").any(|key| key == "tenants"));
    }
}
