use std::collections::BTreeMap;

use http::{Method, Request, request::Builder};
use osb_api::egress::Binding;
use serde_json::{Value, from_value, json};

use super::*;
use crate::vault::binding::normalise;

fn bound(name: &str, requests: &Value) -> Arc<Bound> {
    let binding = json!({"name": name, "match": requests, "auth": {"type": "passthrough"}});
    let binding = normalise(from_value::<Binding>(binding).unwrap()).unwrap();
    Arc::new(Bound::new(&binding, &BTreeMap::new(), &Arc::default()).unwrap())
}

fn active(bindings: &[(&str, Value)]) -> Active {
    Active::new(bindings.iter().map(|(name, requests)| bound(name, requests)).collect())
}

fn find(active: &Active, scheme: Scheme, host: &str, method: &Method, target: &str) -> String {
    seek(active, scheme, host, Request::builder().method(method).uri(target))
}

fn seek(active: &Active, scheme: Scheme, host: &str, request: Builder) -> String {
    let parts = request.body(()).unwrap().into_parts().0;
    match active.find(scheme, &Name::parse(host).unwrap(), &parts) {
        Found::None => "none".to_owned(),
        Found::One(bound) => bound.name().to_owned(),
        Found::Ambiguous(_) => "ambiguous".to_owned(),
        Found::Unsafe(_) => "unsafe".to_owned(),
        Found::Plain(_) => "plain".to_owned(),
    }
}

#[test]
fn scheme_host_method_and_path_must_all_fit() {
    let active = active(&[("b", json!({"hosts": ["a.example.com"], "paths": ["/v1/*"]}))]);
    let at = |scheme, host, method, target| find(&active, scheme, host, method, target);
    assert_eq!(at(Scheme::Https, "a.example.com", &Method::GET, "/v1/x?q=/../"), "b");
    assert_eq!(at(Scheme::Http, "a.example.com", &Method::GET, "/v1/x"), "none");
    assert_eq!(at(Scheme::Https, "example.com", &Method::GET, "/v1/x"), "none");
    assert_eq!(at(Scheme::Https, "a.example.com", &Method::GET, "/v2/x"), "none");
    for method in [&Method::HEAD, &Method::OPTIONS, &Method::CONNECT] {
        assert_eq!(at(Scheme::Https, "a.example.com", method, "/v1/x"), "none");
    }
    let host = Name::parse("a.example.com").unwrap();
    assert!(active.binds(Scheme::Https, &host) && !active.binds(Scheme::Http, &host));
}

#[test]
fn a_wildcard_is_for_every_name_below_and_not_the_domain_itself() {
    let active = active(&[("b", json!({"hosts": ["*.example.com"]}))]);
    for (host, expected) in [
        ("a.example.com", "b"),
        ("a.b.example.com", "b"),
        ("example.com", "none"),
        ("badexample.com", "none"),
    ] {
        assert_eq!(find(&active, Scheme::Https, host, &Method::GET, "/"), expected, "{host}");
    }
}

#[test]
fn an_exact_host_goes_before_a_wildcard_as_far_as_it_fits() {
    let active = active(&[
        ("exact", json!({"hosts": ["a.example.com"], "paths": ["/x"]})),
        ("wild", json!({"hosts": ["*.example.com", "*.a.example.com"]})),
    ]);
    let at = |host, target| find(&active, Scheme::Https, host, &Method::GET, target);
    assert_eq!(at("a.example.com", "/x"), "exact");
    assert_eq!(at("a.example.com", "/y"), "wild");
    assert_eq!(at("b.a.example.com", "/x"), "wild");
    assert_eq!(active.collision(), None);
}

#[test]
fn two_bindings_for_one_request_are_found_out_both_ways() {
    let hosts = json!({"hosts": ["*.example.com"]});
    let nested = json!({"hosts": ["*.a.example.com"], "paths": ["/x/*"]});
    let active = active(&[("one", hosts), ("two", nested)]);
    assert_eq!(active.collision(), Some(("one", "two")));
    assert_eq!(find(&active, Scheme::Https, "b.a.example.com", &Method::GET, "/x/"), "ambiguous");
    let apart = [
        ("one", json!({"hosts": ["a.example.com"], "methods": ["GET"]})),
        ("two", json!({"hosts": ["a.example.com"], "methods": ["post"]})),
        ("three", json!({"hosts": ["a.example.com"], "schemes": ["http"]})),
    ];
    assert_eq!(self::active(&apart).collision(), None);
}

#[test]
fn a_path_that_means_something_else_to_a_server_goes_nowhere() {
    let active = active(&[
        ("repos", json!({"hosts": ["a.example.com"], "paths": ["/repos/*"]})),
        ("exact", json!({"hosts": ["a.example.com"], "paths": ["/a%2Fb"]})),
    ]);
    let at = |target| find(&active, Scheme::Https, "a.example.com", &Method::GET, target);
    assert_eq!(at("/repos/../admin"), "unsafe");
    assert_eq!(at("/repos/%2e%2e/admin"), "unsafe");
    assert_eq!(at("/repos/..%2fadmin"), "unsafe");
    assert_eq!(at("/repos/a%252fb"), "unsafe");
    assert_eq!(at("/repos/a\\b"), "unsafe");
    assert_eq!(at("/repos/group%2Fproject"), "repos");
    assert_eq!(at("/repos%2Fa"), "none");
    // One dot leads nowhere else; if it did, it would be refused.
    assert_eq!(at("/repos/./a"), "repos");
    assert_eq!(at("/repos/./../admin"), "unsafe");
    assert_eq!(at("/repos/%2e/a"), "unsafe");
    // Once the slash is written out no binding is for it.
    assert_eq!(at("/a%2Fb"), "unsafe");
    assert_eq!(at("/x/../repos/a"), "none");
}

#[test]
fn a_path_goes_nowhere_unless_every_reading_of_it_is_bound() {
    let requests = json!({
        "hosts": ["a.example.com"], "methods": ["GET", "POST"], "paths": ["/bound/*", "/a%20b"],
    });
    let active = active(&[("b", requests)]);
    let at = |target| find(&active, Scheme::Https, "a.example.com", &Method::GET, target);
    for target in [
        "/bound/%%32%65%%32%65/adm",
        "/bound/%2%65%2%65/adm",
        "/bound/..%3bx/adm",
        "/bound/%u002e%u002e/adm",
        "/bound/%c0%ae%c0%ae/adm",
        "/bound/..%09/adm",
        "/bound/.%0d./adm",
        "/bound/..%20/adm",
        "/bound/..%23/adm",
        "/bound/..%3f/adm",
        "/bound/%",
    ] {
        assert_eq!(at(target), "unsafe", "{target}");
    }
    for target in [
        "/bound/x?q=/../%zz",
        "/bound/a%20b",
        "/bound/%C3%BC",
        "/bound/100%25",
        "/bound/x;a=b",
        "/bound//x",
        "/bound/a%2Fb",
        "/bound/./x",
        "/a%20b",
    ] {
        assert_eq!(at(target), "b", "{target}");
    }
}

#[test]
fn headers_that_name_another_path_or_method_must_be_bound_as_well() {
    let requests = json!({
        "hosts": ["a.example.com"], "methods": ["GET", "POST"], "paths": ["/bound/*"],
    });
    let active = active(&[("b", requests)]);
    for (name, value, expected) in [
        ("x-original-url", "/adm", "unsafe"),
        ("x-rewrite-url", "/bound/../adm", "unsafe"),
        ("x-original-url", "/bound/y", "b"),
        ("x-http-method-override", "DELETE", "unsafe"),
        ("x-http-method-override", "get", "b"),
    ] {
        let request = Request::post("/bound/x").header(name, value);
        let found = seek(&active, Scheme::Https, "a.example.com", request);
        assert_eq!(found, expected, "{name}: {value}");
    }
}

#[tokio::test]
async fn where_a_secret_should_have_come_from_is_known_to_the_log_alone() {
    let sources = Sources::default().with_directory("/nonexistent".into());
    let credential = json!({"name": "c", "source": {"type": "file", "path": "team/token"}});
    let held = Held::new(from_value(credential).unwrap(), 1, &sources).unwrap();
    let auth = json!({"type": "bearer", "credential": "c"});
    let binding = json!({"name": "b", "match": {"hosts": ["a.example.com"]}, "auth": auth});
    let binding = normalise(from_value::<Binding>(binding).unwrap()).unwrap();
    let credentials = BTreeMap::from([("c".to_owned(), Arc::new(held))]);
    let bound = Bound::new(&binding, &credentials, &Arc::new(sources)).unwrap();
    let error = bound.arm().await.unwrap_err();
    assert!(error.place().unwrap().contains("team/token"));
    assert!(!error.to_string().contains("team/token"));
}
