use proptest::prelude::*;

use super::*;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn what_people_leave_out_is_filled_in() {
    for (text, whole, familiar) in [
        ("debian", "docker.io/library/debian:latest", "debian:latest"),
        ("debian:12", "docker.io/library/debian:12", "debian:12"),
        ("library/debian", "docker.io/library/debian:latest", "debian:latest"),
        ("me/tool:v1", "docker.io/me/tool:v1", "me/tool:v1"),
        ("docker.io/debian", "docker.io/library/debian:latest", "debian:latest"),
        ("index.docker.io/me/tool", "docker.io/me/tool:latest", "me/tool:latest"),
        ("registry-1.docker.io/me/tool", "docker.io/me/tool:latest", "me/tool:latest"),
        ("library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest"),
        ("localhost/x", "localhost/x:latest", "localhost/x:latest"),
        ("LocalHost/x", "localhost/x:latest", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest", "localhost:5000/x:latest"),
        ("LOCALHOST:05000/x:T", "localhost:5000/x:T", "localhost:5000/x:T"),
        ("host:443/a/b/c:1", "host:443/a/b/c:1", "host:443/a/b/c:1"),
        ("Quay.IO/a/b", "quay.io/a/b:latest", "quay.io/a/b:latest"),
        ("127.0.0.1/x", "127.0.0.1/x:latest", "127.0.0.1/x:latest"),
        ("[::1]:5000/x", "[::1]:5000/x:latest", "[::1]:5000/x:latest"),
        ("[0:0:0::1]/x:y", "[::1]/x:y", "[::1]/x:y"),
        ("docker.io:443/x", "docker.io:443/x:latest", "docker.io:443/x:latest"),
        ("a__b_c---d/e", "docker.io/a__b_c---d/e:latest", "a__b_c---d/e:latest"),
        // Short, these would be at the registries `localhost` and `a.b`.
        ("docker.io/localhost/x", "docker.io/localhost/x:latest", "docker.io/localhost/x:latest"),
        ("docker.io/a.b/x", "docker.io/a.b/x:latest", "docker.io/a.b/x:latest"),
        ("docker.io/library/a.b", "docker.io/library/a.b:latest", "a.b:latest"),
    ] {
        let reference = Reference::parse(text).unwrap();
        assert_eq!(reference.to_string(), whole);
        assert_eq!(reference.familiar(), familiar);
    }
}

#[test]
fn a_digest_may_stand_beside_a_tag_or_instead_of_it() {
    let digest = Digest::parse(DIGEST).unwrap();
    let bare = Reference::parse(&format!("debian@{DIGEST}")).unwrap();
    assert_eq!((bare.tag(), bare.digest()), (None, Some(&digest)));
    assert_eq!(bare.familiar(), format!("debian@{DIGEST}"));
    assert_eq!(bare.version(), DIGEST);
    let both = Reference::parse(&format!("r.test:1/debian:12@{DIGEST}")).unwrap();
    assert_eq!((both.registry(), both.repository()), ("r.test:1", "debian"));
    assert_eq!((both.tag(), both.version()), (Some("12"), DIGEST));
    assert_eq!(both.to_string(), format!("r.test:1/debian:12@{DIGEST}"));
    assert_eq!(Reference::parse("r.test:1/debian:12").unwrap().at(digest), both);
}

#[test]
fn what_is_no_name_is_refused_and_told_why() {
    let long = "a".repeat(300);
    let hex = DIGEST.strip_prefix("sha256:").unwrap();
    for (text, why) in [
        ("", "empty"),
        (":latest", "empty"),
        ("debian:", "a tag"),
        ("debian:-x", "a tag"),
        ("debian:a b", "a tag"),
        (&format!("debian:{}", "a".repeat(129)), "a tag"),
        ("Debian", "lower case"),
        ("me/Tool", "lower case"),
        ("debian@sha256:abc", "a digest"),
        (&format!("debian@{DIGEST}@{DIGEST}"), "a digest"),
        (hex, "after a name"),
        (&long, "255"),
        ("a//b", "a repository"),
        ("/a", "a repository"),
        ("a/", "a repository"),
        ("a___b", "a repository"),
        ("a..b", "a repository"),
        ("-a", "a repository"),
        ("a-", "a repository"),
        ("../a", "a registry"),
        ("host.test/../a", "a repository"),
        ("host:0/a", "a registry"),
        ("host:65536/a", "a registry"),
        ("host:/a", "a registry"),
        ("host:+1/a", "a registry"),
        (".host/a", "a registry"),
        ("ho_st.test/a", "a registry"),
        ("user:pw@host.test/a", "a digest"),
        ("https://host.test/a", "a registry"),
        ("[::1/a", "a registry"),
        ("[fe80::1%eth0]/a", "a registry"),
        ("host.test/a?x", "a repository"),
        ("host.test/a%2fb", "a repository"),
        ("host.test/ü", "a repository"),
        ("debian\n", "a repository"),
    ] {
        let error = Reference::parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains('\n') && error.len() < 500, "{error}");
        assert!(serde_json::from_value::<Reference>(text.into()).is_err());
    }
}

fn part() -> impl Strategy<Value = String> {
    "[a-z0-9]{1,8}((\\.|_|__|-{1,3})[a-z0-9]{1,8}){0,2}"
}

fn registry() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("docker.io".to_owned()),
        Just("localhost".to_owned()),
        "[a-z0-9]{1,6}(-[a-z0-9]{1,4})?\\.[a-z]{1,6}",
        "[a-z0-9]{1,6}:[1-9][0-9]{0,3}",
        any::<u128>().prop_map(|it| format!("[{}]:5000", Ipv6Addr::from_bits(it))),
    ]
}

proptest! {
    #[test]
    fn both_spellings_are_read_as_the_same_name(
        registry in registry(),
        parts in prop::collection::vec(part(), 1..4),
        tag in prop::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
        has_digest in any::<bool>(),
    ) {
        let mut text = format!("{registry}/{}", parts.join("/"));
        if let Some(tag) = &tag {
            text = format!("{text}:{tag}");
        }
        if has_digest {
            text = format!("{text}@{DIGEST}");
        }
        let reference = Reference::parse(&text).unwrap();
        prop_assert_eq!(reference.registry(), &registry);
        prop_assert!(reference.repository().ends_with(&parts.join("/")));
        prop_assert_eq!(reference.tag().is_some(), tag.is_some() || !has_digest);
        for again in [reference.to_string(), reference.familiar()] {
            prop_assert_eq!(&Reference::parse(&again).unwrap(), &reference);
        }
        let json = serde_json::to_string(&reference).unwrap();
        prop_assert_eq!(serde_json::from_str::<Reference>(&json).unwrap(), reference);
    }

    #[test]
    fn whatever_is_read_has_spellings_that_read_the_same(text in "[a-zA-Z0-9.:/@_\\[\\]-]{0,40}") {
        if let Ok(reference) = Reference::parse(&text) {
            prop_assert!(!reference.to_string().contains(".."));
            for again in [reference.to_string(), reference.familiar()] {
                prop_assert_eq!(&Reference::parse(&again).unwrap(), &reference);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        drop(Reference::parse(&text));
    }
}
