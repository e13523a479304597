use bytes::Bytes;
use http::Request;

use super::*;

fn secrets(all: &[&str]) -> Vec<Arc<SecretString>> {
    all.iter().map(|secret| Arc::new(SecretString::from(*secret))).collect()
}

fn stand(placeholder: &str, places: &[Place], secret: usize) -> Stand {
    Stand { placeholder: placeholder.to_owned(), places: places.to_vec(), secret }
}

fn parts(request: http::request::Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

fn injecting(scheme: AuthScheme, name: &'static str) -> Armed {
    let header = HeaderName::from_static(name);
    let plan =
        Plan { injections: vec![Injection { header, scheme, secret: 0 }], ..Plan::default() };
    Armed::new(&plan, &secrets(&["s3cret"])).unwrap()
}

fn substituting(places: &[Place], secret: &str) -> Armed {
    let plan = Plan { substitutions: vec![stand("__KEY__", places, 0)], ..Plan::default() };
    Armed::new(&plan, &secrets(&[secret])).unwrap()
}

#[test]
fn an_injected_header_takes_the_place_of_all_of_its_name() {
    for (scheme, name, expected) in [
        (AuthScheme::Bearer, "authorization", "Bearer s3cret"),
        (AuthScheme::Basic, "authorization", "Basic s3cret"),
        (AuthScheme::None, "x-api-key", "s3cret"),
    ] {
        let mut parts = parts(
            Request::get("https://a.example.com/x?y=1")
                .header(name, "placeholder")
                .header(name, "another")
                .header("accept-encoding", "gzip, br")
                .header("content-length", "3"),
        );
        assert!(injecting(scheme, name).request(&mut parts).unwrap().is_none());
        let values: Vec<_> = parts.headers.get_all(name).iter().collect();
        assert_eq!(values, [expected]);
        assert!(parts.headers[name].is_sensitive());
        assert_eq!(parts.headers[header::ACCEPT_ENCODING], "identity");
        assert_eq!(parts.headers[header::CONTENT_LENGTH], "3");
        assert_eq!(parts.uri, "https://a.example.com/x?y=1");
    }
}

#[test]
fn placeholders_in_path_query_and_headers_are_replaced_where_they_are_looked_for() {
    let plan = Plan {
        substitutions: vec![
            stand("__TENANT__", &[Place::Path], 0),
            stand("__QUERY__", &[Place::Query, Place::Header], 1),
        ],
        ..Plan::default()
    };
    let armed = Armed::new(&plan, &secrets(&["tenant 42", "query secret+value"])).unwrap();
    let mut parts = parts(
        Request::get("/t/__TENANT__/__QUERY__?a=__QUERY__&b=__TENANT__")
            .header("x-one", "a __QUERY__ b __TENANT__")
            .header("x-one", "second")
            .header("host", "__QUERY__")
            .header("x-forwarded-for", "__QUERY__"),
    );
    assert!(armed.request(&mut parts).unwrap().is_none());
    let expected = "/t/tenant%2042/__QUERY__?a=query%20secret%2Bvalue&b=__TENANT__";
    assert_eq!(parts.uri, expected);
    let values: Vec<_> = parts.headers.get_all("x-one").iter().collect();
    assert_eq!(values, ["a query secret+value b __TENANT__", "second"]);
    assert_eq!(parts.headers["host"], "__QUERY__");
    assert_eq!(parts.headers["x-forwarded-for"], "__QUERY__");
}

#[test]
fn a_secret_that_makes_another_path_is_not_sent() {
    for secret in ["a/b", "..", "a\\b", "%2f", "."] {
        let armed = substituting(&[Place::Path], secret);
        let mut parts = parts(Request::get("/x/__KEY__/y"));
        assert_eq!(armed.request(&mut parts).unwrap_err(), Refused::Path, "{secret}");
    }
    let mut parts = parts(Request::get("/x/__KEY__?a=/../"));
    assert!(substituting(&[Place::Path], "a.b").request(&mut parts).is_ok());
    assert_eq!(parts.uri, "/x/a.b?a=/../");
}

#[test]
fn a_secret_with_a_line_break_is_never_put_into_a_header() {
    let plan = Plan { substitutions: vec![stand("p", &[Place::Header], 0)], ..Plan::default() };
    assert_eq!(Armed::new(&plan, &secrets(&["a\r\nb"])).unwrap_err(), Unfit::Header);
    let plan = Plan { substitutions: vec![stand("p", &[Place::Body], 0)], ..Plan::default() };
    assert!(Armed::new(&plan, &secrets(&["a\r\nb"])).is_ok());
}

#[test]
fn a_body_is_rewritten_as_its_type_wants_and_left_alone_where_that_is_not_known() {
    let armed = substituting(&[Place::Body], "body \"secret\" & value");
    let rewritten = |headers: &[(&str, &str)]| {
        let mut request = Request::post("/").header("content-length", "7");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = parts(request);
        let rewrite = armed.request(&mut parts).unwrap();
        assert_eq!(rewrite.is_none(), parts.headers.contains_key(header::CONTENT_LENGTH));
        rewrite.map(|rewrite| {
            assert_eq!(rewrite.length(), Some(7));
            let body = rewrite.whole(Bytes::from_static(b"__KEY__")).unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        })
    };
    let json = "body \\\"secret\\\" & value";
    for (kind, expected) in [
        ("application/json; charset=utf-8", Some(json)),
        ("application/vnd.api+json", Some(json)),
        ("application/x-www-form-urlencoded", Some("body+%22secret%22+%26+value")),
        ("text/plain", Some("body \"secret\" & value")),
        ("multipart/form-data; boundary=x", None),
        ("application/grpc+proto", None),
    ] {
        assert_eq!(rewritten(&[("content-type", kind)]).as_deref(), expected, "{kind}");
    }
    assert!(rewritten(&[("content-encoding", "gzip")]).is_none());
    assert!(rewritten(&[("content-encoding", "identity")]).is_some());
    let mut empty = parts(Request::post("/").header("content-length", "0"));
    assert!(armed.request(&mut empty).unwrap().is_none());
}

#[test]
fn nothing_prints_a_secret() {
    let armed = injecting(AuthScheme::Bearer, "authorization");
    assert!(!format!("{armed:?} {:?}", armed.redactor()).contains("s3cret"));
}

#[test]
fn the_headers_of_a_request_share_their_room() {
    let armed = substituting(&[Place::Header], &"s".repeat(16 << 10));
    let with = |count: usize| {
        let many = (0..count).fold(Request::get("/"), |request, _| request.header("x", "__KEY__"));
        armed.request(&mut parts(many)).map(|_| ())
    };
    assert_eq!(with(4), Ok(()));
    assert_eq!(with(5), Err(Refused::Overgrown(Overgrown)));
}

#[test]
fn nobody_asks_for_an_answer_that_is_compressed_on_the_way() {
    for (said, expected) in [
        ("gzip", None),
        ("trailers, deflate;q=0.5", Some("trailers")),
        ("Trailers", Some("trailers")),
    ] {
        let mut parts = parts(Request::get("/").header("te", "x").header("te", said));
        injecting(AuthScheme::Bearer, "authorization").request(&mut parts).unwrap();
        let sent: Vec<_> = parts.headers.get_all("te").iter().collect();
        assert_eq!(sent, expected.into_iter().collect::<Vec<_>>(), "{said}");
    }
}
