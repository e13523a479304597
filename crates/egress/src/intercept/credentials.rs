//! Giving requests the credentials that a vault has for them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, uri::PathAndQuery};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full};

use super::{Body, BoxError, Finish, Host, Refusal, Rules, Scheme};
use crate::vault::{Armed, Found, Rewrite, Vault};

/// Gives requests to one host the credentials that a vault binds to it.
#[derive(Debug)]
pub struct Credentials {
    vault: Arc<Vault>,
    host: Host,
}

impl Credentials {
    pub fn new(vault: Arc<Vault>, host: Host) -> Self {
        Self { vault, host }
    }
}

#[async_trait]
impl Rules for Credentials {
    async fn treat(&self, request: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        let forbidden = |message: &str| Refusal::new(StatusCode::FORBIDDEN, message);
        let (mut parts, body) = request.into_parts();
        let active = self.vault.active();
        let scheme = match self.host.scheme {
            Scheme::Http => osb_api::egress::Scheme::Http,
            Scheme::Https => osb_api::egress::Scheme::Https,
        };
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let bound = match active.find(scheme, &self.host.name, &parts.method, target) {
            Found::None => {
                return Ok((Request::from_parts(parts, body), Box::new(|response| response)));
            }
            Found::One(bound) => Arc::clone(bound),
            Found::Ambiguous => return Err(forbidden("credential binding ambiguous")),
            Found::Unsafe => {
                let message = "the host may take this path for another one than it is bound to";
                return Err(forbidden(message));
            }
            Found::Plain(_) => {
                let message = "the operator does not release credentials over plain HTTP";
                return Err(forbidden(message));
            }
        };
        let armed = bound.arm().await.map_err(|error| {
            tracing::warn!(binding = bound.name(), %error, "a credential cannot be used");
            Refusal::new(StatusCode::BAD_GATEWAY, error.to_string())
        })?;
        let rewrite = armed.request(&mut parts).map_err(|error| forbidden(&error.to_string()))?;
        let body = match rewrite {
            Some(rewrite) => rewritten(&mut parts.headers, body, rewrite).await?,
            None => body,
        };
        let finish = Box::new(move |response| redacted(response, armed));
        Ok((Request::from_parts(parts, body), finish))
    }
}

/// The body of a request with its placeholders replaced.
async fn rewritten(headers: &mut HeaderMap, body: Body, rewrite: Rewrite) -> Result<Body, Refusal> {
    if rewrite.length().is_none_or(|length| length > Rewrite::WHOLE) {
        return Ok(Rewriting::new(body, rewrite, None).boxed_unsync());
    }
    let bad = |error: BoxError| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
    // No longer than it was announced to be: the connection does not pass on more.
    let whole = body.collect().await.map_err(bad)?.to_bytes();
    let whole = rewrite.whole(whole).map_err(|error| bad(error.into()))?;
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    Ok(Full::new(whole).map_err(|never| match never {}).boxed_unsync())
}

/// An answer without the secrets that its request was given.
fn redacted(mut response: Response<Body>, armed: Arc<Armed>) -> Response<Body> {
    armed.redactor().headers(response.headers_mut());
    // The answer to a request for the head alone keeps the length of what is not in it.
    if response.body().is_end_stream() {
        return response;
    }
    match armed.redactor().body(response.headers_mut()) {
        Some(rewrite) => {
            response.map(|body| Rewriting::new(body, rewrite, Some(armed)).boxed_unsync())
        }
        None => response,
    }
}

/// A body on its way through a [`Rewrite`].
struct Rewriting {
    body: Body,
    rewrite: Option<Rewrite>,
    /// What follows the body, once the end of it was passed on.
    trailers: Option<HeaderMap>,
    /// What is taken out of the trailers, of an answer.
    armed: Option<Arc<Armed>>,
}

impl Rewriting {
    fn new(body: Body, rewrite: Rewrite, armed: Option<Arc<Armed>>) -> Self {
        Self { body, rewrite: Some(rewrite), trailers: None, armed }
    }

    /// What the rewriting held back.
    fn finish(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let last = self.rewrite.take()?.finish();
        match last {
            Ok(last) if last.is_empty() => None,
            Ok(last) => Some(Ok(Frame::data(last))),
            Err(error) => Some(Err(error.into())),
        }
    }
}

impl http_body::Body for Rewriting {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            let this = &mut *self;
            let Some(rewrite) = &mut this.rewrite else { return Poll::Ready(None) };
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(this.finish()),
            };
            match frame.into_data() {
                Ok(piece) => {
                    match rewrite.push(piece) {
                        // All of it may be the beginning of something.
                        Ok(piece) if piece.is_empty() => {}
                        Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    }
                }
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else { continue };
                    if let Some(armed) = &this.armed {
                        armed.redactor().headers(&mut trailers);
                    }
                    this.trailers = Some(trailers);
                    if let Some(last) = this.finish() {
                        return Poll::Ready(Some(last));
                    }
                }
            }
        }
    }
}
