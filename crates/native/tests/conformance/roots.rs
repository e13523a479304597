//! Images whose root is not what one expects: with little in it, or with something else in the way.

use std::path::Path;

use osb_core::{Runtime as _, RuntimeError, testkit::conformance::Harness as _};
use osb_image::RunConfiguration;

use super::{
    ask, host,
    images::{on, run},
    made::{self, Layer},
};

#[tokio::test]
async fn a_program_alone_is_image_enough() {
    let Some(host) = host().await else { return };
    let native = host.native();
    // execd needs nothing but the kernel.
    let layer = Layer::new().program(Path::new("agent"), osb_bundle::EXECD, 0o755).end();
    made::put(native.images(), "alone", &[layer], RunConfiguration::default());
    let mut spec = on(&host, "alone");
    spec.entrypoint = ["/agent", "--port", "40000"].map(str::to_owned).to_vec();
    native.ensure(&spec).await.unwrap();
    let ran = ask(&host, &spec, "POST /command", r#"{"argv": ["/agent", "--help"]}"#).await;
    assert!(ran.1.contains("execution_complete"), "{ran:?}");
    let ran = ask(&host, &spec, "POST /command", r#"{"command": "echo hello"}"#).await;
    assert!(ran.1.contains("neither bash nor sh"), "{ran:?}");
    for path in ["/proc/self/status", "/dev/null", "/sys/kernel", "/etc/hosts"] {
        let line = format!("GET /files/info?path={path}");
        assert_eq!(ask(&host, &spec, &line, "").await.0, 200, "{path}");
    }
    assert!(host.read(&spec, "/etc/resolv.conf").await.unwrap().contains("nameserver"));
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn whoever_is_to_do_nothing_needs_no_program_for_it() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let layer = Layer::new().program(Path::new("agent"), osb_bundle::EXECD, 0o755).end();
    made::put(native.images(), "alone", &[layer], RunConfiguration::default());
    let mut spec = on(&host, "alone");
    spec.entrypoint = osb_core::agent::IDLE.map(str::to_owned).to_vec();
    native.ensure(&spec).await.unwrap();
    // It is there to stay.
    for _ in 0..2 {
        let ran = ask(&host, &spec, "POST /command", r#"{"argv": ["/agent", "--help"]}"#).await;
        assert!(ran.1.contains("execution_complete"), "{ran:?}");
    }
    native.remove(spec.id).await.unwrap();
    assert!(native.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_is_mounted_where_a_link_of_an_image_leads() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let link = |at: &str, to: &str| made::programs(Layer::new()).link(at, to).end();
    let hostile = [
        ("proc", link("proc", "/etc")),
        ("proc", link("proc", "usr")),
        ("sys", link("sys", "../below/files/upper")),
        ("dev", link("dev", "../../..")),
        ("dev", link("dev", "/")),
        ("dev", link("dev", "nowhere")),
        ("proc", made::programs(Layer::new()).file("proc", "a file").end()),
        ("dev", made::programs(Layer::new()).file("dev", "a file").end()),
    ];
    for (place, layer) in hostile {
        made::put(native.images(), "hostile", &[layer], RunConfiguration::default());
        let spec = on(&host, "hostile");
        let refused = native.ensure(&spec).await;
        let Err(RuntimeError::Invalid(why)) = refused else { panic!("{place}: {refused:?}") };
        assert!(why.contains(&format!("/{place}")), "{why}");
        assert!(native.list().await.unwrap().is_empty());
    }
    // What stands on the same programs is as it was.
    let layer = made::programs(Layer::new()).end();
    made::put(native.images(), "harmless", &[layer], RunConfiguration::default());
    let spec = on(&host, "harmless");
    native.ensure(&spec).await.unwrap();
    let found = run(&host, &spec, "ls /").await;
    assert_eq!(found, ["bin", "dev", "etc", "lib", "lib64", "opt", "proc", "sys", "usr"]);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn whatever_an_image_has_in_etc_hosts_are_found() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let etc = || made::programs(Layer::new()).directory("etc", 0o755);
    let layers = [
        ("missing", made::programs(Layer::new())),
        ("dangling", etc().link("etc/resolv.conf", "../run/nowhere").link("etc/hosts", "hosts")),
        ("directories", etc().directory("etc/hosts", 0o755).directory("etc/resolv.conf", 0)),
        ("another machine's", etc().file("etc/resolv.conf", "nameserver 10.0.0.1\n")),
        ("a link", made::programs(Layer::new()).link("etc", "usr")),
        ("a file", made::programs(Layer::new()).file("etc", "text")),
    ];
    for (what, layer) in layers {
        made::put(native.images(), "odd", &[layer.end()], RunConfiguration::default());
        let spec = on(&host, "odd");
        native.ensure(&spec).await.unwrap();
        let resolver = host.read(&spec, "/etc/resolv.conf").await;
        assert!(resolver.is_some_and(|text| text.contains("198.18.0.2")), "{what}");
        let hosts = host.read(&spec, "/etc/hosts").await;
        assert!(hosts.is_some_and(|text| text.contains("localhost")), "{what}");
        run(&host, &spec, "echo 127.0.0.1 mine >> /etc/hosts").await;
        native.remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_root_that_takes_no_new_files_is_no_obstacle() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let layer = made::programs(Layer::new().directory("", 0o555));
    let layer = layer.directory("etc", 0o500).file("opt", "where execd would have a file");
    let config = RunConfiguration { working_dir: "/new/here".to_owned(), ..Default::default() };
    made::put(native.images(), "closed", &[layer.end()], config);
    let spec = on(&host, "closed");
    native.ensure(&spec).await.unwrap();
    let said = run(&host, &spec, "pwd; stat -c %a /new/here").await;
    assert_eq!(said, ["/new/here", "755"]);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn accounts_that_lead_elsewhere_or_never_end_are_nobodys() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let etc = || made::programs(Layer::new()).directory("etc", 0o755);
    let endless = "x".repeat(8 << 20);
    let layers = [
        etc().link("etc/passwd", "../../../../etc/passwd"),
        etc().link("etc/passwd", "/etc/passwd"),
        etc().directory("etc/passwd", 0o755),
        etc().file("etc/passwd", &endless),
        made::programs(Layer::new()).link("etc", "/"),
    ];
    for layer in layers {
        let config = RunConfiguration { user: "daemon".to_owned(), ..Default::default() };
        made::put(native.images(), "odd", &[layer.end()], config);
        let refused = native.ensure(&on(&host, "odd")).await;
        let Err(RuntimeError::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("daemon"), "{why}");
    }
    // A number needs nobody to know it.
    let config = RunConfiguration { user: "77:78".to_owned(), ..Default::default() };
    made::put(native.images(), "odd", &[etc().link("etc/passwd", "passwd").end()], config);
    let spec = on(&host, "odd");
    native.ensure(&spec).await.unwrap();
    assert_eq!(run(&host, &spec, "id -u; id -g; echo $HOME").await, ["77", "78", "/"]);
    native.remove(spec.id).await.unwrap();
}
