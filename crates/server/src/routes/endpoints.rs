//! Where the ports of a sandbox can be reached.

use std::collections::BTreeMap;

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use jiff::Timestamp;
use osb_api::{
    headers,
    lifecycle::{Endpoint, EndpointQuery},
    ports,
};

use crate::{
    app::{App, Parts},
    config,
    error::ApiError,
    extract::Id,
    ingress::{Destination, LAST_EXPIRY, port},
    place, query,
    record::Record,
};

/// Says where a port can be reached and what calls to it must carry.
///
/// All ports are reached through this server. Nothing is checked: the port may get its listener
/// later. With `expires` the address itself opens the port until then, and needs no token of the
/// sandbox; execd and the policy ask for their own all the same.
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
    if query.expires.is_some() && query.use_server_proxy == Some(true) {
        return Err(ApiError::invalid("expires and use_server_proxy exclude each other"));
    }
    let signature = match &query.expires {
        Some(expires) => Some(app.signer.sign(id, port, expiry(expires, app.clock.now())?)),
        None => None,
    };
    let to = Destination { id, port, signature };
    let endpoint = match &app.gateway_domain {
        Some(domain) if to.signature.is_some() => domain.address(&to.label()),
        _ => {
            let (host, mount) = (host(&app, &sent), place::mount(uri.path()));
            format!("{host}{mount}/sandboxes/{id}/proxy/{}", to.segment())
        }
    };
    let tokens = tokens(&record, &to);
    let endpoint = Endpoint { endpoint, headers: (!tokens.is_empty()).then_some(tokens) };
    Ok((origin(&record), JsonBody(endpoint)))
}

/// Clients ask for the policy of a sandbox from a template by its id, in place of its port.
fn origin(record: &Record) -> HeaderMap {
    let said = record
        .template
        .map(|_| (HeaderName::from_static(headers::ORIGIN), HeaderValue::from_static("template")));
    said.into_iter().collect()
}

/// The moment until which an address is to be good.
fn expiry(text: &str, now: Timestamp) -> Result<u64, ApiError> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let is_ahead = |at: &u64| i64::try_from(*at).is_ok_and(|at| at > now.as_second());
    number.filter(|at| is_ahead(at) && *at <= LAST_EXPIRY).ok_or_else(|| {
        ApiError::invalid("expires must be a moment in the future, in whole seconds since 1970")
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

fn tokens(record: &Record, to: &Destination) -> BTreeMap<String, String> {
    let own = match to.port {
        ports::EXECD => Some(("X-EXECD-ACCESS-TOKEN", &record.desired.spec.token)),
        ports::EGRESS => Some(("OPENSANDBOX-EGRESS-AUTH", &record.egress_token)),
        _ => None,
    };
    let secure = record.secure_access.as_ref().filter(|_| to.signature.is_none());
    let secure = secure.map(|token| ("OpenSandbox-Secure-Access", token));
    own.into_iter()
        .chain(secure)
        .map(|(name, token)| (name.to_owned(), token.reveal().to_owned()))
        .collect()
}
