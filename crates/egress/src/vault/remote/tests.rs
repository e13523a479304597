use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

fn remote(address: &str, token: &tempfile::NamedTempFile) -> Result<Remote, BadAddress> {
    let paths = vec!["secret/data/agents/".to_owned()];
    Remote::new(address, token.path().to_owned(), paths, Duration::from_mins(1))
}

fn token() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "operator-token\n").unwrap();
    file
}

/// Answers one request with this and gives back what was asked.
async fn answer(listener: &TcpListener, status: &str, body: &str) -> io::Result<String> {
    let (mut stream, _) = listener.accept().await?;
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        asked.push(stream.read_u8().await?);
    }
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    Ok(String::from_utf8(asked).unwrap())
}

#[tokio::test]
async fn a_field_of_either_form_is_read_once_and_remembered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let token = token();
    let store = remote(&address, &token).unwrap();
    let second = r#"{"data": {"data": {"token": "hunter2"}, "metadata": {"version": 3}}}"#;
    let (asked, read) = tokio::join!(
        answer(&listener, "200 OK", second),
        store.read("secret/data/agents/gh", "token"),
    );
    let asked = asked.unwrap().to_ascii_lowercase();
    assert!(asked.starts_with("get /v1/secret/data/agents/gh http/1.1\r\n"), "{asked}");
    assert!(asked.contains("x-vault-token: operator-token\r\n"));
    assert_eq!(*read.unwrap(), "hunter2");
    // Nobody answers a second time.
    assert_eq!(*store.read("secret/data/agents/gh", "token").await.unwrap(), "hunter2");
    let missing = store.read("secret/data/agents/gh", "other").await;
    assert!(matches!(missing, Err(RemoteError::NoField)));
    let first = r#"{"data": {"token": "first"}}"#;
    let (_, read) = tokio::join!(
        answer(&listener, "200 OK", first),
        store.read("secret/data/agents/old", "token"),
    );
    assert_eq!(*read.unwrap(), "first");
}

#[tokio::test]
async fn whatever_goes_wrong_gives_no_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let token = token();
    let store = remote(&address, &token).unwrap();
    for (status, body) in [
        ("403 Forbidden", r#"{"errors": ["permission denied"]}"#),
        ("200 OK", "nonsense"),
        ("200 OK", r#"{"data": {"token": 5}}"#),
    ] {
        let (_, read) = tokio::join!(answer(&listener, status, body), store.read("x", "token"));
        assert!(read.is_err(), "{status} {body}");
    }
    drop(listener);
    let read = store.read("y", "token").await;
    assert!(matches!(read, Err(RemoteError::Unreachable(_))));
}

#[test]
fn a_store_is_on_this_host() {
    let token = token();
    for address in
        ["http://127.0.0.1:8200", "http://[::1]:8200/", "http://localhost", "unix:/run/v"]
    {
        assert!(remote(address, &token).is_ok(), "{address}");
    }
    for address in ["http://10.0.0.1:8200", "https://127.0.0.1", "http://vault.example.com:8200"] {
        assert!(matches!(remote(address, &token), Err(BadAddress::Elsewhere(_))), "{address}");
    }
    for address in ["", "127.0.0.1:8200", "unix:relative", "http://127.0.0.1/v1"] {
        assert!(matches!(remote(address, &token), Err(BadAddress::Form(_))), "{address}");
    }
}

#[test]
fn only_what_the_operator_offers_can_be_named() {
    let token = token();
    let store = remote("http://127.0.0.1:1", &token).unwrap();
    assert!(store.check("secret/data/agents/gh").is_ok());
    for path in [
        "secret/data/agents-other/gh",
        "secret/data/other",
        "sys/seal",
        "secret/data/agents/../other",
        "secret/data/agents//x",
        "secret/data/agents/x?version=1",
        "",
    ] {
        assert!(store.check(path).is_err(), "{path} was accepted");
    }
}
