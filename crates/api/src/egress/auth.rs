use serde::{Deserialize, Serialize};

use crate::null;

/// How a matching request is given its credentials. Every kind may also substitute placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum CredentialAuth {
    /// `Authorization: Bearer` and the secret.
    Bearer {
        credential: String,
        #[serde(
            default,
            deserialize_with = "null::or_default",
            skip_serializing_if = "Vec::is_empty"
        )]
        substitutions: Vec<Substitution>,
    },
    /// `Authorization: Basic` and the secret, which is user and password in base64 already.
    Basic {
        credential: String,
        #[serde(
            default,
            deserialize_with = "null::or_default",
            skip_serializing_if = "Vec::is_empty"
        )]
        substitutions: Vec<Substitution>,
    },
    /// One header with the secret as its value.
    ApiKey {
        /// The header's name.
        // Whoever checks the binding can say which one has none.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schema(required = true))]
        name: String,
        credential: String,
        #[serde(
            default,
            deserialize_with = "null::or_default",
            skip_serializing_if = "Vec::is_empty"
        )]
        substitutions: Vec<Substitution>,
    },
    /// Several headers, each with a secret as its value.
    CustomHeaders {
        #[cfg_attr(feature = "schema", schema(min_items = 1))]
        headers: Vec<CustomHeader>,
        #[serde(
            default,
            deserialize_with = "null::or_default",
            skip_serializing_if = "Vec::is_empty"
        )]
        substitutions: Vec<Substitution>,
    },
    /// No header, substitutions alone.
    Passthrough {
        #[serde(
            default,
            deserialize_with = "null::or_default",
            skip_serializing_if = "Vec::is_empty"
        )]
        substitutions: Vec<Substitution>,
    },
}

impl CredentialAuth {
    pub fn substitutions(&self) -> &[Substitution] {
        match self {
            Self::Bearer { substitutions, .. }
            | Self::Basic { substitutions, .. }
            | Self::ApiKey { substitutions, .. }
            | Self::CustomHeaders { substitutions, .. }
            | Self::Passthrough { substitutions } => substitutions,
        }
    }

    /// The names of all credentials that it uses, with repetitions.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        let (one, headers) = match self {
            Self::Bearer { credential, .. }
            | Self::Basic { credential, .. }
            | Self::ApiKey { credential, .. } => (Some(credential.as_str()), [].as_slice()),
            Self::CustomHeaders { headers, .. } => (None, headers.as_slice()),
            Self::Passthrough { .. } => (None, [].as_slice()),
        };
        one.into_iter()
            .chain(headers.iter().map(|header| header.credential.as_str()))
            .chain(self.substitutions().iter().map(|substitution| substitution.credential.as_str()))
    }

    /// What can be read of it.
    pub fn summary(&self) -> AuthSummary {
        let (kind, name) = match self {
            Self::Bearer { .. } => (AuthType::Bearer, None),
            Self::Basic { .. } => (AuthType::Basic, None),
            Self::ApiKey { name, .. } => (AuthType::ApiKey, Some(name.clone())),
            Self::CustomHeaders { .. } => (AuthType::CustomHeaders, None),
            Self::Passthrough { .. } => (AuthType::Passthrough, None),
        };
        AuthSummary { kind, name }
    }
}

/// A header and the credential that is its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CustomHeader {
    pub name: String,
    pub credential: String,
}

/// Text in a request that stands for a secret and is replaced by it on the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Substitution {
    pub credential: String,
    #[cfg_attr(feature = "schema", schema(min_length = 1))]
    pub placeholder: String,
    /// Where to look for the placeholder.
    #[serde(rename = "in")]
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub places: Vec<Place>,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Path,
    Query,
    Header,
    Body,
}

/// What can be read of a [`CredentialAuth`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuthSummary {
    #[serde(rename = "type")]
    pub kind: AuthType,
    /// The header's name, for [`AuthType::ApiKey`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum AuthType {
    Bearer,
    Basic,
    ApiKey,
    CustomHeaders,
    Passthrough,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn every_kind_is_read_and_written_alike() {
        let substitutions =
            json!([{"credential": "c", "placeholder": "__K__", "in": ["path", "body"]}]);
        for (auth, summary) in [
            (json!({"type": "bearer", "credential": "c"}), json!({"type": "bearer"})),
            (json!({"type": "basic", "credential": "c"}), json!({"type": "basic"})),
            (
                json!({"type": "apiKey", "name": "X-Key", "credential": "c"}),
                json!({"type": "apiKey", "name": "X-Key"}),
            ),
            (
                json!({"type": "customHeaders", "headers": [{"name": "A", "credential": "c"}]}),
                json!({"type": "customHeaders"}),
            ),
            (
                json!({"type": "passthrough", "substitutions": substitutions}),
                json!({"type": "passthrough"}),
            ),
        ] {
            let read: CredentialAuth = from_value(auth.clone()).unwrap();
            assert_eq!(to_value(&read).unwrap(), auth);
            assert_eq!(to_value(read.summary()).unwrap(), summary);
            assert_eq!(read.credentials().collect::<Vec<_>>(), ["c"], "{auth}");
        }
    }

    #[test]
    fn null_is_absent_and_the_unknown_is_refused() {
        let read = from_value::<CredentialAuth>;
        assert!(read(json!({"type": "bearer", "credential": "c", "substitutions": null})).is_ok());
        for auth in [
            json!({"type": "oauth", "credential": "c"}),
            json!({"type": "bearer"}),
            json!({"type": "bearer", "credential": "c", "header": "X"}),
            json!({"type": "passthrough", "substitutions": [
                {"credential": "c", "placeholder": "p", "in": ["cookie"]}
            ]}),
        ] {
            assert!(read(auth.clone()).is_err(), "{auth} was accepted");
        }
    }
}
