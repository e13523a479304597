use std::sync::Mutex;

use http_body_util::StreamBody;
use serde_json::{from_value, json};
use tracing::{Event, Level, Metadata, Subscriber, field::Field, span};

use super::*;
use crate::{
    Name,
    vault::{Scope, Sources},
};

fn credentials() -> Credentials {
    at(443, Scheme::Https)
}

/// At a port of the host.
fn at(port: u16, scheme: Scheme) -> Credentials {
    let vault = Vault::new(Arc::default());
    let substitution = json!({"credential": "c", "placeholder": "__KEY__", "in": ["body"]});
    let request = json!({
        "credentials": [{"name": "c", "source": {"value": "hunter2"}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": ["a.example.com"], "paths": ["/"]},
            "auth": {"type": "passthrough", "substitutions": [substitution]},
        }],
    });
    vault.create(from_value(request).unwrap(), Scope::Hosts, |_| true).unwrap();
    let name = Name::parse("a.example.com").unwrap();
    let host = Host { name, port, scheme };
    Credentials::new(SandboxId::random(), Arc::new(vault), host, Arc::new(|_, _| {}))
}

fn post(length: usize, body: Body) -> Request<Body> {
    Request::post("/").header(header::CONTENT_LENGTH, length).body(body).unwrap()
}

fn full(text: Vec<u8>) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

#[tokio::test]
async fn bodies_beyond_the_room_of_a_sandbox_are_sent_in_chunks() {
    let credentials = credentials();
    let length = usize::try_from(Rewrite::WHOLE).unwrap();
    let mut kept = Vec::new();
    for number in 0..10 {
        let request = post(length, full(vec![b'x'; length]));
        let (request, _) = credentials.treat(request).await.unwrap();
        assert_eq!(request.headers().contains_key(header::CONTENT_LENGTH), number < 8, "{number}");
        kept.push(request.into_body());
    }
    // There is room again when they are gone, and not before: parts of them keep it, too.
    let part = kept.remove(0).frame().await.unwrap().unwrap().into_data().unwrap().slice(..1);
    assert!(credentials.vault.room(1).is_none());
    drop(part);
    assert!(credentials.vault.room(length).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let never = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>());
    let refusal = credentials().treat(post(100, never.boxed_unsync())).await.err().unwrap();
    assert_eq!(refusal.status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn a_secret_is_not_in_what_is_said_beside_the_status() {
    for (said, stays) in [(&b"It is hunter2"[..], false), (b"Quite Well", true)] {
        let (_, finish) = credentials().treat(post(0, full(Vec::new()))).await.unwrap();
        let mut response = Response::new(full(Vec::new()));
        response.extensions_mut().insert(ReasonPhrase::try_from(said).unwrap());
        let response = finish(response);
        assert_eq!(response.extensions().get::<ReasonPhrase>().is_some(), stays);
    }
}

#[tokio::test]
async fn a_secret_is_not_in_what_follows_an_answer_that_is_said_to_be_empty() {
    let (_, finish) = credentials().treat(post(0, full(Vec::new()))).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-echo", "hunter2".parse().unwrap());
    let frames = futures_util::stream::iter([Ok::<_, BoxError>(Frame::trailers(trailers))]);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_LENGTH, 0.into());
    let body = finish(response).into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap().get("x-echo").unwrap(), "[REDACTED]");
}

#[tokio::test]
async fn a_secret_is_taken_out_wherever_its_host_says_it() {
    let request = Request::get("/unbound").header(header::ACCEPT_ENCODING, "gzip");
    let request = request.body(full(Vec::new())).unwrap();
    let (request, finish) = credentials().treat(request).await.unwrap();
    assert_eq!(request.headers()[header::ACCEPT_ENCODING], "identity");
    let response = finish(Response::new(full(b"it was hunter2".to_vec())));
    let said = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(said, "it was [REDACTED]");
}

#[tokio::test]
async fn others_have_their_turn_while_an_answer_is_looked_through() {
    // All but the last letter, over and over.
    let secret = format!("{}b", "a".repeat(500));
    let vault = Vault::new(Arc::default());
    let request = json!({
        "credentials": [{"name": "c", "source": {"value": secret}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": ["a.example.com"]},
            "auth": {"type": "bearer", "credential": "c"},
        }],
    });
    vault.create(from_value(request).unwrap(), Scope::Hosts, |_| true).unwrap();
    let credentials = Credentials { vault: Arc::new(vault), ..credentials() };
    let (_, finish) = credentials.treat(post(0, full(Vec::new()))).await.unwrap();
    let said = "%61".repeat(10_000);
    let mut body = finish(Response::new(full(said.clone().into_bytes()))).into_body();
    let (mut turns, mut heard) = (0, Vec::new());
    loop {
        let next = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
        match next {
            Poll::Ready(Some(piece)) => heard.push(piece.unwrap().into_data().unwrap()),
            Poll::Ready(None) => break,
            Poll::Pending => turns += 1,
        }
    }
    assert_eq!(heard.concat(), said.as_bytes());
    // In how many pieces it came does not tell.
    assert!(turns > 10 && heard.len() <= 2, "{turns} {}", heard.len());
}

#[tokio::test]
async fn at_other_ports_nothing_is_given_and_secrets_are_taken_out_all_the_same() {
    for (port, scheme) in
        [(8443, Scheme::Https), (80, Scheme::Https), (443, Scheme::Http), (8080, Scheme::Http)]
    {
        let credentials = at(port, scheme);
        let request = post(7, full(b"__KEY__".to_vec()));
        let (request, finish) = credentials.treat(request).await.unwrap();
        let sent = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(sent, "__KEY__", "{port}");
        let response = finish(Response::new(full(b"it was hunter2".to_vec())));
        let said = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(said, "it was [REDACTED]", "{port}");
    }
}

#[tokio::test]
async fn of_a_secret_that_has_another_in_it_nothing_is_shown() {
    let vault = Vault::new(Arc::default());
    let binding = |name: &str, path: &str| {
        json!({
            "name": name,
            "match": {"hosts": ["a.example.com"], "paths": [path]},
            "auth": {"type": "bearer", "credential": name},
        })
    };
    let request = json!({
        "credentials": [
            {"name": "a", "source": {"value": "inner-4242"}},
            {"name": "z", "source": {"value": "outer-inner-4242-tail-9999"}},
        ],
        "bindings": [binding("a", "/a"), binding("z", "/z")],
    });
    vault.create(from_value(request).unwrap(), Scope::Hosts, |_| true).unwrap();
    let credentials = Credentials { vault: Arc::new(vault), ..credentials() };
    for path in ["/a", "/z", "/other"] {
        let request = Request::get(path).body(full(Vec::new())).unwrap();
        let (_, finish) = credentials.treat(request).await.unwrap();
        let said = b"outer-inner-4242-tail-9999 inner-4242".to_vec();
        let said = finish(Response::new(full(said))).into_body().collect().await.unwrap();
        assert_eq!(said.to_bytes(), "[REDACTED] [REDACTED]", "{path}");
    }
}

/// Hears what is said aloud.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = String::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            if field.name() == "message" {
                said = format!("{value:?}");
            }
        });
        self.0.lock().unwrap().push(said);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn that_a_credential_cannot_be_had_is_said_once_and_so_is_that_it_can_again() {
    let directory = tempfile::tempdir().unwrap();
    let sources = Sources::default().with_directory(directory.path().into());
    let vault = Vault::new(Arc::new(sources));
    let request = json!({
        "credentials": [{"name": "c", "source": {"type": "file", "path": "key"}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": ["a.example.com"]},
            "auth": {"type": "bearer", "credential": "c"},
        }],
    });
    vault.create(from_value(request).unwrap(), Scope::Hosts, |_| true).unwrap();
    let credentials = Credentials { vault: Arc::new(vault), ..credentials() };
    let heard = Heard::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    let ask = async |times: usize, works: bool| {
        for _ in 0..times {
            assert_eq!(credentials.treat(post(0, full(Vec::new()))).await.is_ok(), works);
        }
        std::mem::take(&mut *heard.0.lock().unwrap())
    };
    assert_eq!(ask(5, false).await, ["a credential cannot be had"]);
    osb_sys::fs::write(directory.path().join("key"), "hunter2").unwrap();
    assert_eq!(ask(5, true).await, ["a credential can be had again"]);
    osb_sys::fs::remove_file(directory.path().join("key")).unwrap();
    assert_eq!(ask(5, false).await, ["a credential cannot be had"]);
}
