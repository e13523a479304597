use serde::{Deserialize, Serialize};

use super::{AuthSummary, CredentialAuth};
use crate::null;

/// Which requests get which credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Binding {
    #[cfg_attr(feature = "schema", schema(min_length = 1))]
    pub name: String,
    #[serde(rename = "match")]
    pub requests: Match,
    pub auth: CredentialAuth,
}

/// The requests that a [`Binding`] is for. An empty list stands for the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// By default `https` alone.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub schemes: Vec<Scheme>,
    /// Full host names, or `*.` and a domain for every name below it.
    #[cfg_attr(
        feature = "schema",
        schema(min_items = 1, examples("api.example.com", "*.example.com"))
    )]
    pub hosts: Vec<String>,
    /// By default GET, POST, PUT, PATCH and DELETE.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Whole paths, or beginnings that end in `*`; by default `/*`.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// 80 and 443 are understood and follow from the scheme anyway; never in answers.
    #[serde(default, deserialize_with = "null::or_default", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(deprecated))]
    pub ports: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    Https,
    Http,
}

/// What can be read of a binding: the defaults are filled in, the secrets left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BindingSummary {
    pub name: String,
    /// The vault's revision now.
    pub revision: u64,
    #[serde(rename = "match")]
    pub requests: Match,
    pub auth: AuthSummary,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_match_needs_hosts_and_nothing_else() {
        let minimal = json!({"hosts": ["api.example.com"]});
        let read: Match = from_value(minimal.clone()).unwrap();
        assert_eq!(to_value(read).unwrap(), minimal);
        for requests in [
            json!({}),
            json!({"hosts": null}),
            json!({"hosts": ["a.b"], "host": "c.d"}),
            json!({"hosts": ["a.b"], "schemes": ["ftp"]}),
        ] {
            assert!(from_value::<Match>(requests.clone()).is_err(), "{requests} was accepted");
        }
    }
}
