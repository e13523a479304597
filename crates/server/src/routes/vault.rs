//! The credential vault of a sandbox, below `/credential-vault` on its egress port.
//!
//! Whatever is wrong with a request, the same answer comes first: who asks, whether the sandbox can
//! have a vault, how the request came, its body, and then what it says.

use axum::{
    Json as JsonBody,
    extract::Request,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use osb_api::egress::{CreateVaultRequest, PatchVaultRequest};
use osb_gateway::Caller;
use percent_encoding::percent_decode_str;
use secrecy::zeroize::Zeroize;
use serde::{Serialize, de::DeserializeOwned};

use crate::{app::App, error::ApiError, extract, record::Record};

/// Where the vault begins on the egress port.
pub(super) const PATH: &str = "/credential-vault";

/// What a path below [`PATH`] names.
enum Resource {
    Vault,
    /// The vault with its secrets.
    Active,
    Credentials,
    Credential(String),
    Bindings,
    Binding(String),
}

/// Whether the path is shown to nobody, whoever asks.
pub(super) fn is_closed(path: &str) -> bool {
    matches!(Resource::parse(path), Some(Resource::Active))
}

/// Answers for everything at `path`, which begins with [`PATH`]. The caller has shown its token.
pub(super) async fn serve(
    app: &App,
    record: &Record,
    path: &str,
    request: Request,
) -> Result<Response, ApiError> {
    let resource = Resource::parse(path).ok_or_else(ApiError::no_route)?;
    let vault = app.reconciler.vault(record.id());
    match (resource, request.method()) {
        (Resource::Active, &Method::GET) => Err(ApiError::vault_forbidden()),
        (Resource::Vault, &Method::GET) => Ok(shown(vault.state()?)),
        (Resource::Vault, &Method::POST | &Method::PATCH | &Method::DELETE) => {
            write(app, record, request).await
        }
        (Resource::Credentials, &Method::GET) => Ok(shown(vault.credentials()?)),
        (Resource::Credential(name), &Method::GET) => Ok(shown(vault.credential(&name)?)),
        (Resource::Bindings, &Method::GET) => Ok(shown(vault.bindings()?)),
        (Resource::Binding(name), &Method::GET) => Ok(shown(vault.binding(&name)?)),
        (Resource::Vault, _) => Ok(wrong_method("GET, POST, PATCH, DELETE")),
        (_, _) => Ok(wrong_method("GET")),
    }
}

async fn write(app: &App, record: &Record, request: Request) -> Result<Response, ApiError> {
    if !record.credential_proxy {
        return Err(ApiError::vault_not_ready());
    }
    let caller = request.extensions().get::<Caller>();
    let admitted = caller.is_some_and(|caller| {
        let headers = request.headers();
        app.transport.admits(caller.address, &caller.scheme, headers)
            && record.vault_terms.admits(caller, headers)
    });
    if !admitted {
        return Err(ApiError::vault_tls_required());
    }
    let (id, reconciler) = (record.id(), &app.reconciler);
    let scope = app.scope.and(record.vault_terms.scope());
    Ok(match *request.method() {
        Method::POST => {
            let body = read::<CreateVaultRequest>(app, request).await?;
            let made = reconciler
                .change_vault(id, move |vault, allowed| vault.create(body, scope, allowed));
            let state = made.await.map_err(ApiError::internal)??;
            (StatusCode::CREATED, shown(state)).into_response()
        }
        Method::PATCH => {
            let body = read::<PatchVaultRequest>(app, request).await?;
            let done = reconciler
                .change_vault(id, move |vault, allowed| vault.patch(body, scope, allowed));
            shown(done.await.map_err(ApiError::internal)??)
        }
        _ => {
            let done = reconciler.change_vault(id, |vault, _| vault.delete());
            done.await.map_err(ApiError::internal)??;
            StatusCode::NO_CONTENT.into_response()
        }
    })
}

/// The body of a request. It is wiped, and no error quotes it.
async fn read<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, ApiError> {
    let body = extract::json_bytes(request, app).await?;
    let parsed = serde_json::from_slice(&body);
    wipe(body);
    parsed.map_err(|error| {
        let error = extract::without_values(&error.to_string());
        ApiError::vault_invalid(format!("the body cannot be accepted: {error}"))
    })
}

fn wipe(body: Bytes) {
    if let Ok(mut body) = body.try_into_mut() {
        body.as_mut().zeroize();
    }
}

fn shown(body: impl Serialize) -> Response {
    JsonBody(body).into_response()
}

fn wrong_method(allowed: &'static str) -> Response {
    let mut response = ApiError::wrong_method().into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

impl Resource {
    fn parse(path: &str) -> Option<Self> {
        let below = path.strip_prefix(PATH)?;
        let mut parts = below.split('/');
        let (Some(""), kind, name, None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let decoded = |name: &str| {
            let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
            (!name.is_empty()).then_some(name)
        };
        match (kind, name) {
            (None | Some(""), None) => Some(Self::Vault),
            (Some("_active"), None) => Some(Self::Active),
            (Some("credentials"), None) => Some(Self::Credentials),
            (Some("bindings"), None) => Some(Self::Bindings),
            (Some("credentials"), Some(name)) => decoded(name).map(Self::Credential),
            (Some("bindings"), Some(name)) => decoded(name).map(Self::Binding),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_once_and_nothing_else_is_found() {
        for path in ["/credential-vault", "/credential-vault/"] {
            assert!(matches!(Resource::parse(path), Some(Resource::Vault)), "{path}");
        }
        let named = Resource::parse("/credential-vault/credentials/a%2Fb%20%2541");
        assert!(matches!(named, Some(Resource::Credential(name)) if name == "a/b %41"));
        assert!(is_closed("/credential-vault/_active"));
        for path in [
            "/credential-vaults",
            "/credential-vault/x",
            "/credential-vault/credentials/",
            "/credential-vault/credentials/a/b",
            "/credential-vault/bindings/%FF",
            "/credential-vault/_active/x",
            "/credential-vault//credentials",
        ] {
            assert!(Resource::parse(path).is_none(), "{path} was found");
        }
    }
}
