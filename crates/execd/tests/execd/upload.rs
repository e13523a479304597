use std::{io, os::unix::fs::MetadataExt, path::Path};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use osb_api::codes;
use serde_json::{Value, json};

use crate::daemon::{Body, Daemon, error, is_root, request};

const BOUNDARY: &str = "opensandbox_0af3_1760000000";

fn part(name: &str, filename: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; \
         filename=\"{filename}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    [head.as_bytes(), content.as_ref(), b"\r\n"].concat()
}

fn pair(metadata: &Value, content: impl AsRef<[u8]>) -> Vec<u8> {
    let metadata = part("metadata", "metadata", metadata.to_string());
    [metadata, part("file", r#"a \"name\".txt"#, content)].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), format!("--{BOUNDARY}--\r\n").into_bytes()].concat()
}

fn upload(body: impl Into<Bytes>) -> Request<Body> {
    with_type(request(Method::POST, "/files/upload", body))
}

/// Sends the pieces one by one, in a body of unknown length.
fn chunked(pieces: impl Iterator<Item = Bytes> + Send + Sync + 'static) -> Request<Body> {
    let frames = stream::iter(pieces.map(|piece| Ok::<_, io::Error>(Frame::data(piece))));
    let body = BodyExt::boxed(StreamBody::new(frames));
    with_type(request(Method::POST, "/files/upload", "").map(|_| body))
}

fn with_type(mut request: Request<Body>) -> Request<Body> {
    let value = format!("multipart/form-data; boundary={BOUNDARY}");
    request.headers_mut().insert(header::CONTENT_TYPE, value.parse().unwrap());
    request
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn several_files_arrive_in_one_request() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    let body = form(&[
        pair(&json!({"path": at("a.txt"), "mode": 755, "owner": null, "group": null}), "one"),
        pair(&json!({"path": at("deep/er/ü.txt")}), "zwei ü\r\n--not the boundary\r\n"),
        pair(&json!({"path": at("empty"), "mode": 600}), ""),
    ]);
    let response = daemon.send(upload(body)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "0");
    let read = |name| osb_sys::fs::read_to_string(at(name)).unwrap();
    assert_eq!(read("a.txt"), "one");
    assert_eq!(read("deep/er/ü.txt"), "zwei ü\r\n--not the boundary\r\n");
    assert_eq!(read("empty"), "");
    let mode = |name| at(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode("a.txt"), mode("empty")), (0o755, 0o600));
    assert_eq!(names(directory.path()), ["a.txt", "deep", "empty"]);
}

#[tokio::test]
async fn however_the_body_is_cut_the_file_is_the_same() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("file");
    let content: Vec<u8> = (0..50_000_u32).flat_map(u32::to_be_bytes).collect();
    let body = form(&[pair(&json!({"path": path}), &content)]);
    for size in [1_000, 7_919, 65_536] {
        let pieces: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let response = daemon.send(chunked(pieces.into_iter())).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(osb_sys::fs::read(&path).unwrap() == content, "pieces of {size} bytes");
    }
}

#[tokio::test]
async fn a_large_file_takes_no_memory() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 256;
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("large");
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let metadata = part("metadata", "metadata", json!({"path": path}).to_string());
    let mut head = [metadata, part("file", "large", "")].concat();
    head.truncate(head.len() - 2);
    let tail = format!("\r\n--{BOUNDARY}--\r\n").into_bytes();
    let pieces = std::iter::once(Bytes::from(head))
        .chain(std::iter::repeat_n(piece, PIECES))
        .chain(std::iter::once(Bytes::from(tail)));
    assert_eq!(daemon.send(chunked(pieces)).await.status(), StatusCode::OK);
    assert_eq!(path.metadata().unwrap().len(), (PIECE * PIECES) as u64);
    assert!(daemon.resident() < 32 << 10, "{} KiB", daemon.resident());
}

#[tokio::test]
async fn the_owner_and_group_are_given_by_name() {
    if !is_root() {
        return;
    }
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    let metadata = json!({"path": path, "owner": "nobody", "group": "nogroup", "mode": 640});
    assert_eq!(daemon.send(upload(form(&[pair(&metadata, "x")]))).await.status(), StatusCode::OK);
    let metadata = path.metadata().unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (65534, 65534, 0o640));
}

#[tokio::test]
async fn an_upload_that_cannot_be_is_told_what_is_wrong_with_it() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    let metadata = |value: Value| part("metadata", "metadata", value.to_string());
    let file = || part("file", "a", "content");
    for (parts, code) in [
        (vec![], codes::INVALID_FILE_METADATA),
        (vec![file()], codes::INVALID_FILE_METADATA),
        (vec![metadata(json!({"path": path}))], codes::INVALID_FILE_CONTENT),
        (vec![metadata(json!({"path": ""})), file()], codes::INVALID_FILE_METADATA),
        (vec![metadata(json!({"path": null})), file()], codes::INVALID_FILE_METADATA),
        (vec![metadata(json!("x")), file()], codes::INVALID_FILE_METADATA),
        (vec![metadata(json!({"path": path, "mode": 999})), file()], codes::INVALID_FILE_METADATA),
        (
            vec![metadata(json!({"path": path, "owner": "no-such-user"})), file()],
            codes::INVALID_FILE_METADATA,
        ),
        (vec![metadata(json!({"path": "x".repeat(70_000)})), file()], codes::INVALID_FILE_METADATA),
        (vec![metadata(json!({"path": path})); 5000], codes::INVALID_FILE),
    ] {
        let (status, body) = error(daemon.send(upload(form(&parts))).await).await;
        assert_eq!((status, body.code.as_str()), (StatusCode::BAD_REQUEST, code), "{body:?}");
    }
    let (status, body) =
        error(daemon.send(request(Method::POST, "/files/upload", "{}")).await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::BAD_REQUEST, codes::INVALID_FILE));
    assert!(names(directory.path()).is_empty());
}

#[tokio::test]
async fn an_upload_that_breaks_off_changes_nothing() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    osb_sys::fs::write(&path, b"old").unwrap();
    let mut body = form(&[pair(&json!({"path": path}), "new and longer")]);
    body.truncate(body.len() - BOUNDARY.len() - 12);
    let (status, body) = error(daemon.send(upload(body)).await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::BAD_REQUEST, codes::INVALID_FILE));
    assert_eq!(osb_sys::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), ["a"]);
}

#[tokio::test]
async fn files_before_a_failed_one_stay() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    let body = form(&[
        pair(&json!({"path": path}), "kept"),
        pair(&json!({"path": directory.path()}), "a directory is in the way"),
    ]);
    let (status, body) = error(daemon.send(upload(body)).await).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(body.code, codes::RUNTIME_ERROR);
    assert_eq!(osb_sys::fs::read(&path).unwrap(), b"kept");
}
