use bytes::Bytes;
use http::{Method, Request, Response, Version, header};
use http_body_util::BodyExt as _;
use osb_api::headers::{API_KEY, EXECD_TOKEN};

use crate::site::{Site, answer, channel, text, text_of};

#[tokio::test]
async fn path_and_query_arrive_byte_for_byte() {
    let site = Site::new();
    let id = site.service(async |request| answer(request.uri().to_string())).await;
    for rest in
        ["/", "/a%2Fb%3Fc%25?q=%20+&r", "//x//../y", "/?", "/%e4%bd%a0?", "/a;b=c,d@e:f!$&'()*~"]
    {
        assert_eq!(site.get(id, rest).await.unwrap(), rest);
    }
}

#[tokio::test]
async fn every_method_arrives_with_its_body() {
    let site = Site::new();
    let id = site
        .service(async |request| {
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            answer(format!("{method} {}", String::from_utf8_lossy(&body)))
        })
        .await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let request = Request::builder().method(method).uri("/").body(text("sized")).unwrap();
        let response = site.forward(id, request).await.unwrap();
        assert_eq!(text_of(response).await.unwrap(), format!("{method} sized"));

        let (sender, body) = channel();
        let request = Request::builder().method(method).uri("/").body(body).unwrap();
        let send = async move {
            sender.send(Bytes::from_static(b"stre")).await.unwrap();
            sender.send(Bytes::from_static(b"amed")).await.unwrap();
        };
        let (response, ()) = tokio::join!(site.forward(id, request), send);
        assert_eq!(text_of(response.unwrap()).await.unwrap(), format!("{method} streamed"));
    }
}

#[tokio::test]
async fn the_service_sees_the_callers_headers_and_none_of_ours() {
    let site = Site::new();
    let id = site
        .service(async |request| {
            assert_eq!(request.version(), Version::HTTP_11);
            let mut names: Vec<&str> =
                request.headers().keys().map(header::HeaderName::as_str).collect();
            names.sort_unstable();
            answer(names.join(" "))
        })
        .await;
    let request = Request::get("/")
        .version(Version::HTTP_10)
        .header("host", "gw.example")
        .header("authorization", "Bearer app")
        .header(API_KEY, "key")
        .header(EXECD_TOKEN, "token")
        .header("x-forwarded-for", "1.1.1.1")
        .body(text(""))
        .unwrap();
    let response = site.forward(id, request).await.unwrap();
    assert_eq!(
        text_of(response).await.unwrap(),
        "authorization host x-forwarded-host x-forwarded-proto",
        "nothing is invented, such as a user agent or an encoding"
    );
}

#[tokio::test]
async fn the_caller_sees_the_services_headers() {
    let site = Site::new();
    let id = site
        .service(async |_| {
            Response::builder()
                .status(303)
                .header("location", "/next?x=%2F")
                .header("set-cookie", "a=1")
                .header("set-cookie", "b=2")
                .header("server", "service/1")
                .header("connection", "x-private")
                .header("x-private", "1")
                .body(answer("").into_body())
                .unwrap()
        })
        .await;
    let request = Request::get("/").header("host", "gw.example").body(text("")).unwrap();
    let response = site.forward(id, request).await.unwrap();
    assert_eq!(response.status(), 303);
    let headers = response.headers();
    assert_eq!(headers["location"], "/proxy/next?x=%2F");
    assert_eq!(headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert!(!headers.contains_key("server") && !headers.contains_key("x-private"));
}

#[tokio::test]
async fn the_head_of_an_answer_is_that_of_its_body() {
    let site = Site::new();
    let id = site.service(async |_| answer("12345")).await;
    let request = Request::builder().method(Method::HEAD).uri("/").body(text("")).unwrap();
    let response = site.forward(id, request).await.unwrap();
    assert_eq!(response.headers()["content-length"], "5");
    assert_eq!(text_of(response).await.unwrap(), "");
}
