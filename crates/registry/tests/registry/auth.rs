//! Tokens.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use osb_registry::{Client, HadLogin, Reference, RegistryError, testkit::login};
use osb_sys::fs;

use crate::{
    image::{Sample, client, read, settings},
    stranger::{Act, Seen, Stranger, head, reply},
};

/// A registry that wants tokens, each of which is good for `uses` questions.
struct Guarded {
    registry: Stranger,
    tokens: Stranger,
    sample: Sample,
}

impl Guarded {
    async fn start(uses: usize, token_answer: fn(&Seen, usize) -> Vec<Act>) -> Self {
        let (sample, given) = (Sample::new(1, 1000), Arc::new(AtomicUsize::new(0)));
        let number = Arc::clone(&given);
        let tokens =
            Stranger::start(move |seen| token_answer(seen, number.fetch_add(1, Relaxed))).await;
        let challenge = format!(
            "Bearer realm=\"http://{}/token?a=b\",service=\"the service\",scope=\"repository:x:*\"",
            tokens.name()
        );
        let asked = AtomicUsize::new(0);
        let blobs = sample.blobs().map(|blob| (format!("/v2/x/blobs/{}", blob.0.digest), blob));
        let all = blobs.chain([("/v2/x/manifests/latest".to_owned(), &sample.manifest)]);
        let content: BTreeMap<String, (String, bytes::Bytes)> = all
            .map(|(path, (kind, content))| (path, (kind.media_type.clone(), content.clone())))
            .collect();
        let registry = Stranger::start(move |seen| {
            let current = format!("Bearer t{}", given.load(Relaxed).saturating_sub(1));
            let is_known = seen.header("authorization") == Some(&current);
            if !is_known || asked.load(Relaxed) >= uses * given.load(Relaxed) {
                let headers = [("www-authenticate", challenge.as_str())];
                return reply(
                    "401 Unauthorized",
                    &headers,
                    r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#,
                );
            }
            asked.fetch_add(1, Relaxed);
            let Some((kind, content)) = content.get(&seen.path) else {
                return reply("404 Not Found", &[], "");
            };
            reply("200 OK", &[("content-type", kind)], content)
        })
        .await;
        Self { registry, tokens, sample }
    }

    fn reference(&self) -> Reference {
        Reference::parse(&format!("{}/x", self.registry.name())).unwrap()
    }

    fn client(&self) -> Client {
        client(settings(&[&self.registry.name()]))
    }
}

fn give(_: &Seen, number: usize) -> Vec<Act> {
    reply("200 OK", &[], format!(r#"{{"token":"t{number}","expires_in":300}}"#))
}

#[tokio::test]
async fn a_token_is_fetched_once_and_used_for_everything_of_a_repository() {
    let guarded = Guarded::start(1000, give).await;
    let client = guarded.client();
    for _ in 0..2 {
        let repository = client.repository(&guarded.reference(), Some(login()));
        repository.manifest().await.unwrap();
        for (blob, content) in guarded.sample.blobs() {
            assert_eq!(read(&repository, blob, 0).await.unwrap(), content);
        }
    }
    let asked = guarded.tokens.seen();
    assert_eq!(asked.len(), 1);
    let path = &asked[0].path;
    assert_eq!(
        path,
        "/token?a=b&client_id=opensandbox&service=the%20service\
         &scope=repository%3Ax%3Apull&account=me"
    );
    assert_eq!(asked[0].header("authorization"), Some("Basic bWU6c2VjcmV0"));
    // Those who said who they are and those who did not do not share tokens.
    client.repository(&guarded.reference(), None).manifest().await.unwrap();
    assert_eq!(guarded.tokens.seen().len(), 2);
    assert_eq!(guarded.tokens.seen()[1].header("authorization"), None);
    // The password went to nobody but the one who gives out tokens.
    for seen in guarded.registry.seen() {
        assert!(seen.header("authorization").is_none_or(|it| it.starts_with("Bearer t")));
    }
}

#[tokio::test]
async fn a_token_that_has_ended_is_replaced() {
    let guarded = Guarded::start(1, give).await;
    let repository = guarded.client().repository(&guarded.reference(), Some(login()));
    repository.manifest().await.unwrap();
    for (blob, content) in guarded.sample.blobs() {
        assert_eq!(read(&repository, blob, 0).await.unwrap(), content);
    }
    assert_eq!(guarded.tokens.seen().len(), 3);
}

#[tokio::test]
async fn an_identity_is_exchanged_for_a_token() {
    let guarded = Guarded::start(1000, |_, number| {
        reply("200 OK", &[], format!(r#"{{"access_token":"t{number}"}}"#))
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let name = guarded.registry.name();
    let config = format!(r#"{{"auths": {{"{name}": {{"identitytoken": "who/I am"}}}}}}"#);
    fs::write(&path, config).unwrap();
    let mut own = settings(&[&name]);
    own.logins.config = Some(path);
    client(own).repository(&guarded.reference(), None).manifest().await.unwrap();
    let asked = guarded.tokens.seen();
    assert_eq!((asked.len(), asked[0].method.as_str()), (1, "POST"));
    assert_eq!(
        String::from_utf8_lossy(&asked[0].body),
        "client_id=opensandbox&service=the%20service&scope=repository%3Ax%3Apull\
         &grant_type=refresh%5Ftoken&refresh_token=who%2FI%20am"
    );
    assert_eq!(asked[0].header("authorization"), None);
}

#[tokio::test]
async fn whoever_gets_no_token_is_told_to_log_in() {
    let guarded = Guarded::start(1, |_, _| {
        reply("401 Unauthorized", &[], r#"{"details":"incorrect username or password"}"#)
    })
    .await;
    for (given, had) in [(None, HadLogin::No), (Some(login()), HadLogin::Yes)] {
        let repository = guarded.client().repository(&guarded.reference(), given);
        let error = repository.manifest().await.unwrap_err();
        let RegistryError::Denied { login, .. } = error else { panic!("{error:?}") };
        assert_eq!(login, had);
    }
}

#[tokio::test]
async fn what_is_no_token_is_refused() {
    for answer in [
        (|_, _| reply("200 OK", &[], "{}")) as fn(&Seen, usize) -> Vec<Act>,
        |_, _| reply("200 OK", &[], r#"{"token":"a\r\nx: y"}"#),
        |_, _| vec![Act::Send(head("200 OK", &[])), Act::Repeat(b"[[[[[[[[".to_vec())],
    ] {
        let guarded = Guarded::start(1, answer).await;
        let error = guarded.client().repository(&guarded.reference(), None).manifest().await;
        assert!(matches!(error, Err(RegistryError::Corrupt { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn a_realm_that_is_no_place_is_refused() {
    for realm in ["", "file:///x", "/token", "http://u:p@127.0.0.1/", "http://127.0.0.1:0/"] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let registry = Stranger::start(move |_| {
            reply("401 Unauthorized", &[("www-authenticate", &challenge)], "")
        })
        .await;
        let reference = Reference::parse(&format!("{}/x", registry.name())).unwrap();
        let client = client(settings(&[&registry.name()]));
        let error = client.repository(&reference, Some(login())).manifest().await.unwrap_err();
        assert!(error.to_string().contains("where we do not go"), "{realm}: {error}");
    }
}
