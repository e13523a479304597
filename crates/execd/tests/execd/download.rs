//! Reading, looking at and removing files.

use std::{collections::BTreeMap, path::Path};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use osb_api::{
    codes,
    execd::{FileInfo, FileKind, Mode},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::daemon::{Body, Daemon, bytes, error, request};

fn asked(method: Method, route: &str, path: &Path) -> Request<Body> {
    let path = utf8_percent_encode(path.to_str().unwrap(), NON_ALPHANUMERIC).to_string();
    request(method, &format!("{route}path={path}"), "")
}

fn ranged(path: &Path, range: &str) -> Request<Body> {
    let mut request = asked(Method::GET, "/files/download?", path);
    request.headers_mut().insert(header::RANGE, range.parse().unwrap());
    request
}

fn header<'a>(response: &'a Response<Incoming>, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

#[tokio::test]
async fn a_file_comes_whole_with_its_length_and_name() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("größe & co.bin");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    osb_sys::fs::write(&path, &content).unwrap();
    let response = daemon.send(asked(Method::GET, "/files/download?", &path)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "content-length"), content.len().to_string());
    assert_eq!(header(&response, "content-type"), "application/octet-stream");
    assert!(header(&response, "content-disposition").contains("filename*=UTF-8''gr%C3%B6"));
    assert!(bytes(response).await == content);
}

#[tokio::test]
async fn an_empty_file_has_a_length_and_the_kernels_files_have_content() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("empty");
    osb_sys::fs::write(&path, b"").unwrap();
    let response = daemon.send(asked(Method::GET, "/files/download?", &path)).await;
    assert_eq!(header(&response, "content-length"), "0");
    assert!(bytes(response).await.is_empty());
    let response = daemon.get("/files/download?path=/proc/version").await;
    assert!(bytes(response).await.starts_with(b"Linux version"));
}

#[tokio::test]
async fn ranges_are_parts_of_the_file() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    osb_sys::fs::write(&path, b"0123456789abcdef").unwrap();
    for (range, content, content_range) in [
        ("bytes=0-9", "0123456789", "bytes 0-9/16"),
        ("bytes=10-", "abcdef", "bytes 10-15/16"),
        ("bytes=-2", "ef", "bytes 14-15/16"),
        ("bytes=4-400", "456789abcdef", "bytes 4-15/16"),
        ("bytes=1-1,3-4", "1", "bytes 1-1/16"),
    ] {
        let response = daemon.send(ranged(&path, range)).await;
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(header(&response, "content-range"), content_range);
        assert_eq!(header(&response, "content-length"), content.len().to_string());
        assert_eq!(bytes(response).await, content);
    }
    for range in ["bytes=16-", "bytes=x", "bytes=5-4"] {
        let response = daemon.send(ranged(&path, range)).await;
        assert_eq!(header(&response, "content-range"), "bytes */16");
        assert_eq!(error(response).await.0, StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
    }
}

#[tokio::test]
async fn lines_are_counted_from_one() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    osb_sys::fs::write(&path, "one\ntwö\r\n\nfour\n").unwrap();
    for (query, content) in [
        ("offset=1&limit=2&", "one\ntwö"),
        ("offset=2&", "twö\n\nfour"),
        ("limit=1&", "one"),
        ("offset=9&", ""),
    ] {
        let route = format!("/files/download?{query}");
        let response = daemon.send(asked(Method::GET, &route, &path)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(bytes(response).await, content, "{query}");
    }
    for query in ["offset=0&", "limit=x&", "limit=-1&"] {
        let route = format!("/files/download?{query}");
        let response = daemon.send(asked(Method::GET, &route, &path)).await;
        assert_eq!(error(response).await.0, StatusCode::BAD_REQUEST, "{query}");
    }
    let mut both = asked(Method::GET, "/files/download?offset=1&", &path);
    both.headers_mut().insert(header::RANGE, "bytes=0-1".parse().unwrap());
    assert_eq!(error(daemon.send(both).await).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_cannot_be_read_is_told_apart() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let fifo = directory.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let failed = async |request| {
        let (status, body) = error(daemon.send(request).await).await;
        (status, body.code)
    };
    let download = |path: &str| asked(Method::GET, "/files/download?", Path::new(path));
    let not_found = (StatusCode::NOT_FOUND, codes::FILE_NOT_FOUND.to_owned());
    assert_eq!(failed(download("/no/such/file")).await, not_found);
    assert_eq!(failed(download("/etc/passwd/x")).await, not_found);
    assert_eq!(failed(download("/etc")).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(failed(download(fifo.to_str().unwrap())).await.0, StatusCode::BAD_REQUEST);
    let missing = (StatusCode::BAD_REQUEST, codes::MISSING_QUERY.to_owned());
    assert_eq!(failed(request(Method::GET, "/files/download", "")).await, missing);
}

#[tokio::test]
async fn a_large_file_is_streamed_in_bounded_memory() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("large");
    let size = 256 << 20;
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    let response = daemon.send(asked(Method::GET, "/files/download?", &path)).await;
    let (mut body, mut seen) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        seen += frame.unwrap().into_data().unwrap().len() as u64;
    }
    assert_eq!(seen, size);
    assert!(daemon.resident() < 32 << 10, "{} KiB", daemon.resident());
}

#[tokio::test]
async fn what_is_known_of_a_path_is_under_the_path_as_asked() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let (file, link) = (directory.path().join("ä"), directory.path().join("link"));
    osb_sys::fs::write(&file, b"abc").unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let encoded =
        |path: &Path| utf8_percent_encode(path.to_str().unwrap(), NON_ALPHANUMERIC).to_string();
    let query =
        format!("/files/info?path={}&path={}&path=tmp&path=~", encoded(&file), encoded(&link));
    let infos: BTreeMap<String, FileInfo> =
        serde_json::from_slice(&bytes(daemon.get(&query).await).await).unwrap();
    assert_eq!(infos.len(), 4);
    let info = &infos[file.to_str().unwrap()];
    assert_eq!((info.kind, info.size), (Some(FileKind::File), 3));
    assert_eq!(info.path, file.to_str().unwrap());
    assert_eq!(infos[link.to_str().unwrap()].kind, Some(FileKind::Symlink));
    assert_eq!(infos["tmp"].path, "/tmp");
    assert_eq!(infos["tmp"].kind, Some(FileKind::Directory));
    assert_eq!(infos["tmp"].mode, Mode::from_bits(0o1777));
    assert_eq!((infos["tmp"].owner.as_str(), infos["tmp"].group.as_str()), ("root", "root"));
    assert_eq!(infos["~"].path, "/root");

    let (status, body) = error(daemon.get("/files/info?path=/tmp&path=/no/such").await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::NOT_FOUND, codes::FILE_NOT_FOUND));
    assert_eq!(bytes(daemon.get("/files/info").await).await, "{}");
}

#[tokio::test]
async fn files_are_removed_and_directories_are_not() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let (file, link) = (directory.path().join("a"), directory.path().join("link"));
    osb_sys::fs::write(&file, b"abc").unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    for path in [&file, &link, &file] {
        let response = daemon.send(asked(Method::DELETE, "/files?", path)).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    let response = daemon.send(asked(Method::DELETE, "/files?", directory.path())).await;
    let (status, body) = error(response).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(body.code, codes::RUNTIME_ERROR);
    assert!(directory.path().is_dir());
}

#[tokio::test]
async fn what_a_client_has_is_not_fetched_again() {
    let (daemon, directory) = (Daemon::start(), tempfile::tempdir().unwrap());
    let path = directory.path().join("a");
    osb_sys::fs::write(&path, b"0123456789").unwrap();
    let head = daemon.send(asked(Method::HEAD, "/files/download?", &path)).await;
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(header(&head, "content-length"), "10");
    let (tag, time) = (header(&head, "etag").to_owned(), header(&head, "last-modified").to_owned());
    assert!(bytes(head).await.is_empty());
    let conditional = async |name: &'static str, value: &str, range: Option<&str>| {
        let mut request = asked(Method::GET, "/files/download?", &path);
        request.headers_mut().insert(name, value.parse().unwrap());
        if let Some(range) = range {
            request.headers_mut().insert(header::RANGE, range.parse().unwrap());
        }
        let response = daemon.send(request).await;
        (response.status().as_u16(), bytes(response).await.len())
    };
    assert_eq!(conditional("if-none-match", &tag, None).await, (304, 0));
    assert_eq!(conditional("if-none-match", "\"other\"", None).await, (200, 10));
    assert_eq!(conditional("if-modified-since", &time, None).await, (304, 0));
    assert_eq!(conditional("if-range", &tag, Some("bytes=8-")).await, (206, 2));
    assert_eq!(conditional("if-range", &time, Some("bytes=8-")).await, (206, 2));
    osb_sys::fs::write(&path, b"changed").unwrap();
    assert_eq!(conditional("if-none-match", &tag, None).await, (200, 7));
    assert_eq!(conditional("if-range", &tag, Some("bytes=2-")).await, (200, 7));
}
