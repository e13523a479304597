//! Hearing of changes to files.

use std::{
    os::{fd::AsRawFd, unix::fs::symlink},
    path::Path,
};

use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use osb_api::execd::{Change, ChangeKind};
use osb_sys::fs;

use crate::daemon::{Daemon, error, is_root, request, wait_for};

/// The changes below a path.
struct Changes {
    body: Incoming,
    arrived: Vec<u8>,
    waiting: Vec<Change>,
}

impl Changes {
    async fn of(daemon: &Daemon, query: &str) -> Self {
        let response = daemon.get(&format!("/files/watch?path={query}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let mut changes =
            Self { body: response.into_body(), arrived: Vec::new(), waiting: Vec::new() };
        assert_eq!(changes.next().await.unwrap().kind, ChangeKind::Ready);
        changes
    }

    /// The next change, or none at the end of the stream.
    async fn next(&mut self) -> Option<Change> {
        loop {
            while !self.waiting.is_empty() {
                let change = self.waiting.remove(0);
                if change.kind != ChangeKind::Ping {
                    assert!(change.timestamp > 0);
                    return Some(change);
                }
            }
            let frame = self.body.frame().await?.unwrap();
            self.arrived.extend_from_slice(&frame.into_data().unwrap());
            while let Some(at) = self.arrived.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.arrived.drain(..at + 2).collect();
                self.waiting.push(serde_json::from_slice(&frame).unwrap());
            }
        }
    }

    /// Waits for a change to a path, whatever else happens before.
    async fn wait_for(&mut self, kind: ChangeKind, path: &Path) -> Change {
        loop {
            let change = self.next().await.expect("the change is told before the end");
            if change.kind == kind && change.path.as_deref() == path.to_str() {
                return change;
            }
        }
    }
}

#[tokio::test]
async fn every_kind_of_change_is_told() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| top.path().join(name);
    let mut changes = Changes::of(&daemon, top.path().to_str().unwrap()).await;
    fs::write(at("a\u{2028}"), "content").unwrap();
    let created = changes.wait_for(ChangeKind::Created, &at("a\u{2028}")).await;
    assert_eq!(created.directory, Some(false));
    changes.wait_for(ChangeKind::Modified, &at("a\u{2028}")).await;
    fs::set_mode(at("a\u{2028}"), 0o600).unwrap();
    changes.wait_for(ChangeKind::Attrib, &at("a\u{2028}")).await;
    fs::rename(at("a\u{2028}"), at("b")).unwrap();
    let moved = changes.wait_for(ChangeKind::Moved, &at("b")).await;
    assert_eq!(moved.from.as_deref(), at("a\u{2028}").to_str());
    fs::remove_file(at("b")).unwrap();
    changes.wait_for(ChangeKind::Deleted, &at("b")).await;

    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(at("d"), 0o755).unwrap();
    assert_eq!(changes.wait_for(ChangeKind::Created, &at("d")).await.directory, Some(true));
    fs::write(at("d/unseen"), "").unwrap();
    fs::rename(at("d"), elsewhere.path().join("d")).unwrap();
    changes.wait_for(ChangeKind::Deleted, &at("d")).await;
    fs::rename(elsewhere.path().join("d"), at("back")).unwrap();
    let next = changes.wait_for(ChangeKind::Created, &at("back")).await;
    assert_eq!(next.directory, Some(true));
}

#[tokio::test]
async fn new_directories_join_and_moved_ones_take_their_new_name() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| top.path().join(name);
    fs::create_dir_all(at("old/deep")).unwrap();
    symlink("/etc", at("old/link")).unwrap();
    let query = format!("{}&recursive=true", top.path().to_str().unwrap());
    let mut changes = Changes::of(&daemon, &query).await;
    fs::write(at("old/deep/a"), "").unwrap();
    changes.wait_for(ChangeKind::Created, &at("old/deep/a")).await;
    // What is made faster than the directories can join is told as well.
    fs::create_dir_all(at("new/er/est")).unwrap();
    fs::write(at("new/er/est/b"), "").unwrap();
    changes.wait_for(ChangeKind::Created, &at("new/er/est/b")).await;
    fs::rename(at("old"), at("new/moved")).unwrap();
    changes.wait_for(ChangeKind::Moved, &at("new/moved")).await;
    fs::write(at("new/moved/deep/c"), "").unwrap();
    changes.wait_for(ChangeKind::Created, &at("new/moved/deep/c")).await;

    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(at("new/moved"), elsewhere.path().join("gone")).unwrap();
    changes.wait_for(ChangeKind::Deleted, &at("new/moved")).await;
    fs::write(elsewhere.path().join("gone/deep/unseen"), "").unwrap();
    fs::write(at("last"), "").unwrap();
    let next = changes.next().await.unwrap();
    assert_eq!(next.path.as_deref(), at("last").to_str());
}

#[tokio::test]
async fn too_many_changes_at_once_are_told_as_such() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 20_000 {
        println!("skipped: the kernel's queue is too long to fill");
        return;
    }
    let (daemon, top) = (Daemon::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let mut changes = Changes::of(&daemon, top.path().to_str().unwrap()).await;
    // Nobody reads, so first what is on the way fills, and then the kernel's queue.
    let (one, two) = (top.path().join("1".repeat(200)), top.path().join("2".repeat(200)));
    fs::write(&one, "").unwrap();
    for _ in 0..limit + 20_000 {
        fs::rename(&one, &two).unwrap();
        fs::rename(&two, &one).unwrap();
    }
    while changes.next().await.unwrap().kind != ChangeKind::Overflow {}
    // And it goes on after it.
    fs::write(top.path().join("last"), "").unwrap();
    changes.wait_for(ChangeKind::Created, &top.path().join("last")).await;
}

#[tokio::test]
async fn the_stream_ends_with_what_is_watched() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    for (name, directory) in [("file", false), ("directory", true)] {
        let path = top.path().join(name);
        if directory {
            fs::create_dir(&path, 0o755).unwrap();
        } else {
            fs::write(&path, "").unwrap();
        }
        let mut changes = Changes::of(&daemon, path.to_str().unwrap()).await;
        if directory {
            osb_sys::tree::remove(&path).unwrap();
        } else {
            fs::write(&path, "x").unwrap();
            changes.wait_for(ChangeKind::Modified, &path).await;
            fs::remove_file(&path).unwrap();
        }
        changes.wait_for(ChangeKind::Deleted, &path).await;
        assert_eq!(changes.next().await, None);
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_client() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let queues = || daemon.descriptors().iter().filter(|link| link.contains("inotify")).count();
    let changes = Changes::of(&daemon, top.path().to_str().unwrap()).await;
    assert_eq!(queues(), 1);
    drop(changes);
    wait_for("the kernel's queue is closed", || queues() == 0).await;
}

#[tokio::test]
async fn only_what_is_there_and_may_be_seen_can_be_watched() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let failed = async |path: &str| error(daemon.get(path).await).await.0;
    assert_eq!(failed("/files/watch").await, StatusCode::BAD_REQUEST);
    assert_eq!(failed("/files/watch?path=/tmp&recursive=x").await, StatusCode::BAD_REQUEST);
    assert_eq!(failed("/files/watch?path=/no/such").await, StatusCode::NOT_FOUND);
    if is_root() {
        fs::set_mode(top.path(), 0o700).unwrap();
        let path = top.path().to_str().unwrap();
        let asked = format!("/v1/filesystem/65534/65534/files/watch?path={path}");
        assert_eq!(failed(&asked).await, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let wrong = daemon.send(request(Method::POST, "/files/watch?path=/tmp", "")).await;
    assert_eq!(error(wrong).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_is_deeper_than_anybody_can_name_is_not_told() {
    let (daemon, root) = (Daemon::start(), tempfile::tempdir().unwrap());
    let deep = |name: &str| {
        let levels = std::iter::repeat_n("d".repeat(250), 14);
        levels.fold(root.path().join(name), |path, level| path.join(level))
    };
    for name in ["a", "b"] {
        fs::create_dir_all(deep(name)).unwrap();
    }
    let query = format!("{}&recursive=true", root.path().display());
    let mut changes = Changes::of(&daemon, &query).await;
    // The kernel finds what is in it by the descriptor, however long its path becomes.
    let bottom = fs::open(deep("b")).unwrap();
    fs::rename(root.path().join("b"), deep("a").join("b")).unwrap();
    let bottom = format!("/proc/self/fd/{}", bottom.as_raw_fd());
    fs::write(Path::new(&bottom).join("file"), "").unwrap();
    changes.wait_for(ChangeKind::Moved, &deep("a").join("b")).await;
    fs::write(root.path().join("last"), "").unwrap();
    loop {
        let change = changes.next().await.unwrap();
        let path = change.path.unwrap();
        assert!(path.len() <= 4096, "{}", path.len());
        if path.ends_with("/last") {
            break;
        }
    }
}
