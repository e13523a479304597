use serde_json::{Value, from_value, json, to_value};

use super::*;

fn vault() -> Vault {
    Vault::new(Arc::new(Sources::default()))
}

fn credential(name: &str) -> Value {
    json!({"name": name, "source": {"type": "inline", "value": format!("secret-of-{name}")}})
}

fn binding(name: &str, host: &str, credential: &str) -> Value {
    json!({
        "name": name,
        "match": {"hosts": [host]},
        "auth": {"type": "bearer", "credential": credential},
    })
}

fn create(vault: &Vault, credentials: &Value, bindings: &Value) -> Result<VaultState, VaultError> {
    let request = json!({"credentials": credentials, "bindings": bindings});
    vault.create(from_value(request).unwrap(), Scope::Hosts, |_| true)
}

fn patch(vault: &Vault, request: Value) -> Result<VaultState, VaultError> {
    vault.patch(from_value(request).unwrap(), Scope::Hosts, |_| true)
}

fn invalid<T: std::fmt::Debug>(result: Result<T, VaultError>) -> String {
    match result {
        Err(VaultError::Invalid(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_can_be_read_is_sorted_and_has_no_secret() {
    let vault = vault();
    let state = create(
        &vault,
        &json!([credential("z"), credential("a")]),
        &json!([binding("two", "b.example.com", "z"), binding("one", "a.example.com", "a")]),
    )
    .unwrap();
    assert_eq!(vault.state().unwrap(), state);
    let requests = |host: &str| {
        json!({
            "schemes": ["https"],
            "hosts": [host],
            "methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
            "paths": ["/*"],
        })
    };
    let expected = json!({
        "revision": 1,
        "credentials": [
            {"name": "a", "sourceType": "inline", "revision": 1},
            {"name": "z", "sourceType": "inline", "revision": 1},
        ],
        "bindings": [
            {"name": "one", "revision": 1, "match": requests("a.example.com"), "auth": {"type": "bearer"}},
            {"name": "two", "revision": 1, "match": requests("b.example.com"), "auth": {"type": "bearer"}},
        ],
    });
    assert_eq!(to_value(&state).unwrap(), expected);
    assert_eq!(vault.credential("a").unwrap(), state.credentials[0]);
    assert_eq!(vault.binding("two").unwrap(), state.bindings[1]);
    assert!(matches!(vault.credential("two"), Err(VaultError::Unknown(_))));
    assert!(matches!(vault.binding("a"), Err(VaultError::Unknown(_))));
    assert!(!format!("{vault:?}{state:?}").contains("secret-of"));
}

#[test]
fn revisions_grow_with_every_change_and_go_on_after_a_deletion() {
    let vault = vault();
    assert!(matches!(vault.state(), Err(VaultError::Missing)));
    assert!(matches!(patch(&vault, json!({})), Err(VaultError::Missing)));
    assert!(matches!(vault.delete(), Err(VaultError::Missing)));
    assert_eq!(create(&vault, &json!([]), &json!([])).unwrap().revision, 1);
    assert!(matches!(create(&vault, &json!([]), &json!([])), Err(VaultError::Exists)));
    assert_eq!(patch(&vault, json!({})).unwrap().revision, 2);
    let added = json!({"expectedRevision": 2, "credentials": {"add": [credential("a")]}});
    assert_eq!(patch(&vault, added.clone()).unwrap().revision, 3);
    let late = patch(&vault, added);
    assert!(matches!(late, Err(VaultError::Stale { expected: 2, current: 3 })));
    let replaced = json!({"credentials": {"replace": [credential("a")], "add": [credential("b")]}});
    let state = patch(&vault, replaced).unwrap();
    let revisions: Vec<_> = state.credentials.iter().map(|c| c.revision).collect();
    assert_eq!((state.revision, revisions), (4, vec![4, 4]));
    vault.delete().unwrap();
    assert!(matches!(vault.credentials(), Err(VaultError::Missing)));
    assert_eq!(create(&vault, &json!([]), &json!([])).unwrap().revision, 5);
}

#[test]
fn a_patch_takes_effect_as_a_whole_or_not_at_all() {
    let vault = vault();
    let bindings = json!([binding("one", "a.example.com", "a")]);
    create(&vault, &json!([credential("a"), credential("b")]), &bindings).unwrap();
    let before = vault.state().unwrap();
    for (request, reason) in [
        (json!({"credentials": {"delete": ["a"]}}), "no credential \"a\""),
        (json!({"credentials": {"delete": ["x"]}}), "no credential \"x\""),
        (json!({"credentials": {"delete": ["b"], "add": [credential("b")]}}), "twice"),
        (json!({"credentials": {"add": [credential("a")]}}), "already"),
        (json!({"credentials": {"replace": [credential("c")]}}), "no credential \"c\""),
        (json!({"bindings": {"delete": ["two"]}}), "no binding \"two\""),
        (json!({"bindings": {"add": [binding("one", "b.example.com", "a")]}}), "already"),
        (json!({"bindings": {"replace": [binding("two", "b.example.com", "a")]}}), "two"),
        (json!({"bindings": {"add": [binding("two", "b.example.com", "x")]}}), "\"x\""),
        (json!({"bindings": {"add": [binding("two", "A.example.com", "b")]}}), "same requests"),
        (
            json!({"credentials": {"delete": ["b"]}, "bindings": {"add": [{
                "name": "two", "match": {"hosts": ["nodot"]}, "auth": {"type": "passthrough"},
            }]}}),
            "dot",
        ),
    ] {
        let message = invalid(patch(&vault, request.clone()));
        assert!(message.contains(reason), "{request}: {message}");
        assert_eq!(vault.state().unwrap(), before);
    }
    let request = json!({
        "credentials": {"delete": ["a"]},
        "bindings": {"replace": [binding("one", "a.example.com", "b")]},
    });
    assert_eq!(patch(&vault, request).unwrap().credentials.len(), 1);
}

#[test]
fn of_several_mistakes_always_the_first_is_reported() {
    let request = json!({
        "credentials": [credential("c"), {"name": "d", "source": {"value": ""}}, credential("")],
        "bindings": [binding("x", "nodot", "c"), binding("", "a.b", "missing")],
    });
    for _ in 0..20 {
        let result = vault().create(from_value(request.clone()).unwrap(), Scope::Hosts, |_| true);
        assert!(invalid(result).contains("\"d\""));
    }
}

#[test]
fn the_policy_must_allow_every_bound_host() {
    let allows = |name: &Name| name.as_str().ends_with(".example.com");
    let request = |host: &str| {
        let request =
            json!({"credentials": [credential("a")], "bindings": [binding("one", host, "a")]});
        from_value::<CreateVaultRequest>(request).unwrap()
    };
    for host in ["example.com", "*.example.org"] {
        let message = invalid(vault().create(request(host), Scope::Hosts, allows));
        assert!(message.contains(host), "{message}");
    }
    let vault = vault();
    vault.create(request("*.example.com"), Scope::Hosts, allows).unwrap();
    assert_eq!(vault.active().uncovered(allows), None);
    assert_eq!(vault.active().uncovered(|_| false).as_deref(), Some("*.example.com"));
}

#[test]
fn a_change_is_in_force_when_it_returns_and_requests_keep_what_they_found() {
    let vault = vault();
    let host = Name::parse("a.example.com").unwrap();
    let is_bound = || vault.active().binds(osb_api::egress::Scheme::Https, &host);
    let bindings = json!([binding("one", "a.example.com", "a")]);
    create(&vault, &json!([credential("a")]), &bindings).unwrap();
    assert!(is_bound());
    let earlier = vault.active();
    patch(&vault, json!({"bindings": {"delete": ["one"]}})).unwrap();
    assert!(!is_bound());
    assert!(earlier.binds(osb_api::egress::Scheme::Https, &host));
    vault.delete().unwrap();
    assert!(!is_bound());
}

#[test]
fn a_vault_has_an_end() {
    let many: Vec<_> = (0..=MOST).map(|n| credential(&format!("c{n}"))).collect();
    assert!(invalid(create(&vault(), &json!(many), &json!([]))).contains("at most"));
    let long = json!([{"name": "a", "source": {"value": "x".repeat(source::LONGEST + 1)}}]);
    assert!(invalid(create(&vault(), &long, &json!([]))).contains("longer"));
    let broken = json!([{"name": "a", "source": {"value": "a\r\nHost: b"}}]);
    let message = invalid(create(&vault(), &broken, &json!([binding("b", "a.example.com", "a")])));
    assert!(message.contains("line breaks"), "{message}");
}

#[test]
fn plain_http_gets_credentials_only_where_the_operator_says_so() {
    let request = |schemes| {
        from_value(json!({"bindings": [{
            "name": "b",
            "match": {"hosts": ["a.example.com"], "schemes": schemes},
            "auth": {"type": "passthrough"},
        }]}))
    };
    for schemes in [json!(["http"]), json!(["https", "http"])] {
        let result = vault().create(request(schemes).unwrap(), Scope::Hosts, |_| true);
        assert!(invalid(result).contains("plain-http"));
    }
    let open = Vault::new(Arc::new(Sources::default().with_plain_http()));
    open.create(request(json!(["http"])).unwrap(), Scope::Hosts, |_| true).unwrap();
    let host = Name::parse("a.example.com").unwrap();
    let find = |active: &Active| {
        let found = active.find(Scheme::Http, &host, &http::Request::new(()).into_parts().0);
        (matches!(found, Found::One(_)), matches!(found, Found::Plain(_)))
    };
    assert_eq!(find(&open.active()), (true, false));
    // One that was kept while it was allowed.
    let kept = open.kept.lock().unwrap().content.clone().unwrap();
    assert_eq!(find(&kept.compile(&Arc::default(), |_| true).unwrap()), (false, true));
}

#[test]
fn where_scopes_are_required_bindings_say_methods_and_paths() {
    let create = |requests: serde_json::Value| {
        let binding = json!({"name": "b", "match": requests, "auth": {"type": "passthrough"}});
        let request = from_value(json!({"bindings": [binding]})).unwrap();
        vault().create(request, Scope::Requests, |_| true)
    };
    let hosts = ["a.example.com"];
    assert!(create(json!({"hosts": hosts, "methods": ["GET"], "paths": ["/x/*"]})).is_ok());
    for requests in [
        json!({"hosts": hosts}),
        json!({"hosts": hosts, "methods": ["GET"]}),
        json!({"hosts": hosts, "paths": ["/x"]}),
        json!({"hosts": hosts, "methods": ["GET"], "paths": ["/x", "/*"]}),
    ] {
        assert!(invalid(create(requests)).contains("scoped"));
    }
}
