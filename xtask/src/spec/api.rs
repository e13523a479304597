use osb_api::ErrorBody;
use utoipa::{
    PartialSchema as _, ToSchema as _,
    openapi::{
        ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder,
        SecurityRequirement, ServerBuilder,
        security::{ApiKey, ApiKeyValue, SecurityScheme},
        tag::TagBuilder,
    },
};

use super::{operation::Operation, strict::without_null};

/// One API: what it is for, how callers prove who they are, and everything they can ask.
pub(crate) struct Api {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Where it is served, and what stands there.
    pub(crate) server: (&'static str, &'static str),
    /// The header that carries the caller's secret, and which secret that is.
    pub(crate) key: (&'static str, &'static str),
    pub(crate) tags: Vec<(&'static str, &'static str)>,
    pub(crate) operations: Vec<Operation>,
}

impl Api {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn document(&self) -> OpenApi {
        let license =
            LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
        let info = InfoBuilder::new()
            .title(self.title)
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some(self.description))
            .license(Some(license))
            .build();

        let mut paths = PathsBuilder::new();
        let mut components = ComponentsBuilder::new()
            .schema(ErrorBody::name(), ErrorBody::schema())
            .security_scheme("key", self.security_scheme());
        for operation in &self.operations {
            paths = paths.path(operation.path(), operation.item());
            let answered = operation.answered().iter().cloned();
            components = components
                .schemas_from_iter(answered.map(|(name, schema)| (name, without_null(schema))));
        }

        // A type that is also asked for keeps its nulls: requests may have them.
        for operation in &self.operations {
            components = components.schemas_from_iter(operation.asked().iter().cloned());
        }

        let (url, place) = self.server;
        let server = ServerBuilder::new().url(url).description(Some(place)).build();
        let tags = self
            .tags
            .iter()
            .map(|(name, text)| TagBuilder::new().name(*name).description(Some(*text)).build());
        OpenApiBuilder::new()
            .info(info)
            .servers(Some([server]))
            .paths(paths.build())
            .components(Some(components.build()))
            .security(Some([SecurityRequirement::new("key", [] as [&str; 0])]))
            .tags(Some(tags))
            .build()
    }

    fn security_scheme(&self) -> SecurityScheme {
        let (header, secret) = self.key;
        SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(header, secret)))
    }
}
