use std::io;

use futures_util::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

fn remote(address: &str, token: &tempfile::NamedTempFile) -> Result<Remote, BadAddress> {
    let paths = vec!["secret/data/agents/".to_owned()];
    let token = Token::File(token.path().to_owned());
    Ok(Remote::new(address, token, paths, None)?.remembering(Duration::from_mins(1)))
}

fn token() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "operator-token\n").unwrap();
    file
}

/// Answers one request with this and gives back what was asked.
async fn answer(listener: &TcpListener, status: &str, body: &str) -> io::Result<String> {
    say(listener.accept().await?.0, status, body).await
}

async fn say(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    status: &str,
    body: &str,
) -> io::Result<String> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        asked.push(stream.read_u8().await?);
    }
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await?;
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
    assert!(matches!(*missing.unwrap_err(), RemoteError::NoField));
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
    assert!(matches!(*read.unwrap_err(), RemoteError::Unreachable(_)));
}

#[test]
fn a_store_elsewhere_speaks_tls() {
    let token = token();
    for address in [
        "http://127.0.0.1:8200",
        "http://[::1]:8200/",
        "http://localhost",
        "unix:/run/v",
        "https://127.0.0.1",
        "https://vault.example.com:8200",
        "https://[2001:db8::1]:8200/",
    ] {
        assert!(remote(address, &token).is_ok(), "{address}");
    }
    for address in ["http://10.0.0.1:8200", "http://vault.example.com:8200"] {
        assert!(matches!(remote(address, &token), Err(BadAddress::Elsewhere(_))), "{address}");
    }
    for address in ["", "127.0.0.1:8200", "unix:relative", "http://127.0.0.1/v1", "https://a:b@x"] {
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

/// A store that an authority vouches for, as a name of this host.
struct Store {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    authority: ExtraCa,
}

impl Store {
    async fn start() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            authority: ExtraCa::parse(authority.pem().as_bytes()).unwrap(),
        }
    }

    fn remote(&self, host: &str, extra: Option<&ExtraCa>) -> Remote {
        let address = format!("https://{host}:{}", self.listener.local_addr().unwrap().port());
        let token = Token::Given(SecretString::from("operator-token"));
        let remote = Remote::new(&address, token, vec!["kv".to_owned()], extra).unwrap();
        remote.within(Some("team/a")).unwrap().remembering(Duration::from_mins(1))
    }

    async fn answer(&self, body: &str) -> io::Result<String> {
        let stream = self.acceptor.accept(self.listener.accept().await?.0).await?;
        say(stream, "200 OK", body).await
    }
}

#[tokio::test]
async fn a_store_elsewhere_is_asked_once_it_has_proved_who_it_is() {
    let store = Store::start().await;
    let remote = store.remote("localhost", Some(&store.authority));
    let body = r#"{"data": {"token": "hunter2"}, "lease_duration": 0}"#;
    let (asked, read) = tokio::join!(store.answer(body), remote.read("kv/gh", "token"));
    let asked = asked.unwrap().to_ascii_lowercase();
    assert_eq!(*read.unwrap(), "hunter2");
    assert!(asked.contains("x-vault-namespace: team/a\r\n"), "{asked}");
    assert!(asked.contains("x-vault-token: operator-token\r\n"), "{asked}");
    assert!(asked.contains("host: localhost:"), "{asked}");
    // Nobody vouches for it, or for it under another name.
    for (host, extra) in [("localhost", None), ("127.0.0.1", Some(&store.authority))] {
        let remote = store.remote(host, extra);
        let (asked, read) = tokio::join!(store.answer(body), remote.read("kv/gh", "token"));
        assert!(asked.is_err());
        let error = read.unwrap_err();
        assert!(matches!(*error, RemoteError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn those_who_need_the_same_at_once_ask_once() {
    let store = Store::start().await;
    let remote = store.remote("localhost", Some(&store.authority));
    let body = r#"{"data": {"a": "1", "b": "2"}}"#;
    let (asked, a, b) =
        tokio::join!(store.answer(body), remote.read("kv/x", "a"), remote.read("kv/x", "b"));
    asked.unwrap();
    assert_eq!((a.unwrap().as_str(), b.unwrap().as_str()), ("1", "2"));
}

#[tokio::test]
async fn however_many_wait_where_nothing_is_remembered_the_store_is_asked_twice() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let token = Token::Given(SecretString::from("operator-token"));
    let store = Remote::new(&address, token, vec![String::new()], None).unwrap();
    let answers = async |status: &str| {
        for secret in ["first", "second"] {
            let body = format!(r#"{{"data": {{"token": "{secret}"}}}}"#);
            answer(&listener, status, &body).await.unwrap();
        }
    };
    let reads = || join_all((0..50).map(|_| store.read("x", "token")));
    let ((), read) = tokio::join!(answers("200 OK"), reads());
    let read: Vec<_> = read.into_iter().map(|read| read.unwrap().to_string()).collect();
    // Whoever came after the first had begun to ask wants to know what is true since.
    assert_eq!(read[0], "first");
    assert!(read[1..].iter().all(|secret| secret == "second"), "{read:?}");
    let ((), read) = tokio::join!(answers("503 Sealed"), reads());
    for read in read {
        assert!(matches!(*read.unwrap_err(), RemoteError::Status(_)));
    }
}

#[test]
fn nothing_holds_longer_than_its_lease() {
    let lease = |body: &str| understand(body.as_bytes()).unwrap().lease;
    assert_eq!(lease(r#"{"data": {}, "lease_duration": 30}"#), Some(Duration::from_secs(27)));
    assert_eq!(lease(r#"{"data": {}, "lease_duration": 0}"#), None);
    assert_eq!(lease(r#"{"data": {}}"#), None);
}

#[tokio::test]
async fn what_its_lease_ended_is_asked_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let token = token();
    let store = remote(&address, &token).unwrap();
    for secret in ["first", "second"] {
        let body = format!(r#"{{"data": {{"token": "{secret}"}}, "lease_duration": 1}}"#);
        let (asked, read) =
            tokio::join!(answer(&listener, "200 OK", &body), store.read("x", "token"));
        asked.unwrap();
        assert_eq!(*read.unwrap(), secret);
        let held = store.turn("x").lock().await.as_ref().unwrap().until;
        tokio::time::sleep_until(held.into()).await;
    }
}

#[tokio::test]
async fn an_answer_without_end_and_errors_give_away_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let token = token();
    let store = remote(&address, &token).unwrap();
    let long = format!(r#"{{"data": {{"token": "hunter2{}"}}}}"#, "x".repeat(LARGEST));
    for (status, body) in [
        ("200 OK", long.as_str()),
        ("200 OK", r#"{"data": "hunter2"}"#),
        ("200 OK", r#"{"data": {"token": "hunter2""#),
        ("500 hunter2", "hunter2"),
        ("200 OK", r#"{"data": {"data": null, "metadata": {"deletion_time": "hunter2"}}}"#),
    ] {
        let (_, read) = tokio::join!(answer(&listener, status, body), store.read("x", "token"));
        let error = read.unwrap_err();
        let said = format!("{} {error:?}", osb_core::Chain(&error));
        assert!(!said.contains("hunter2") && !said.contains("operator-token"), "{said}");
    }
}
