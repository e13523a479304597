//! Files as another user.

use std::{os::unix::fs::MetadataExt, path::Path};

use http::{Method, StatusCode, header};
use osb_sys::fs;
use serde_json::{Value, json};

use crate::daemon::{Daemon, bytes, error, is_root, request};

const NOBODY: &str = "/v1/filesystem/65534/65534";

async fn status(daemon: &Daemon, method: Method, route: &str, body: &Value) -> StatusCode {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    daemon.send(request(method, route, body)).await.status()
}

fn upload(path: &Path, content: &str) -> http::Request<crate::daemon::Body> {
    let part = |name: &str, content: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
    };
    let metadata = part("metadata", &json!({"path": path}).to_string());
    let body = metadata + &part("file", content) + "--b--\r\n";
    let mut request = request(Method::POST, &format!("{NOBODY}/files/upload"), body);
    let form = "multipart/form-data; boundary=b".parse().unwrap();
    request.headers_mut().insert(header::CONTENT_TYPE, form);
    request
}

/// A directory of root that anybody may enter but not change, with one that anybody may change.
fn place() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::set_mode(top.path(), 0o755).unwrap();
    fs::create_dir(top.path().join("open"), 0o777).unwrap();
    fs::set_mode(top.path().join("open"), 0o777).unwrap();
    fs::write(top.path().join("secret"), "secret").unwrap();
    fs::set_mode(top.path().join("secret"), 0o600).unwrap();
    fs::write(top.path().join("shared"), "shared").unwrap();
    fs::set_mode(top.path().join("shared"), 0o666).unwrap();
    top
}

#[tokio::test]
async fn what_a_user_makes_is_the_users() {
    if !is_root() {
        return;
    }
    let (daemon, top) = (Daemon::start(), place());
    let at = |name: &str| top.path().join(name);
    let owner =
        |name: &str| (at(name).metadata().unwrap().uid(), at(name).metadata().unwrap().gid());
    assert_eq!(daemon.send(upload(&at("open/deep/a"), "mine")).await.status(), StatusCode::OK);
    assert_eq!((owner("open/deep"), owner("open/deep/a")), ((65534, 65534), (65534, 65534)));
    let made = json!({at("open/made").to_str().unwrap(): {"mode": 750}});
    let route = "/v1/filesystem/65534/7/directories";
    assert_eq!(status(&daemon, Method::POST, route, &made).await, StatusCode::OK);
    assert_eq!(owner("open/made"), (65534, 7));
    let moved = json!([{"src": at("open/deep"), "dest": at("open/made/deep")}]);
    let route = format!("{NOBODY}/files/mv");
    assert_eq!(status(&daemon, Method::POST, &route, &moved).await, StatusCode::OK);
    // A directory that its owner cannot change goes all the same.
    fs::set_mode(at("open/made/deep"), 0o555).unwrap();
    let route = format!("{NOBODY}/directories?path={}", at("open/made").display());
    assert_eq!(status(&daemon, Method::DELETE, &route, &Value::Null).await, StatusCode::OK);
    assert!(!at("open/made").exists());
}

#[tokio::test]
async fn what_a_user_may_not_do_is_refused_and_changes_nothing() {
    if !is_root() {
        return;
    }
    let (daemon, top) = (Daemon::start(), place());
    let at = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    for (method, route, body) in [
        (Method::GET, format!("/files/download?path={}", at("secret")), Value::Null),
        (Method::DELETE, format!("/files?path={}", at("shared")), Value::Null),
        (Method::DELETE, format!("/directories?path={}", at("open")), Value::Null),
        (Method::POST, "/files/permissions".into(), json!({at("secret"): {"mode": 777}})),
        (Method::POST, "/files/permissions".into(), json!({at("secret"): {"owner": "nobody"}})),
        (Method::POST, "/files/mv".into(), json!([{"src": at("secret"), "dest": at("open/x")}])),
        (Method::POST, "/files/replace".into(), json!({at("secret"): {"old": "s", "new": "x"}})),
        (Method::POST, "/directories".into(), json!({at("made"): {}})),
    ] {
        let route = format!("{NOBODY}{route}");
        let status = status(&daemon, method, &route, &body).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{route}");
    }
    for path in ["secret", "new"] {
        let refused = daemon.send(upload(Path::new(&at(path)), "x")).await;
        assert_eq!(error(refused).await.0, StatusCode::INTERNAL_SERVER_ERROR, "{path}");
    }
    let mut names = fs::names(top.path()).unwrap();
    names.sort();
    assert_eq!(names, ["open", "secret", "shared"]);
    assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
    let secret = Path::new(&at("secret")).metadata().unwrap();
    assert_eq!((secret.uid(), secret.mode() & 0o7777), (0, 0o600));
    // And whoever comes next has its own rights again.
    let whole = daemon.get(&format!("/files/download?path={}", at("secret"))).await;
    assert_eq!(bytes(whole).await, "secret");
}

#[tokio::test]
async fn a_file_of_somebody_else_keeps_its_owner() {
    if !is_root() {
        return;
    }
    let (daemon, top) = (Daemon::start(), place());
    let shared = top.path().join("shared");
    // First where the directory takes no new files, then where it does.
    for (place, content) in [(shared.clone(), "one"), (top.path().join("open/shared"), "two")] {
        if place != shared {
            fs::rename(&shared, &place).unwrap();
        }
        assert_eq!(daemon.send(upload(&place, content)).await.status(), StatusCode::OK);
        assert_eq!(fs::read_to_string(&place).unwrap(), content);
        let metadata = place.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (0, 0o666));
    }
    assert_eq!(fs::names(top.path().join("open")).unwrap(), ["shared"]);
}

#[tokio::test]
async fn users_are_numbers_that_the_kernel_knows() {
    let daemon = Daemon::start();
    for ids in ["x/0", "0/x", "-1/0", "+1/0", "4294967295/0", "0/4294967295", "99999999999/0"] {
        let route = format!("/v1/filesystem/{ids}/files/info");
        let (status, _) = error(daemon.get(&route).await).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{ids}");
    }
    if is_root() {
        let route = "/v1/filesystem/4294967294/4294967294/files/info?path=/";
        assert_eq!(daemon.get(route).await.status(), StatusCode::OK);
    }
    let (status, _) = error(daemon.get("/v1/filesystem/0/0/no/such").await).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let wrong = request(Method::PUT, "/v1/filesystem/0/0/files/info", "");
    assert_eq!(error(daemon.send(wrong).await).await.0, StatusCode::METHOD_NOT_ALLOWED);
}
