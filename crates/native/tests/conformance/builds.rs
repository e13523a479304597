//! What builds need: files in memory, and what a sandbox wrote.

use std::{sync::Arc, time::Duration};

use osb_core::{LentFile, Runtime as _, RuntimeError, testkit::conformance::Harness as _};
use osb_image::{Kind, Stack};
use osb_sys::{fs, rootless::Rights, userns::IdBase};

use super::host;

fn lent(at: &str, content: &str) -> LentFile {
    let content: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(content.as_bytes().to_vec());
    LentFile { at: at.into(), content, mode: 0o440, user: 7, group: 0 }
}

#[tokio::test]
async fn a_lent_file_is_there_and_on_no_disk() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let builds = native.builds().unwrap();
    let spec = host.spec();
    let files = Arc::new(vec![lent("/srv/deep/a", "first"), lent("/srv/b", "second")]);
    builds.lend(spec.id, &files);
    native.ensure(&spec).await.unwrap();
    drop(files);
    assert_eq!(host.read(&spec, "/srv/deep/a").await.as_deref(), Some("first"));
    assert_eq!(host.read(&spec, "/srv/b").await.as_deref(), Some("second"));
    let written = builds.take(spec.id).await.unwrap();
    let own = Stack::of(written.files, IdBase(written.owners), Rights::current().unwrap());
    let place = own.root().unwrap().enter("srv".as_ref()).unwrap();
    // The places are there, and nothing is in them.
    assert_eq!(place.look("b".as_ref()).unwrap().unwrap().size, 0);
    drop(written.hold);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn what_is_lent_and_given_up_is_nobodys() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let spec = host.spec();
    native.builds().unwrap().lend(spec.id, &Arc::new(vec![lent("/srv/a", "first")]));
    native.ensure(&spec).await.unwrap();
    assert_eq!(host.read(&spec, "/srv/a").await, None);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn what_a_sandbox_wrote_is_there_until_it_is_let_go() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let builds = native.builds().unwrap();
    let spec = host.spec();
    native.ensure(&spec).await.unwrap();
    host.write(&spec, "/srv/file", "written").await;
    let written = builds.take(spec.id).await.unwrap();
    assert_eq!(written.oom_kills, 0);
    let group = host.group_of(&spec.id.to_string());
    assert!(!group.exists(), "something runs in it");
    let own = Stack::of(written.files, IdBase(written.owners), Rights::current().unwrap());
    let place = own.root().unwrap().enter("srv".as_ref()).unwrap();
    let seen = place.look("file".as_ref()).unwrap().unwrap();
    assert_eq!((seen.kind, seen.size, seen.user), (Kind::File, 7, 0));
    // A removal waits for it.
    let removing = native.remove(spec.id);
    tokio::pin!(removing);
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut removing).await;
    assert!(waited.is_err(), "it was removed");
    let directory = host.directory.path().join(format!("sandboxes/{}", spec.id));
    assert!(directory.exists());
    drop(written.hold);
    removing.await.unwrap();
    assert!(!directory.exists());
    let gone = builds.take(spec.id).await.unwrap_err();
    assert!(matches!(gone, RuntimeError::NotFound(_)), "{gone}");
    assert!(fs::names(host.directory.path().join("sandboxes")).unwrap().is_empty());
}
