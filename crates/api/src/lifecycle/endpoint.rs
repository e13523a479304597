use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where a port of a sandbox can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// `host[:port][/path]`, without a scheme: clients put theirs in front.
    #[cfg_attr(
        feature = "schema",
        schema(examples("127.0.0.1:8080/v1/sandboxes/4f2c…/proxy/44772"))
    )]
    pub endpoint: String,
    /// What every call to the endpoint must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

/// How the endpoint should be reachable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct EndpointQuery {
    /// Asks for an endpoint on this server. This server has no other kind.
    pub use_server_proxy: Option<bool>,
    /// Asks for a signed endpoint that is good until this unix second, and excludes
    /// `use_server_proxy`.
    pub expires: Option<String>,
}
