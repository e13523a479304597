//! Where the ports of a sandbox can be reached.

use std::collections::BTreeMap;

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use osb_api::{
    codes, headers,
    lifecycle::{Endpoint, EndpointQuery},
    ports,
};

use crate::{
    app::{App, Parts},
    config,
    error::ApiError,
    extract::Id,
    place, query,
    record::Record,
};

/// Says where a port can be reached and what calls to it must carry.
///
/// All ports are reached through this server. Nothing is checked: the port may get its listener
/// later.
pub(super) async fn get(
    State(app): State<App>,
    Id(id): Id,
    uri: Uri,
    RawQuery(raw): RawQuery,
    sent: HeaderMap,
) -> Result<(HeaderMap, JsonBody<Endpoint>), ApiError> {
    let port = port(uri.path().rsplit('/').next().unwrap_or_default())?;
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let record = app.record(id)?;
    if query.expires.is_some() {
        return Err(if query.use_server_proxy == Some(true) {
            ApiError::invalid("expires and use_server_proxy exclude each other")
        } else {
            ApiError::unsupported("signed endpoints are not supported yet: leave expires out")
        });
    }
    let host = host(&app, &sent);
    let mount = place::mount(uri.path());
    let tokens = tokens(&record, port);
    let endpoint = Endpoint {
        endpoint: format!("{host}{mount}/sandboxes/{id}/proxy/{port}"),
        headers: (!tokens.is_empty()).then_some(tokens),
    };
    Ok((origin(&record), JsonBody(endpoint)))
}

/// Clients ask for the policy of a sandbox from a template by its id, in place of its port.
fn origin(record: &Record) -> HeaderMap {
    let said = record
        .template
        .map(|_| (HeaderName::from_static(headers::ORIGIN), HeaderValue::from_static("template")));
    said.into_iter().collect()
}

/// A port that can be called.
pub(super) fn port(text: &str) -> Result<u16, ApiError> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    number.filter(|port| *port != 0).ok_or_else(|| {
        ApiError::invalid_as(codes::INVALID_PORT, "the port must be a number of 1 to 65535")
    })
}

fn parse(raw: &str) -> Result<EndpointQuery, ApiError> {
    let mut query = EndpointQuery::default();
    for (key, value) in query::pairs(raw) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "use_server_proxy" => query.use_server_proxy = Some(query::switch(&key, &value)?),
            "expires" => query.expires = Some(value),
            _ => {}
        }
    }
    Ok(query)
}

/// The host that the client can reach: the configured one, or the one it has just reached.
fn host<'a>(app: &'a Parts, headers: &'a HeaderMap) -> &'a str {
    if let Some(public) = &app.public_host {
        return public.as_str();
    }
    let asked = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    asked.filter(|host| config::is_host(host)).unwrap_or(&app.local_host)
}

fn tokens(record: &Record, port: u16) -> BTreeMap<String, String> {
    let own = match port {
        ports::EXECD => Some(("X-EXECD-ACCESS-TOKEN", &record.desired.spec.token)),
        ports::EGRESS => Some(("OPENSANDBOX-EGRESS-AUTH", &record.egress_token)),
        _ => None,
    };
    let secure = record.secure_access.as_ref().map(|token| ("OpenSandbox-Secure-Access", token));
    own.into_iter()
        .chain(secure)
        .map(|(name, token)| (name.to_owned(), token.reveal().to_owned()))
        .collect()
}
