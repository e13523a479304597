use http_body_util::StreamBody;
use serde_json::{from_value, json};

use super::*;
use crate::{Name, vault::Scope};

fn credentials() -> Credentials {
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
    let host = Host { name, port: 443, scheme: Scheme::Https };
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
async fn a_secret_is_taken_out_wherever_its_host_says_it() {
    let request = Request::get("/unbound").header(header::ACCEPT_ENCODING, "gzip");
    let request = request.body(full(Vec::new())).unwrap();
    let (request, finish) = credentials().treat(request).await.unwrap();
    assert_eq!(request.headers()[header::ACCEPT_ENCODING], "identity");
    let response = finish(Response::new(full(b"it was hunter2".to_vec())));
    let said = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(said, "it was [REDACTED]");
}
