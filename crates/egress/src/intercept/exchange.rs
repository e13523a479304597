//! Passing requests on, and their answers back.

use std::{
    collections::HashSet,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header,
    uri::PathAndQuery,
};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::yield_now,
};

use super::{
    Body, Host, InterceptError, Refusal, Rules, Scheme,
    beside::Beside,
    expect::await_leave,
    peer::{Failed, HEAD_BYTES, HEADERS, UNSENT, Upstream},
    share::Share,
};

/// How long a client may take for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How long a client of HTTP/2 may ask for nothing until it is asked to leave, and how long it may take
/// for that.
const IDLE: Duration = Duration::from_mins(5);
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
/// What a client of HTTP/2 may send ahead of what the host has taken, of one request and of all on a
/// connection that has not to share with many.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// What concerns one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// One connection of a client, and the one to its host.
pub(super) struct Exchange {
    host: Host,
    rules: Arc<dyn Rules>,
    upstream: Upstream,
    /// What the connection becomes after it was one of HTTP.
    tunnel: Mutex<Option<(Upgrade, OnUpgrade)>>,
}

impl Exchange {
    pub(super) fn new(host: Host, rules: Arc<dyn Rules>, upstream: Upstream) -> Self {
        Self { host, rules, upstream, tunnel: Mutex::default() }
    }

    /// Serves the client until it or the host ends, over HTTP/2 if it has a share of such requests.
    /// Whatever was begun ends if this is dropped.
    pub(super) async fn serve<C>(
        self,
        client: C,
        share: Option<Share>,
    ) -> Result<(), InterceptError>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let exchange = Arc::new(self);
        let ours = Arc::clone(&exchange);
        let service = service_fn(move |request| {
            let exchange = Arc::clone(&ours);
            async move { Ok::<_, Infallible>(exchange.answer(request).await) }
        });
        let client = TokioIo::new(client);
        let served = match share {
            None => {
                let mut server = http1::Builder::new();
                server
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WITHIN)
                    .max_buf_size(HEAD_BYTES)
                    .max_headers(HEADERS)
                    .preserve_header_case(true)
                    .title_case_headers(true)
                    // Whoever closes TLS wants no answer any more, and the host need not work on
                    // one. Of others nobody knows: they may only have said all they had to say.
                    .half_close(exchange.host.scheme == Scheme::Http);
                server.serve_connection(client, service).with_upgrades().await
            }
            Some(share) => {
                let requests = share.requests();
                let window = (requests * STREAM_WINDOW / 8).clamp(STREAM_WINDOW, CONNECTION_WINDOW);
                let (beside, mut queue) = Beside::new();
                let mut server = http2::Builder::new(beside);
                server
                    .timer(TokioTimer::new())
                    .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(window)
                    .max_send_buf_size(UNSENT)
                    .max_concurrent_streams(requests);
                let connection = server.serve_connection(client, service);
                let leave = |it: Pin<&mut http2::Connection<_, _, _>>| it.graceful_shutdown();
                let leave = (leave, LEAVES_WITHIN);
                queue.run_busy(connection, IDLE, leave).await.unwrap_or(Ok(()))
            }
        };
        let is_strange = served.as_ref().is_err_and(hyper::Error::is_parse);
        if let Err(error) = served {
            tracing::debug!(%error, "the connection of a client broke off");
        }
        let tunnel = exchange.tunnel().take();
        if let Some((upgrade, agreed)) = tunnel {
            upgrade.run(agreed).await;
        }
        if is_strange { Err(InterceptError::NotHttp) } else { Ok(()) }
    }

    fn tunnel(&self) -> MutexGuard<'_, Option<(Upgrade, OnUpgrade)>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let method = request.method().clone();
        match self.pass(request).await {
            Ok(response) => response,
            Err(refusal) => refuse(&refusal, &method).await,
        }
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (version, method) = (request.version(), request.method().clone());
        self.check(&request)
            .inspect_err(|_| self.rules.turned_away(request.method(), request.uri().path()))?;
        let upgrade = Upgrade::requested(&mut request);
        clean(request.headers_mut());
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let (request, finish) = self.rules.treat(request).await?;
        let mut request = await_leave(request, version);
        address(&mut request, version)?;
        if let Some(upgrade) = &upgrade {
            upgrade.write(request.headers_mut());
        }
        let failed = |message| Refusal::new(StatusCode::BAD_GATEWAY, message);
        // Reading the body may have taken long.
        if self.rules.is_over() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the policy has changed"));
        }
        let mut response = match self.upstream.send(request).await {
            Ok(response) => response,
            Err(Failed { how, message }) => {
                let mut response = refuse(&failed(message), &method).await;
                response.extensions_mut().insert(how);
                return Ok(finish(response));
            }
        };

        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let agreed = switched.then(|| hyper::upgrade::on(&mut response));
        clean(response.headers_mut());
        let mut response = finish(response);
        match (upgrade, agreed) {
            (Some(upgrade), Some(agreed)) => {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                // Nothing else was asked for, and what the host says here was not looked through.
                response
                    .headers_mut()
                    .insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                *self.tunnel() = Some((upgrade, agreed));
            }
            (None, Some(_)) => {
                return Err(failed("the host switched to a protocol that nobody asked for".into()));
            }
            (_, None) => {}
        }
        Ok(response)
    }

    /// Refuses what is for another host than the connection, and what would give away what is
    /// added to requests.
    fn check(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let refused = |status, message: &str| Err(Refusal::new(status, message));
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "this method is not passed on");
        }
        let named = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let addressed = request.uri().authority().map(|host| host.as_str().as_bytes());
        let mut hosts = named.chain(addressed).peekable();
        if hosts.peek().is_none() || !hosts.all(|host| self.is_it(host)) {
            return refused(
                StatusCode::MISDIRECTED_REQUEST,
                "the request is for another host than its connection",
            );
        }
        Ok(())
    }

    /// Whether this is the host, as everybody writes it: some choose by the text whom they answer for.
    fn is_it(&self, said: &[u8]) -> bool {
        let Host { name, port, .. } = &self.host;
        let name = name.as_str().as_bytes();
        let Some((said, rest)) = said.split_at_checked(name.len()) else { return false };
        said.eq_ignore_ascii_case(name)
            && match rest {
                [] => *port == self.usual_port(),
                rest => rest == format!(":{port}").as_bytes(),
            }
    }

    fn usual_port(&self) -> u16 {
        match self.host.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// A request to leave HTTP for another protocol, such as a WebSocket.
struct Upgrade {
    client: OnUpgrade,
    protocol: HeaderValue,
}

impl Upgrade {
    /// What the request asks for, if it is a WebSocket. An offer of anything else is declined by
    /// silence: it may be HTTP again, in a form that nobody looks into.
    fn requested<B>(request: &mut Request<B>) -> Option<Self> {
        let protocol = request.headers().get(header::UPGRADE)?.clone();
        if !protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
            || request.version() != Version::HTTP_11
        {
            return None;
        }
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Self { client, protocol })
    }

    fn write(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
    }

    async fn run(self, host: OnUpgrade) {
        let (client, host) = match tokio::try_join!(self.client, host) {
            Ok(ends) => ends,
            Err(error) => return tracing::debug!(%error, "an upgrade was not completed"),
        };
        let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut host).await {
            tracing::debug!(%error, "an upgraded connection broke off");
        }
    }
}

/// Writes the address as the protocol has it: whole in HTTP/2, the path alone before.
fn address(request: &mut Request<Body>, version: Version) -> Result<(), Refusal> {
    let unfit = |error: http::Error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = if version == Version::HTTP_2 {
        let authority = request.uri().authority().cloned();
        let named = || request.headers().get(header::HOST)?.to_str().ok()?.parse().ok();
        let authority = authority.or_else(named);
        // Said once: a host may refuse what is said twice.
        request.headers_mut().remove(header::HOST);
        let authority = authority.map_or_else(String::new, |it| it.to_string());
        Uri::builder().scheme("https").authority(authority).path_and_query(path).build()
    } else {
        Uri::builder().path_and_query(path).build()
    };
    *request.uri_mut() = uri.map_err(unfit)?;
    // HTTP/1.0 has no bodies whose length is not said ahead, as of one that is changed on its way.
    let is_told = request.body().size_hint().exact().is_some()
        || request.headers().contains_key(header::CONTENT_LENGTH);
    let is_fit = is_told || version != Version::HTTP_10;
    *request.version_mut() = if is_fit { version } else { Version::HTTP_11 };
    Ok(())
}

fn clean(headers: &mut HeaderMap) {
    let listed: HashSet<_> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        // Whom the request is for was checked, and does not concern the connection alone.
        .filter(|name| name != "host")
        .collect();
    // A length beside a transfer coding is void.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let goes = |name: &str| HOP_BY_HOP.contains(&name) || listed.contains(name);
    if !headers.keys().any(|name| goes(name.as_str())) {
        return;
    }
    // What is removed from a map changes the order of the others, which tells hosts of clients.
    let mut kept = HeaderMap::with_capacity(headers.keys_len());
    let mut last = None;
    for (name, value) in std::mem::take(headers) {
        last = name.or(last);
        if let Some(name) = last.as_ref().filter(|name| !goes(name.as_str())) {
            kept.append(name, value);
        }
    }
    *headers = kept;
}

/// An answer of our own. It ends the turn of its connection, since nothing was waited for: whoever
/// goes on asking would keep others from being served, and the server from hearing of them.
async fn refuse(refusal: &Refusal, method: &Method) -> Response<Body> {
    yield_now().await;
    let mut facts = refusal.facts.clone();
    facts.insert("message".to_owned(), format!("OpenSandbox: {}", refusal.message).into());
    let text = format!("{}\n", serde_json::Value::Object(facts));
    let length = HeaderValue::from(text.len());
    // To HTTP/2, an answer to this method that has a body is a broken one.
    let said = if *method == Method::HEAD { Bytes::new() } else { text.into() };
    let mut response = Response::new(body(said));
    *response.status_mut() = refusal.status;
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[test]
    fn a_body_of_unknown_length_is_not_lost_for_a_client_of_http_1_0() {
        let known = || body(Bytes::from_static(b"12345"));
        let unknown = || {
            let frames =
                futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"12345")))]);
            StreamBody::new(frames).boxed_unsync()
        };
        let sent = |body, version| {
            let mut request = Request::post("/").body(body).unwrap();
            address(&mut request, version).unwrap();
            request.version()
        };
        assert_eq!(sent(known(), Version::HTTP_10), Version::HTTP_10);
        assert_eq!(sent(unknown(), Version::HTTP_10), Version::HTTP_11);
        assert_eq!(sent(unknown(), Version::HTTP_11), Version::HTTP_11);
    }

    #[test]
    fn what_concerns_the_connection_goes_and_whom_the_request_is_for_stays() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "a.test"),
            ("connection", "Close, HOST, x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        clean(&mut headers);
        let names: Vec<_> = headers.keys().map(header::HeaderName::as_str).collect();
        assert_eq!(names, ["host", "te", "accept"]);
    }
}
