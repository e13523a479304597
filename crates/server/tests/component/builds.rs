//! Builds, where there are none.

use http::Method;

use crate::harness::TestServer;

#[tokio::test]
async fn a_server_without_images_builds_none() {
    let server = TestServer::start().await;
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let answer = server.call(method, "/v1/images/build", None).await;
        assert_eq!(answer.status, 501, "{answer:?}");
        assert_eq!(answer.json()["code"], "SANDBOX::API_NOT_SUPPORTED");
    }
}
