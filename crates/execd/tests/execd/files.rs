//! Moving files, changing them and whose they are.

use std::{
    collections::BTreeMap,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use http::{Method, StatusCode};
use osb_api::{
    codes,
    execd::{FileInfo, Replaced},
};
use osb_sys::fs;
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, error, is_root, request};

/// A directory on a file system of its own, if there is one to write to besides that of `/tmp`.
fn elsewhere(than: &Path) -> Option<tempfile::TempDir> {
    let other = tempfile::tempdir_in("/dev/shm").ok()?;
    let device = |path: &Path| path.metadata().unwrap().dev();
    (device(other.path()) != device(than)).then_some(other)
}

async fn post(daemon: &Daemon, route: &str, body: &Value) -> Result<(), (StatusCode, String)> {
    let response = daemon.send(request(Method::POST, route, body.to_string())).await;
    if response.status() == StatusCode::OK {
        assert_eq!(response.headers()["content-length"], "0");
        return Ok(());
    }
    let (status, body) = error(response).await;
    Err((status, body.code))
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let mut names = fs::names(directory).unwrap();
    names.sort();
    names
}

fn runtime_error() -> Result<(), (StatusCode, String)> {
    Err((StatusCode::INTERNAL_SERVER_ERROR, codes::RUNTIME_ERROR.to_owned()))
}

fn not_found() -> Result<(), (StatusCode, String)> {
    Err((StatusCode::NOT_FOUND, codes::FILE_NOT_FOUND.to_owned()))
}

fn invalid() -> Result<(), (StatusCode, String)> {
    Err((StatusCode::BAD_REQUEST, codes::INVALID_REQUEST_BODY.to_owned()))
}

#[tokio::test]
async fn modes_are_octal_digits_in_both_directions() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    fs::write(&path, "x").unwrap();
    let text = path.to_str().unwrap();
    for digits in [644, 755, 7, 4755, 1777, 2750] {
        let body = json!({text: {"mode": digits, "owner": null, "group": ""}});
        assert_eq!(post(&daemon, "/files/permissions", &body).await, Ok(()));
        let infos = daemon.get(&format!("/files/info?path={text}")).await;
        let infos: BTreeMap<String, Value> = serde_json::from_slice(&bytes(infos).await).unwrap();
        assert_eq!(infos[text]["mode"], digits);
    }
    for keeps in [json!({}), json!({"mode": 0}), json!({"mode": null}), Value::Null] {
        assert_eq!(post(&daemon, "/files/permissions", &json!({text: keeps})).await, Ok(()));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o2750);
    }
    let wrong = json!({text: {"mode": 789}});
    assert_eq!(post(&daemon, "/files/permissions", &wrong).await, invalid());
}

#[tokio::test]
async fn owners_are_names_or_numbers() {
    if !is_root() {
        return;
    }
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let (path, link) = (directory.path().join("a"), directory.path().join("link"));
    fs::write(&path, "x").unwrap();
    symlink("a", &link).unwrap();
    let owner = || (path.metadata().unwrap().uid(), path.metadata().unwrap().gid());
    for (wanted, expected) in [
        (json!({"owner": "nobody", "group": "nogroup"}), (65534, 65534)),
        (json!({"owner": "1234"}), (1234, 65534)),
        (json!({"group": "77"}), (1234, 77)),
        (json!({"owner": "", "group": null}), (1234, 77)),
    ] {
        // What a link points to is changed.
        assert_eq!(
            post(&daemon, "/files/permissions", &json!({link.to_str().unwrap(): wanted})).await,
            Ok(())
        );
        assert_eq!(owner(), expected);
    }
    for unknown in
        [json!({"owner": "no-such"}), json!({"group": "no-such"}), json!({"owner": "-1"})]
    {
        let body = json!({path.to_str().unwrap(): unknown});
        assert_eq!(post(&daemon, "/files/permissions", &body).await, runtime_error());
    }
    let missing = json!({directory.path().join("none").to_str().unwrap(): {"mode": 644}});
    assert_eq!(post(&daemon, "/files/permissions", &missing).await, not_found());
}

#[tokio::test]
async fn files_move_to_places_that_are_free() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a"), "content").unwrap();
    fs::write(at("occupied"), "stays").unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let moved = |from: &str, to: &str| json!([{"src": at(from), "dest": at(to)}]);
    assert_eq!(post(&daemon, "/files/mv", &moved("a", "deep/er/b")).await, Ok(()));
    assert_eq!(fs::read_to_string(at("deep/er/b")).unwrap(), "content");
    assert_eq!(at("deep").metadata().unwrap().mode() & 0o777, 0o755);
    assert_eq!(post(&daemon, "/files/mv", &moved("a", "c")).await, not_found());
    for to in ["occupied", "dangling", "deep"] {
        assert_eq!(post(&daemon, "/files/mv", &moved("deep/er/b", to)).await, runtime_error());
    }
    assert_eq!(fs::read_to_string(at("occupied")).unwrap(), "stays");
    assert_eq!(post(&daemon, "/files/mv", &moved("deep", "deep/er/self")).await, runtime_error());
    assert_eq!(post(&daemon, "/files/mv", &moved("deep", "elsewhere")).await, Ok(()));
    assert_eq!(post(&daemon, "/files/mv", &moved("dangling", "still")).await, Ok(()));
    assert_eq!(names(directory.path()), ["elsewhere", "occupied", "still"]);
    let empty = json!([{"src": "", "dest": at("x")}]);
    assert_eq!(post(&daemon, "/files/mv", &empty).await, invalid());
}

#[tokio::test]
async fn files_and_directories_move_between_file_systems() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let Some(other) = elsewhere(directory.path()) else {
        println!("skipped: it needs two file systems");
        return;
    };
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("in/ner")).unwrap();
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("in/file"), &content).unwrap();
    fs::set_mode(tree.join("in/file"), 0o640).unwrap();
    fs::write(tree.join("in/ner/read-only"), "x").unwrap();
    fs::set_mode(tree.join("in/ner"), 0o555).unwrap();
    symlink("../in", tree.join("in/link")).unwrap();
    fifo(&tree.join("fifo"));
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let modified = tree.join("in/file").metadata().unwrap().mtime_nsec();

    let to = other.path().join("made/tree");
    let body = json!([{"src": tree, "dest": to}]);
    assert_eq!(post(&daemon, "/files/mv", &body).await, Ok(()));
    assert!(!tree.exists());
    assert!(fs::read(to.join("in/file")).unwrap() == content);
    let metadata = to.join("in/file").metadata().unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime_nsec()), (0o640, modified));
    assert_eq!(to.join("in/ner").metadata().unwrap().mode() & 0o7777, 0o555);
    assert_eq!(to.join("in/link").read_link().unwrap(), Path::new("../in"));
    assert!(to.join("fifo").metadata().unwrap().file_type().is_fifo());
    let sparse = to.join("sparse").metadata().unwrap();
    assert!(sparse.len() == 1 << 30 && sparse.blocks() < 100, "{}", sparse.blocks());
    assert_eq!(names(&other.path().join("made")), ["tree"]);

    let back = directory.path().join("file");
    let body = json!([{"src": to.join("in/file"), "dest": back}]);
    assert_eq!(post(&daemon, "/files/mv", &body).await, Ok(()));
    assert!(fs::read(&back).unwrap() == content);
    assert_eq!(names(directory.path()), ["file"]);
}

#[tokio::test]
async fn text_is_replaced_and_counted() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (name, content) in [("none", "abc"), ("one", "x--x"), ("three", "aaaaaa and ü")] {
        fs::write(at(name), content).unwrap();
        fs::set_mode(at(name), 0o750).unwrap();
    }
    fs::write(at("bytes"), b"\xff\x00old\xfe").unwrap();
    let untouched = Path::new(&at("none")).metadata().unwrap().ino();
    let body = json!({
        at("none"): {"old": "zzz", "new": "y"},
        at("one"): {"old": "--", "new": null},
        at("three"): {"old": "aa", "new": "b"},
        at("bytes"): {"old": "old", "new": "new and longer"},
    });
    let response =
        daemon.send(request(Method::POST, "/files/replace?verbose=true", body.to_string())).await;
    let counts: BTreeMap<String, Replaced> =
        serde_json::from_slice(&bytes(response).await).unwrap();
    let count = |name: &str| counts[&at(name)].replaced_count;
    assert_eq!([count("none"), count("one"), count("three"), count("bytes")], [0, 1, 3, 1]);
    assert_eq!(fs::read_to_string(at("one")).unwrap(), "xx");
    assert_eq!(fs::read_to_string(at("three")).unwrap(), "bbb and ü");
    assert_eq!(fs::read(at("bytes")).unwrap(), b"\xff\x00new and longer\xfe");
    assert_eq!(Path::new(&at("three")).metadata().unwrap().mode() & 0o7777, 0o750);
    assert_eq!(Path::new(&at("none")).metadata().unwrap().ino(), untouched);
    assert_eq!(names(directory.path()), ["bytes", "none", "one", "three"]);

    let again = json!({at("one"): {"old": "x", "new": "y"}});
    assert_eq!(post(&daemon, "/files/replace?verbose=false", &again).await, Ok(()));
    assert_eq!(fs::read_to_string(at("one")).unwrap(), "yy");
}

#[tokio::test]
async fn text_that_cannot_be_replaced_changes_nothing() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("a"), "abc").unwrap();
    fifo(Path::new(&at("fifo")));
    let empty = json!({at("a"): {"old": "a", "new": "b"}, at("b"): {"old": "", "new": "x"}});
    assert_eq!(post(&daemon, "/files/replace", &empty).await, invalid());
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "abc");
    let missing = json!({at("none"): {"old": "a", "new": "b"}});
    assert_eq!(post(&daemon, "/files/replace", &missing).await, not_found());
    for special in [at("fifo"), directory.path().to_str().unwrap().to_owned()] {
        let body = json!({special: {"old": "a", "new": "b"}});
        assert_eq!(post(&daemon, "/files/replace", &body).await, runtime_error());
    }
    assert_eq!(names(directory.path()), ["a", "fifo"]);
}

#[tokio::test]
async fn a_program_that_runs_can_be_replaced() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let program = directory.path().join("sleep");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut child = osb_sys::command::command(&program).arg("60").spawn().unwrap();
    let body = json!({program.to_str().unwrap(): {"old": "ELF", "new": "elf"}});
    assert_eq!(post(&daemon, "/files/replace", &body).await, Ok(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(&program).unwrap()[1..4], *b"elf");
    assert_eq!(program.metadata().unwrap().permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn paths_that_are_none_are_refused_everywhere() {
    let daemon = Daemon::start();
    for path in ["", "%00", "/tmp/a%00b"] {
        for (method, route) in [
            (Method::GET, "/files/info"),
            (Method::DELETE, "/files"),
            (Method::DELETE, "/directories"),
            (Method::GET, "/files/search"),
            (Method::GET, "/files/download"),
            (Method::GET, "/directories/list"),
        ] {
            let asked = request(method, &format!("{route}?path={path}"), "");
            assert_eq!(error(daemon.send(asked).await).await.0, StatusCode::BAD_REQUEST, "{route}");
        }
    }
}

#[tokio::test]
async fn a_file_has_the_time_of_its_birth() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path: PathBuf = directory.path().join("a");
    fs::write(&path, "x").unwrap();
    let Ok(birth) = path.metadata().unwrap().created() else { return };
    fs::set_mode(&path, 0o600).unwrap();
    let infos = daemon.get(&format!("/files/info?path={}", path.display())).await;
    let infos: BTreeMap<String, FileInfo> = serde_json::from_slice(&bytes(infos).await).unwrap();
    let created = infos[path.to_str().unwrap()].created_at;
    assert_eq!(created, jiff::Timestamp::try_from(birth).unwrap());
}
