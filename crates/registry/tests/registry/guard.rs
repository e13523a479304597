//! Nobody makes us talk with what is near us.

use osb_registry::{Client, Guard, Login, Reference, RegistryError, testkit::login};

use crate::{
    image::{Sample, client, push, read, repository, settings},
    stranger::{Act, Seen, Stranger, head, reply},
};

/// Somebody near, at an address that is not public, who would answer anything.
async fn neighbour() -> Stranger {
    Stranger::start_at("127.0.0.2", |_| reply("200 OK", &[], "secret")).await
}

fn is_guarded<T>(result: Result<T, RegistryError>) -> bool {
    matches!(result.err(), Some(RegistryError::Guarded { .. }))
}

#[tokio::test]
async fn registries_at_private_addresses_are_for_the_operator_to_name() {
    let near = neighbour().await;
    let port = near.name().rsplit(':').next().unwrap().to_owned();
    for name in [
        near.name(),
        // What `localhost` stands for is seen once it is resolved.
        format!("localhost:{port}"),
        format!("[::ffff:127.0.0.2]:{port}"),
        "169.254.169.254".to_owned(),
        "10.0.0.1:5000".to_owned(),
        "[::1]".to_owned(),
        // Spellings of 127.0.0.2 that only a resolver knows.
        format!("2130706434:{port}"),
        format!("0x7f.2:{port}"),
    ] {
        let reference = Reference::parse(&format!("{name}/x")).unwrap();
        let client = Client::new(settings(&[]), Guard::new(|_| false)).unwrap();
        let error = client.repository(&reference, None).resolve().await.unwrap_err();
        assert!(matches!(error, RegistryError::Guarded { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains("operator"), "{error}");
    }
    assert!(near.seen().is_empty());
    // Who is named may be near.
    let error = repository(&format!("{}/x", near.name())).manifest().await.unwrap_err();
    assert!(matches!(error, RegistryError::Manifest { .. }), "{error:?}");
    assert_eq!(near.seen().len(), 1);
}

#[tokio::test]
async fn redirects_lead_to_nobody_near() {
    let near = neighbour().await;
    let sample = Sample::new(1, 10);
    for location in
        [format!("http://{}/x", near.name()), "http://169.254.169.254/latest/meta-data/".to_owned()]
    {
        let registry =
            Stranger::start(move |_| reply("307 Go", &[("location", &location)], "")).await;
        let repository = repository(&format!("{}/x", registry.name()));
        assert!(is_guarded(repository.manifest().await));
        assert!(is_guarded(repository.resolve().await));
        assert!(is_guarded(read(&repository, &sample.config.0, 0).await));
    }
    assert!(near.seen().is_empty());
}

#[tokio::test]
async fn tokens_are_not_asked_for_near_us() {
    let near = neighbour().await;
    for realm in
        [format!("http://{}/token", near.name()), "http://169.254.169.254/token".to_owned()]
    {
        let challenge = format!("Bearer realm=\"{realm}\",service=\"x\"");
        let registry = Stranger::start(move |_| {
            reply("401 Unauthorized", &[("www-authenticate", &challenge)], "")
        })
        .await;
        let reference = Reference::parse(&format!("{}/x", registry.name())).unwrap();
        let client = client(settings(&[&registry.name()]));
        assert!(is_guarded(client.repository(&reference, None).manifest().await));
        assert!(is_guarded(client.repository(&reference, Some(login())).manifest().await));
    }
    assert!(near.seen().is_empty());
}

#[tokio::test]
async fn nothing_is_uploaded_to_somebody_near() {
    let near = neighbour().await;
    let location = format!("http://{}/upload", near.name());
    let registry = Stranger::start(move |seen: &Seen| match seen.method.as_str() {
        "HEAD" => vec![Act::Send(head("404 Not Found", &[("content-length", "0")]))],
        _ => reply("202 Accepted", &[("location", &location)], ""),
    })
    .await;
    let sample = Sample::new(1, 10);
    let repository = repository(&format!("{}/x", registry.name()));
    assert!(is_guarded(push(&repository, &sample.config.0, &sample.config.1).await));
    assert!(near.seen().is_empty());
}

#[tokio::test]
async fn a_login_stays_with_the_registry_that_it_is_for() {
    let sample = Sample::new(1, 10);
    let content = sample.config.1.clone();
    let storage = Stranger::start(move |_| reply("200 OK", &[], &content)).await;
    let location = format!("http://{}/signed?x=1", storage.name());
    let registry = Stranger::start(move |seen| match seen.header("authorization") {
        None => reply("401 Unauthorized", &[("www-authenticate", "Basic realm=\"x\"")], ""),
        Some(_) => reply("307 Go", &[("location", &location)], ""),
    })
    .await;
    let reference = Reference::parse(&format!("{}/x", registry.name())).unwrap();
    let given = Login { username: "me".to_owned(), password: "secret".into() };
    let client = client(settings(&[&registry.name()]));
    let repository = client.repository(&reference, Some(given));
    assert_eq!(read(&repository, &sample.config.0, 0).await.unwrap(), sample.config.1);
    // `me:secret`
    let told = registry.seen().last().unwrap().header("authorization").map(str::to_owned);
    assert_eq!(told.as_deref(), Some("Basic bWU6c2VjcmV0"));
    assert_eq!(storage.seen().len(), 1);
    assert_eq!(storage.seen()[0].header("authorization"), None);
}
