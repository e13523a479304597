use clap::Parser as _;
use osb_server::KeyConfig;
use secrecy::SecretString;

use super::*;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn flags(line: &[&str]) -> Flags {
    Line::try_parse_from([&["server"], line].concat()).unwrap().flags
}

fn load(flags: &Flags, environment: &Environment) -> Result<Settings, Failure> {
    Settings::load(flags, environment, User::Root)
}

/// What the server makes of a configuration file.
fn start(text: &str) -> Result<Settings, Failure> {
    start_as(text, &[], &Environment::default())
}

fn start_as(text: &str, line: &[&str], environment: &Environment) -> Result<Settings, Failure> {
    let file = tempfile::NamedTempFile::new().unwrap();
    osb_sys::fs::write(file.path(), text).unwrap();
    load(&flags(&[&["--config", file.path().to_str().unwrap()], line].concat()), environment)
}

#[track_caller]
fn refusal(text: &str) -> String {
    match start(text) {
        Err(Failure::Usage(said)) => said,
        other => panic!("{text:?} came to {other:?}"),
    }
}

fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let text = "[server]\nlisten = '127.0.0.1:1'\ndata-dir = '/file'\n";
    let config = start(text).unwrap().config;
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.data_dir, PathBuf::from("/file"));
    assert!(matches!(config.key, KeyConfig::DataDir));
    let environment = Environment {
        data_dir: Some("/environment".into()),
        api_key: Some(secret("key")),
        ..Environment::default()
    };
    let config = start_as(text, &[], &environment).unwrap().config;
    assert_eq!(config.data_dir, PathBuf::from("/environment"));
    assert!(matches!(config.key, KeyConfig::Environment(_)));
    let line = ["--data-dir", "/flag", "--listen", "127.0.0.1:2"];
    let config = start_as(text, &line, &environment).unwrap().config;
    assert_eq!((config.listen.port(), config.data_dir), (2, PathBuf::from("/flag")));
}

#[test]
fn the_published_servers_variables_are_read() {
    use secrecy::ExposeSecret as _;
    let file = tempfile::NamedTempFile::new().unwrap();
    osb_sys::fs::write(file.path(), "[server]\nlisten = '127.0.0.1:3'").unwrap();
    let environment = Environment {
        config: Some(file.path().to_owned()),
        api_key: Some(secret("clients")),
        server_api_key: Some(secret("servers")),
        ..Environment::default()
    };
    let config = load(&flags(&[]), &environment).unwrap().config;
    assert_eq!(config.listen.port(), 3);
    let KeyConfig::Environment(key) = config.key else { panic!("another key") };
    assert_eq!(key.expose_secret(), "servers");
    let other = tempfile::NamedTempFile::new().unwrap();
    let line = flags(&["--config", other.path().to_str().unwrap()]);
    assert_eq!(load(&line, &environment).unwrap().config.listen.port(), 8080);
}

#[test]
fn without_settings_everybody_has_a_place() {
    let environment = Environment { home: Some("/home/ada".into()), ..Environment::default() };
    let place = |user| Settings::load(&flags(&[]), &environment, user).unwrap().config.data_dir;
    assert_eq!(place(User::Root), PathBuf::from("/var/lib/opensandbox"));
    assert_eq!(place(User::Other), PathBuf::from("/home/ada/.local/share/opensandbox"));
}

#[test]
fn a_server_without_a_key_stays_on_loopback() {
    let empty = Environment::default();
    assert!(load(&flags(&["--no-auth"]), &empty).is_ok());
    let open = flags(&["--no-auth", "--listen", "0.0.0.0:8080"]);
    assert!(matches!(load(&open, &empty), Err(Failure::Usage(_))));
}

#[test]
fn who_listens_to_the_network_in_the_clear_is_warned() {
    let warnings = |text: &str| start(text).unwrap().warnings;
    assert!(warnings("").is_empty());
    let said = warnings("[server]\nlisten = '0.0.0.0:8080'");
    assert!(said.len() == 1 && said[0].contains("without TLS"), "{said:?}");
}

#[test]
fn the_disk_of_sandboxes_that_do_not_say_is_an_amount() {
    let disk = |text: &str| start(text).map(|settings| settings.host.default_disk);
    let ten = Some(Memory::from_bytes(10 << 30));
    assert_eq!(disk("[native]\ndefault-disk = '10Gi'").unwrap(), ten);
    assert_eq!(disk("").unwrap(), None);
    assert!(refusal("[native]\ndefault-disk = 'all'").contains("native.default-disk"));
}

#[test]
fn every_table_is_checked_at_the_start() {
    assert!(start("[egress]\ndefault = 'deny'\nallow = ['*.example.com']\n").is_ok());
    assert_eq!(start("[audit]\nkeep-disk = '2Gi'").unwrap().config.audit.bytes, 2 << 30);
    for text in [
        "[egress]\nallow = ['http://x']",
        "[audit]\nkeep-days = 0",
        "[audit]\nkeep-disk = 'little'",
        "[log]\nlevel = 'loud'",
        "[storage]\nallowed-host-paths = ['/']",
        "[images]\nmax-image-size = 'all'",
        "[[pool]]\nimage = 'host'\nsize = 0",
        "[[pool]]\nimage = 'host'",
        "[server]\nlisten = 5",
        "[server",
    ] {
        refusal(text);
    }
}

#[test]
fn what_is_not_known_is_told_with_its_line_and_what_was_meant() {
    for (text, line, hint) in [
        (
            "[server]\n\nlissten = '127.0.0.1:1'",
            3,
            "server.lissten is no setting: did you mean `listen`?",
        ),
        ("[sever]\nlisten = ''", 1, "did you mean `server`?"),
        ("listen = ''", 1, "did you mean `server.listen`, in another table?"),
        ("[egress.vault]\nrequire_tsl = true", 2, "did you mean `require-tls`?"),
        ("[egress.vault.store]\nadress = ''", 2, "did you mean `address`?"),
        ("[[pool]]\nimage = 'a'\nsize = 1\n[[pool]]\nimag = 'b'", 5, "did you mean `image`?"),
        ("[images.registries.'r.test']\nmirors = []", 2, "did you mean `mirrors`?"),
        (
            "[docker]\nnetwork_mod = 'x'",
            2,
            "docker.network_mod is no setting: did you mean `network_mode`?",
        ),
        ("[server]\ncolour = 1", 2, "server.colour is no setting"),
        ("[server]\nlisten = 1", 2, "expected"),
    ] {
        let said = refusal(text);
        assert!(said.contains(&format!("line {line}: ")) && said.contains(hint), "{said}");
    }
    // All at once, and names of the operator's are not judged.
    let said = refusal("[server]\na = 1\nb = 2");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(start("[images.aliases]\n'any_name' = 'host'").is_ok());
}

#[test]
fn a_file_of_the_published_server_migrates() {
    let settings = start(
        r#"
        [server]
        host = "127.0.0.1"
        port = 9_000
        api_key = "a-published-key"
        eip = "sandboxes.example.com"
        max_sandbox_timeout_seconds = 7200
        timeout_graceful_shutdown = 7
        loop = "uvloop"
        [log]
        level = "WARNING"
        [runtime]
        type = "native"
        execd_image = "opensandbox/execd:v1"
        [docker]
        network_mode = "bridge"
        drop_capabilities = ["AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE"]
        apparmor_profile = ""
        seccomp_profile = ""
        no_new_privileges = true
        pids_limit = 4096
        sandbox_binds = []
        [ingress]
        mode = "direct"
        [egress]
        image = "opensandbox/egress:v1"
        mode = "dns"
        [storage]
        allowed_host_paths = ["/srv/data"]
        ossfs_mount_root = "/mnt/ossfs"
        [store]
        type = "sqlite"
        path = "~/.opensandbox/opensandbox.db"
        [store.postgresql]
        min_pool_size = 1
        [renew_intent]
        enabled = false
        redis.enabled = false
        "#,
    )
    .unwrap();
    let Settings { config, host, level, warnings, .. } = settings;
    assert_eq!(config.listen.to_string(), "127.0.0.1:9000");
    assert!(matches!(config.key, KeyConfig::File(_)));
    assert!(config.public_host.is_some());
    assert_eq!((config.max_sandbox_timeout_seconds, config.drain.as_secs()), (7200, 7));
    assert_eq!(host.host_paths, [PathBuf::from("/srv/data")]);
    assert_eq!(level, LevelFilter::WARN);
    let idle = [
        "server.loop",
        "runtime.execd_image",
        "docker.network_mode",
        "docker.no_new_privileges",
        "docker.pids_limit",
        "egress.image",
        "egress.mode",
        "storage.ossfs_mount_root",
        "store.path",
        "store.postgresql",
        "renew_intent.redis",
    ];
    for key in idle {
        let said = warnings.iter().filter(|said| said.contains(&format!(": {key} has no effect")));
        assert_eq!(said.count(), 1, "{key} in {warnings:#?}");
    }
    assert_eq!(warnings.len(), idle.len(), "{warnings:#?}");
}

#[test]
fn what_somebody_may_rely_on_is_refused() {
    for (text, why) in [
        ("[tenants]\nprovider = 'file'", "kept apart"),
        ("[tenants]", "kept apart"),
        ("[secure_runtime]\ntype = 'gvisor'", "kernel of this host"),
        ("[docker]\nseccomp_profile = '/p.json'", "filter of system calls"),
        ("[docker]\napparmor_profile = 'p'", "AppArmor"),
        ("[docker]\ndrop_capabilities = ['CAP_SETUID']", "SETUID"),
        ("[docker]\ndrop_capabilities = ['ALL']", "SETUID"),
        ("[docker]\npids_limit = 100", "1024"),
        ("[docker]\nsandbox_env = { A = '1' }", "variables"),
        ("[docker]\nsandbox_binds = ['/a:/b']", "allowed-host-paths"),
        ("[egress.upstream_proxy]\nurl = 'http://proxy:3128'", "proxy"),
        ("[ingress]\nmode = 'gateway'", "public-host"),
        ("[ingress.secure_access]\nactive_key = 'a'", "signed"),
        ("[store]\ntype = 'postgresql'", "sqlite"),
        ("[renew_intent]\nenabled = true", "renew"),
        ("[runtime]\ntype = 'docker'", "type = \"native\""),
        ("[runtime]\ntype = 'kubernetes'", "type = \"native\""),
        ("[runtime]\ntype = 'podman'", "podman"),
    ] {
        let said = refusal(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    let empty = Environment::default();
    let line = ["--runtime", "native"];
    assert_eq!(
        start_as("[runtime]\ntype = 'docker'", &line, &empty).unwrap().runtime,
        Kind::Native
    );
}

#[test]
fn a_setting_is_there_once() {
    for text in [
        "[server]\nlisten = '127.0.0.1:1'\nport = 2",
        "[server]\npublic-host = 'a'\neip = 'b'",
        "[storage]\nallowed-host-paths = []\nallowed_host_paths = []",
    ] {
        assert!(refusal(text).contains("is there twice"), "{text}");
    }
    let listen = |text: &str| start(text).unwrap().config.listen.to_string();
    assert_eq!(listen("[server]\nport = 1"), "127.0.0.1:1");
    assert_eq!(listen("[server]\nhost = '::1'"), "[::1]:8080");
    assert_eq!(listen("[server]\nhost = 'localhost'\nport = 0x10"), "127.0.0.1:16");
    for text in ["[server]\nhost = 'example.com'", "[server]\nport = 0", "[server]\nport = '80'"] {
        assert!(refusal(text).contains("server."), "{text}");
    }
}

#[test]
fn defaults_in_the_manual_are_those_of_the_program() {
    let said = |settings: Settings| {
        let Settings { config, runtime, host, images, level, warnings, effective: _ } = settings;
        format!("{config:?} {runtime:?} {host:?} {images:?} {level:?} {warnings:?}")
    };
    let plain = said(start("").unwrap());
    let mut checked = 0;
    for entry in manual::entries() {
        let Some(default) = entry.default().filter(|_| !entry.path.contains('*')) else { continue };
        let (table, key) = entry.path.rsplit_once('.').unwrap();
        let written = said(start(&format!("[{table}]\n{key} = {default}")).unwrap());
        assert_eq!(written, plain, "{}", entry.path);
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}

#[test]
fn what_holds_is_printed_with_its_origin_and_without_secrets() {
    let text = "[server]\nport = 81\napi_key = 'very-secret'\n[egress]\n\
                deny-webhook = 'https://x.test/very-secret'\nallow = ['a.test']\n\
                [[pool]]\nimage = 'host'\nsize = 2\ncode = ['python']\nenv.TOKEN = 'very-secret'\n";
    let environment = Environment { log: Some("debug".to_owned()), ..Environment::default() };
    let printed = start_as(text, &["--data-dir", "/flag"], &environment).unwrap().effective.print();
    assert!(!printed.contains("very-secret"), "{printed}");
    for line in [
        "listen = \"127.0.0.1:81\" # line 2",
        "data-dir = \"/flag\" # --data-dir",
        "api-key = \"***\" # line 3",
        "max-body-bytes = 1048576 # default",
        "# public-host: the one that they asked for",
        "level = \"debug\" # the variable OSB_LOG",
        "allow = [\"a.test\"] # line 6",
        "default = \"public\" # default",
        "# [server.tls]",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in {printed}");
    }
    // It can be read again, but for the secrets.
    let again = start(&printed.replace("\"***\"", "\"https://stars.test\"")).unwrap();
    assert_eq!(again.config.listen.port(), 81);
    assert_eq!(again.host.pools.len(), 1);
}

#[test]
fn what_a_reload_cannot_change_is_known() {
    let of = |text: &str| start(text).unwrap().effective;
    let started =
        of("[server]\nlisten = '127.0.0.1:1'\n[egress]\nconnections = 5\nallow = ['a.test']");
    let next = of(
        "[server]\nlisten = '127.0.0.1:2'\n[egress]\nallow = ['b.test']\n[log]\nlevel = 'warn'\n\
                   [audit]\nkeep-days = 3",
    );
    assert_eq!(
        started.kept_from(&next),
        ["audit.keep-days", "egress.connections", "server.listen"]
    );
    assert!(started.kept_from(&started).is_empty());
}
