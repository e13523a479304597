//! Listing, searching, making and removing directories.

use std::{
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::Path,
};

use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use osb_api::{
    codes,
    execd::{FileInfo, FileKind},
};
use osb_sys::fs;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, error, is_root, request};

async fn listed(daemon: &Daemon, route: &str, path: &Path, query: &str) -> Vec<FileInfo> {
    let response = daemon.get(&asked(route, path, query)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json; charset=utf-8");
    serde_json::from_slice(&bytes(response).await).unwrap()
}

async fn refused(daemon: &Daemon, route: &str, path: &Path, query: &str) -> (u16, String) {
    let (status, body) = error(daemon.get(&asked(route, path, query)).await).await;
    (status.as_u16(), body.code)
}

fn asked(route: &str, path: &Path, query: &str) -> String {
    let path = utf8_percent_encode(path.to_str().unwrap(), NON_ALPHANUMERIC);
    format!("{route}?path={path}{query}")
}

fn below<'a>(infos: &'a [FileInfo], top: &Path) -> Vec<&'a str> {
    let prefix = format!("{}/", top.to_str().unwrap());
    infos.iter().map(|info| info.path.strip_prefix(&prefix).unwrap()).collect()
}

/// `b/` with `k`, `x/f` and `z/`, beside `a.txt`, `c` and a link `l` to `b`.
fn tree() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir_all(top.path().join("b/x")).unwrap();
    fs::create_dir_all(top.path().join("b/z")).unwrap();
    for file in ["a.txt", "b/k", "b/x/f", "c"] {
        fs::write(top.path().join(file), file).unwrap();
    }
    symlink("b", top.path().join("l")).unwrap();
    top
}

#[tokio::test]
async fn a_directory_is_listed_in_order_as_deep_as_asked() {
    let (daemon, top) = (Daemon::start(), tree());
    let list = async |query: &str| listed(&daemon, "/directories/list", top.path(), query).await;
    let infos = list("").await;
    assert_eq!(below(&infos, top.path()), ["a.txt", "b", "c", "l"]);
    let kinds = [FileKind::File, FileKind::Directory, FileKind::File, FileKind::Symlink];
    assert_eq!(infos.iter().map(|info| info.kind.unwrap()).collect::<Vec<_>>(), kinds);
    assert_eq!(below(&list("&depth=1").await, top.path()), ["a.txt", "b", "c", "l"]);
    assert_eq!(
        below(&list("&depth=2").await, top.path()),
        ["a.txt", "b", "b/k", "b/x", "b/z", "c", "l"]
    );
    assert_eq!(
        below(&list("&depth=99").await, top.path()),
        ["a.txt", "b", "b/k", "b/x", "b/x/f", "b/z", "c", "l"]
    );
    assert!(list("&depth=0").await.is_empty());
}

#[tokio::test]
async fn what_is_no_directory_is_not_listed() {
    let (daemon, top) = (Daemon::start(), tree());
    let list = "/directories/list";
    for (path, query, status) in [
        ("l", "", 400),
        ("c", "", 400),
        ("none", "", 404),
        ("none", "&depth=0", 404),
        ("b", "&depth=-1", 400),
        ("b", "&depth=x", 400),
    ] {
        assert_eq!(refused(&daemon, list, &top.path().join(path), query).await.0, status, "{path}");
    }
    for route in [list, "/files/search"] {
        let (status, body) = error(daemon.get(route).await).await;
        assert_eq!((status.as_u16(), body.code.as_str()), (400, codes::MISSING_QUERY));
    }
}

#[tokio::test]
async fn files_are_found_by_the_pattern_of_their_names() {
    let (daemon, top) = (Daemon::start(), tree());
    for (pattern, found) in [
        ("", vec!["a.txt", "b/k", "b/x/f", "c", "l"]),
        ("*", vec!["a.txt", "b/k", "b/x/f", "c", "l"]),
        ("**/*.txt", vec!["a.txt"]),
        ("[c-f]", vec!["b/x/f", "c"]),
        ("{k,l}", vec!["b/k", "l"]),
        ("!(?)", vec!["a.txt"]),
        ("x", vec![]),
    ] {
        let query = format!("&pattern={}", utf8_percent_encode(pattern, NON_ALPHANUMERIC));
        let infos = listed(&daemon, "/files/search", top.path(), &query).await;
        assert_eq!(below(&infos, top.path()), found, "{pattern}");
    }
    let file = listed(&daemon, "/files/search", &top.path().join("a.txt"), "&pattern=*.txt").await;
    assert_eq!(below(&file, top.path()), ["a.txt"]);
    assert!(listed(&daemon, "/files/search", &top.path().join("c"), "&pattern=d").await.is_empty());
    assert_eq!(refused(&daemon, "/files/search", &top.path().join("none"), "").await.0, 404);
    assert_eq!(refused(&daemon, "/files/search", top.path(), "&pattern=%5Ba").await.0, 400);
}

#[tokio::test]
async fn names_of_any_bytes_are_shown() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    fs::write(top.path().join(std::ffi::OsStr::from_bytes(b"\xff\"x")), "").unwrap();
    fs::write(top.path().join("a\u{2028}b\n"), "").unwrap();
    for route in ["/directories/list", "/files/search"] {
        let infos = listed(&daemon, route, top.path(), "").await;
        assert_eq!(below(&infos, top.path()), ["a\u{2028}b\n", "\u{fffd}\"x"]);
    }
}

#[tokio::test]
async fn what_may_not_be_seen_and_what_vanishes_is_passed_over() {
    if !is_root() {
        return;
    }
    let (daemon, top) = (Daemon::start(), tree());
    fs::set_mode(top.path(), 0o755).unwrap();
    fs::set_mode(top.path().join("b/x"), 0o700).unwrap();
    let infos = listed(&daemon, "/v1/filesystem/65534/65534/files/search", top.path(), "").await;
    assert_eq!(below(&infos, top.path()), ["a.txt", "b/k", "c", "l"]);
    // Processes come and go while they are listed.
    let infos = listed(&daemon, "/directories/list", Path::new("/proc"), "&depth=3").await;
    assert!(infos.len() > 100);
}

#[tokio::test]
async fn a_huge_listing_takes_no_memory() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let name = "n".repeat(240);
    for directory in 0..20 {
        let directory = top.path().join(format!("{name}{directory}"));
        fs::create_dir(&directory, 0o755).unwrap();
        for file in 0..500 {
            fs::write(directory.join(format!("{name}{file}")), "").unwrap();
        }
    }
    let before = daemon.resident();
    let response = daemon.get(&asked("/files/search", top.path(), "")).await;
    let (mut body, mut seen) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        seen += frame.unwrap().into_data().unwrap().len();
    }
    assert!(seen > 6 << 20);
    assert!(daemon.resident() < before + (4 << 10), "{} KiB", daemon.resident());
}

async fn make(daemon: &Daemon, body: &Value) -> StatusCode {
    daemon.send(request(Method::POST, "/directories", body.to_string())).await.status()
}

#[tokio::test]
async fn only_new_directories_get_a_mode() {
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| top.path().join(name);
    let mode = |name: &str| at(name).metadata().unwrap().mode() & 0o7777;
    let body =
        json!({at("a/b").to_str().unwrap(): {"mode": 1700}, at("c").to_str().unwrap(): null});
    assert_eq!(make(&daemon, &body).await, StatusCode::OK);
    assert_eq!((mode("a"), mode("a/b"), mode("c")), (0o755, 0o1700, 0o755));
    let body = json!({at("a/b").to_str().unwrap(): {"mode": 755}});
    assert_eq!(make(&daemon, &body).await, StatusCode::OK);
    assert_eq!(mode("a/b"), 0o1700);
    fs::write(at("file"), "").unwrap();
    for taken in ["file", "file/below"] {
        let body = json!({at(taken).to_str().unwrap(): {}});
        assert!(!make(&daemon, &body).await.is_success(), "{taken}");
    }
    let unknown = json!({at("d").to_str().unwrap(): {"owner": "no-such-user"}});
    assert_eq!(make(&daemon, &unknown).await, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!at("d").exists());
}

#[tokio::test]
async fn new_directories_get_their_owner() {
    if !is_root() {
        return;
    }
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = top.path().join("a/b");
    let body = json!({path.to_str().unwrap(): {"owner": "nobody", "group": "7", "mode": 2770}});
    assert_eq!(make(&daemon, &body).await, StatusCode::OK);
    let metadata = path.metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (65534, 7, 0o2770));
    assert_eq!(top.path().join("a").metadata().unwrap().uid(), 0);
}

async fn remove(daemon: &Daemon, path: &str) -> StatusCode {
    let path = utf8_percent_encode(path, NON_ALPHANUMERIC);
    let asked = request(Method::DELETE, &format!("/directories?path={path}"), "");
    daemon.send(asked).await.status()
}

#[tokio::test]
async fn directories_go_with_all_that_is_in_them() {
    let (daemon, top) = (Daemon::start(), tree());
    let at = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    // Links go, what they point to stays; so does what is beside.
    assert_eq!(remove(&daemon, &format!("{}/", at("l"))).await, StatusCode::OK);
    assert!(top.path().join("b/x/f").exists());
    for path in ["b/.", "c", "none", "none/below"] {
        assert_eq!(remove(&daemon, &at(path)).await, StatusCode::OK, "{path}");
    }
    assert_eq!(fs::names(top.path()).unwrap(), ["a.txt"]);
    fs::create_dir_all(top.path().join("d/e")).unwrap();
    assert_eq!(remove(&daemon, &at("d/e/..")).await, StatusCode::OK);
    assert_eq!(fs::names(top.path()).unwrap(), ["a.txt"]);
}

#[tokio::test]
async fn the_root_cannot_be_removed() {
    // As somebody who could not, should it be tried.
    let (daemon, top) = (Daemon::start(), tempfile::tempdir().unwrap());
    let root = top.path().join("root");
    symlink("/", &root).unwrap();
    for path in ["/".to_owned(), "//.".to_owned(), "/tmp/..".to_owned(), format!("{}/.", "/..")] {
        let path = utf8_percent_encode(&path, NON_ALPHANUMERIC);
        let asked = format!("/v1/filesystem/65534/65534/directories?path={path}");
        let (status, body) = error(daemon.send(request(Method::DELETE, &asked, "")).await).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!is_root() || body.message.contains("root"), "{}", body.message);
    }
    assert_eq!(remove(&daemon, root.to_str().unwrap()).await, StatusCode::OK);
    assert!(!root.is_symlink() && Path::new("/tmp").is_dir());
}
