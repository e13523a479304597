//! Which control groups are found again.

use osb_core::{ObservedState, Runtime as _, testkit::conformance::Harness as _};
use osb_native::{Config, Native, StartError};
use osb_sys::{cgroup::Limits, fs, rootless::Rights};

use super::host;

#[tokio::test]
async fn a_sandbox_whose_directory_is_gone_is_ended_by_the_next_server() {
    let Some(host) = host().await else { return };
    if host.native().pause().is_none() {
        return eprintln!("not run: there are no control groups");
    }
    let (lost, kept) = (host.spec(), host.spec());
    for spec in [&lost, &kept] {
        host.native().ensure(spec).await.unwrap();
    }
    let group = host.group_of(&lost.id.to_string());
    host.native().release().unwrap();
    osb_sys::tree::remove(&host.directory.path().join(format!("sandboxes/{}", lost.id))).unwrap();
    assert!(!group.processes().is_empty(), "nobody knows of it, and it runs");
    let next = host.reopen().await;
    assert!(!group.exists());
    assert_eq!(host.read(&kept, "/etc/hostname").await.as_deref(), Some("sandbox\n"));
    next.remove(kept.id).await.unwrap();
}

#[tokio::test]
async fn two_servers_do_not_share_a_control_group() {
    let Some(host) = host().await else { return };
    if host.native().pause().is_none() {
        return eprintln!("not run: there are no control groups");
    }
    let copy = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(copy.path().join("group"), fs::read(host.directory.path().join("group")).unwrap())
        .unwrap();
    let config = Config { data_dir: copy.path().to_owned(), ..host.config(Vec::new()) };
    let refused = Native::start(config.clone(), osb_bundle::EXECD).await.unwrap_err();
    assert!(matches!(refused, StartError::Groups(_)), "{refused}");
    fs::remove_file(copy.path().join("group")).unwrap();
    Native::start(config, osb_bundle::EXECD).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_from_before_there_were_tags_lives_on() {
    let Some(host) = host().await else { return };
    if Rights::current().unwrap() == Rights::User {
        return eprintln!("not run: whoever is not root had none");
    }
    let spec = host.spec();
    host.native().ensure(&spec).await.unwrap();
    let (tagged, untagged) = (host.group_of(&spec.id.to_string()), host.untagged(spec.id));
    untagged.create(&Limits::default()).unwrap();
    for pid in tagged.processes() {
        for door in untagged.doors() {
            let pid = pid.as_raw_nonzero().to_string();
            fs::write(door.with_file_name("cgroup.procs"), pid).unwrap();
        }
    }
    let path = host.directory.path().join(format!("sandboxes/{}/state.json", spec.id));
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    state.as_object_mut().unwrap().remove("group").unwrap();
    fs::write(&path, state.to_string()).unwrap();

    let next = host.reopen().await;
    let seen: Vec<_> = next.list().await.unwrap().into_iter().map(|seen| seen.state).collect();
    assert_eq!(seen, [ObservedState::Running]);
    assert!(!tagged.exists());
    next.remove(spec.id).await.unwrap();
    assert!(!untagged.exists());
}
