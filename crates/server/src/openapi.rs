use osb_api::headers;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self,
        security::{ApiKey, ApiKeyValue, SecurityScheme},
    },
};

use crate::routes::{EndpointRoutes, SandboxRoutes, ServiceRoutes};

/// The description of the lifecycle API, made from the code that serves it.
pub fn openapi() -> openapi::OpenApi {
    let mut document = Lifecycle::openapi();
    document.merge(SandboxRoutes::openapi());
    document.merge(EndpointRoutes::openapi());
    document.merge(ServiceRoutes::openapi());
    document
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "OpenSandbox Lifecycle API",
        description = "Make, find, keep and end sandboxes. Every route below /v1 also answers \
                       without that prefix."
    ),
    security(("apiKey" = [])),
    modifiers(&Key)
)]
struct Lifecycle;

struct Key;

impl Modify for Key {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let header = ApiKeyValue::new(headers::API_KEY.to_ascii_uppercase());
        components.add_security_scheme("apiKey", SecurityScheme::ApiKey(ApiKey::Header(header)));
    }
}
