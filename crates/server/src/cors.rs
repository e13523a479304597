//! What browsers may do from other sites: anything, for the key that they must send is none that a
//! browser adds by itself.

use std::{convert::Infallible, time::Duration};

use axum::{Router, extract::Request, response::Response};
use http::{HeaderName, Method, header};
use osb_api::headers;
use tower::{Layer, ServiceExt};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

/// Answers preflights, and tells browsers that they may read the answers of `routes`.
pub(crate) fn open(routes: Router) -> Router {
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::mirror_request())
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(AllowHeaders::mirror_request())
        .allow_credentials(true)
        .expose_headers([HeaderName::from_static(headers::ORIGIN)])
        .max_age(Duration::from_mins(10))
        .vary([header::ORIGIN]);
    let answering = layer.layer(routes.clone());
    Router::new().fallback_service(tower::service_fn(move |request: Request| {
        let (plain, answering) = (routes.clone(), answering.clone());
        async move {
            // The layer takes every OPTIONS for a preflight; services in sandboxes have their own.
            let answer: Result<Response, Infallible> = if is_plain_options(&request) {
                plain.oneshot(request).await
            } else {
                answering.oneshot(request).await
            };
            answer
        }
    }))
}

fn is_plain_options(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && !request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}
