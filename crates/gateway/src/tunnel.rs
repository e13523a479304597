use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::{GatewayError, headers::lists};

/// A request to leave HTTP for another protocol, such as a WebSocket, and the client's end of it.
pub(crate) struct Upgrade {
    client: OnUpgrade,
    protocol: HeaderValue,
}

impl Upgrade {
    /// What the request asks for, if it does.
    ///
    /// An offer of HTTP/2 is declined by silence, as the protocol allows: a service that took it
    /// would get requests that we cannot see.
    pub(crate) fn requested<B>(request: &mut Request<B>) -> Result<Option<Self>, GatewayError> {
        let headers = request.headers();
        let Some(protocol) = headers.get(header::UPGRADE).cloned() else { return Ok(None) };
        let http2 = protocol.as_bytes().to_ascii_lowercase().starts_with(b"h2c");
        if http2 || !lists(headers, "upgrade") || request.version() != Version::HTTP_11 {
            return Ok(None);
        }
        let client = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(|| {
            GatewayError::BadRequest("this connection cannot be upgraded".to_owned())
        })?;
        Ok(Some(Self { client, protocol }))
    }

    /// Repeats the request to the service; the rules for headers have removed it.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
    }

    /// Copies both ways until both have ended. To be run once the service has agreed.
    pub(crate) async fn run(self, service: OnUpgrade) {
        let ends = futures_util::future::try_join(self.client, service).await;
        let (client, service) = match ends {
            Ok(ends) => ends,
            Err(error) => return tracing::debug!(%error, "an upgrade was not completed"),
        };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut service).await {
            tracing::debug!(%error, "an upgraded stream broke off");
        }
    }
}

/// The service's end, and the protocol it has agreed to.
pub(crate) fn agreed<B>(response: &mut Response<B>) -> (OnUpgrade, Option<HeaderValue>) {
    let protocol = response.headers().get(header::UPGRADE).cloned();
    (hyper::upgrade::on(response), protocol)
}

/// Tells the client what the service has agreed to; the rules for headers have removed it.
pub(crate) fn confirm(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
    }
}
