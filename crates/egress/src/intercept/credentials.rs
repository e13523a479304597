//! Giving requests the credentials that a vault has for them.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, uri::PathAndQuery};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full};

use hyper::ext::ReasonPhrase;
use osb_api::SandboxId;
use osb_core::Chain;
use tokio::{sync::OwnedSemaphorePermit, task::yield_now, time::timeout};

use super::{Body, BoxError, Finish, Host, Refusal, Rules, Scheme, peer::Failure};
use crate::{
    Asked, By, CredentialOutcome, CredentialUse, Ruling, Verdict,
    vault::{Found, Redactor, Rewrite, Vault, Work, ask_plainly},
};

/// How long a client may take for a body that is read whole.
const BODY_WITHIN: Duration = Duration::from_mins(1);

/// Hears of every use of credentials, and of every time that they were withheld.
pub(super) type Told = Arc<dyn Fn(Asked, Ruling) + Send + Sync>;

/// Gives requests to one host the credentials that a vault binds to it.
pub(crate) struct Credentials {
    /// Whose requests they are.
    id: SandboxId,
    vault: Arc<Vault>,
    host: Host,
    told: Told,
}

impl Credentials {
    pub(crate) fn new(id: SandboxId, vault: Arc<Vault>, host: Host, told: Told) -> Self {
        Self { id, vault, host, told }
    }
}

impl Credentials {
    /// Whether requests get any. A rule may have the host looked into at other ports, too, where
    /// somebody else may answer; secrets are taken out of what is said there.
    fn gives(&self) -> bool {
        matches!((self.host.scheme, self.host.port), (Scheme::Https, 443) | (Scheme::Http, 80))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The credentials of one request. Whatever becomes of them is told, once.
struct Use {
    asked: Asked,
    binding: Arc<str>,
    names: Box<[Box<str>]>,
    told: Option<Told>,
    /// What is told if nothing else is.
    otherwise: CredentialOutcome,
}

impl Use {
    fn tell(&mut self, outcome: CredentialOutcome) {
        let Some(told) = self.told.take() else { return };
        let verdict = match outcome {
            CredentialOutcome::Answered(_) | CredentialOutcome::Unanswered => Verdict::Allow,
            CredentialOutcome::Withheld(_) => Verdict::Deny,
        };
        let names = std::mem::take(&mut self.names);
        let credentials = Some(CredentialUse { names, outcome });
        let asked = Asked { credentials, ..self.asked.clone() };
        told(asked, Ruling { verdict, by: By::Binding(Arc::clone(&self.binding)) });
    }

    /// What is answered instead, and written down.
    fn withheld(mut self, status: StatusCode, why: &'static str, message: String) -> Refusal {
        self.tell(CredentialOutcome::Withheld(why));
        Refusal::new(status, message)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.tell(self.otherwise);
    }
}

impl Credentials {
    /// The body of a request with its placeholders replaced. If there is no room for it as a whole,
    /// it is sent in chunks.
    async fn rewritten(
        &self,
        headers: &mut HeaderMap,
        body: Body,
        rewrite: Rewrite,
    ) -> Result<Body, Refusal> {
        let Some(room) = rewrite.needs().and_then(|bytes| self.vault.room(bytes)) else {
            return Ok(Rewriting::new(body, rewrite, None).boxed_unsync());
        };
        let bad = |error: BoxError| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
        // No longer than it was announced to be: the connection does not pass on more.
        let whole = timeout(BODY_WITHIN, body.collect()).await.map_err(|_| {
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
        })?;
        let whole = whole.map_err(bad)?.to_bytes();
        let body = rewrite.whole(whole).map_err(|error| bad(error.into()))?;
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        let whole = Bytes::from_owner(Whole { body, _room: room });
        Ok(Full::new(whole).map_err(|never| match never {}).boxed_unsync())
    }
}

#[async_trait]
impl Rules for Credentials {
    async fn treat(&self, request: Request<Body>) -> Result<(Request<Body>, Finish), Refusal> {
        let (mut parts, body) = request.into_parts();
        let active = self.vault.active();
        let scheme = match self.host.scheme {
            Scheme::Http => osb_api::egress::Scheme::Http,
            Scheme::Https => osb_api::egress::Scheme::Https,
        };
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let found =
            if self.gives() { active.find(scheme, &self.host.name, &parts) } else { Found::None };
        let (bound, withheld) = match found {
            Found::None => {
                let redactor = active.redactor(&self.host.name, None);
                if redactor.is_some() {
                    ask_plainly(&mut parts.headers);
                }
                let finish = Box::new(|response| match redactor {
                    Some(redactor) => redacted(response, redactor),
                    None => response,
                });
                return Ok((Request::from_parts(parts, body), finish));
            }
            Found::One(bound) => (bound, None),
            Found::Ambiguous(bound) => (bound, Some("credential binding ambiguous")),
            Found::Unsafe(bound) => {
                (bound, Some("the host may take this path for another one than it is bound to"))
            }
            Found::Plain(bound) => {
                (bound, Some("the operator does not release credentials over plain HTTP"))
            }
        };
        let mut used = Use {
            asked: Asked::new(parts.method.as_str(), target),
            binding: bound.name().into(),
            names: bound.credentials().map(Into::into).collect(),
            told: Some(Arc::clone(&self.told)),
            otherwise: CredentialOutcome::Withheld("the request was broken off"),
        };
        if let Some(why) = withheld {
            return Err(used.withheld(StatusCode::FORBIDDEN, why, why.to_owned()));
        }
        let armed = match bound.arm().await {
            Ok(armed) => {
                if bound.turned(false) {
                    let binding = bound.name();
                    tracing::warn!(sandbox_id = %self.id, binding, "a credential can be had again");
                }
                armed
            }
            Err(error) => {
                // Whoever is inside decides how often that is. All are in the egress log.
                if bound.turned(true) {
                    tracing::warn!(
                        sandbox_id = %self.id,
                        binding = bound.name(),
                        source = error.place(),
                        error = %Chain(&error),
                        "a credential cannot be had"
                    );
                }
                let why = "it cannot be had";
                return Err(used.withheld(StatusCode::BAD_GATEWAY, why, error.to_string()));
            }
        };
        let rewrite = match armed.request(&mut parts) {
            Ok(rewrite) => rewrite,
            Err(error) => {
                let why = "the request cannot hold it";
                return Err(used.withheld(StatusCode::FORBIDDEN, why, error.to_string()));
            }
        };
        let body = match rewrite {
            Some(rewrite) => match self.rewritten(&mut parts.headers, body, rewrite).await {
                Ok(body) => body,
                Err(Refusal { status, message, .. }) => {
                    return Err(used.withheld(status, "the body cannot hold it", message));
                }
            },
            None => body,
        };
        used.otherwise = CredentialOutcome::Unanswered;
        let redactor = active.redactor(&self.host.name, Some(&armed));
        let finish = Box::new(move |response: Response<Body>| {
            used.tell(match response.extensions().get() {
                Some(Failure::Unsent) => {
                    CredentialOutcome::Withheld("the host was not reached or not verified")
                }
                Some(Failure::Unanswered) => CredentialOutcome::Unanswered,
                None => CredentialOutcome::Answered(response.status().as_u16()),
            });
            match redactor {
                Some(redactor) => redacted(response, redactor),
                None => response,
            }
        });
        Ok((Request::from_parts(parts, body), finish))
    }
}

/// A body that is in memory as a whole, and the room for it.
struct Whole {
    body: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// An answer without secrets.
fn redacted(mut response: Response<Body>, redactor: Arc<Redactor>) -> Response<Body> {
    redactor.headers(response.headers_mut());
    let reason = response.extensions().get::<ReasonPhrase>();
    if reason.is_some_and(|reason| redactor.finds(reason.as_bytes())) {
        response.extensions_mut().remove::<ReasonPhrase>();
    }
    // The answer to a request for the head alone keeps the length of what is not in it.
    if response.body().is_end_stream() {
        return response;
    }
    match redactor.body(response.headers_mut()) {
        Some(rewrite) => {
            response.map(|body| Rewriting::new(body, rewrite, Some(redactor)).boxed_unsync())
        }
        None => response,
    }
}

/// A body on its way through a [`Rewrite`].
struct Rewriting {
    body: Body,
    rewrite: Option<Rewrite>,
    /// What is yet to be rewritten of the last piece.
    rest: Bytes,
    /// Whether the rewriting is to be gone on with.
    is_tired: bool,
    /// Whether no piece follows.
    is_over: bool,
    /// What follows the body, once the end of it was passed on.
    trailers: Option<HeaderMap>,
    /// What is taken out of the trailers, of an answer.
    redactor: Option<Arc<Redactor>>,
}

/// A piece on its way costs as much as to look through so many letters.
const PIECE: usize = 256;

impl Rewriting {
    fn new(body: Body, rewrite: Rewrite, redactor: Option<Arc<Redactor>>) -> Self {
        Self {
            body,
            rewrite: Some(rewrite),
            rest: Bytes::new(),
            is_tired: false,
            is_over: false,
            trailers: None,
            redactor,
        }
    }

    /// Goes on with the rewriting, and gives the next piece, if there is something to rewrite.
    fn rewrite(&mut self, work: &mut Work) -> Option<Result<Poll<Bytes>, BoxError>> {
        let rewrite = self.rewrite.as_mut()?;
        let done = if std::mem::take(&mut self.is_tired) {
            Ok(rewrite.resume(work))
        } else if !self.rest.is_empty() {
            let step = self.rest.len().min(rewrite.step());
            rewrite.push(self.rest.split_to(step), work)
        } else if self.is_over {
            rewrite.finish(work)
        } else {
            return None;
        };
        self.is_tired = matches!(done, Ok(Poll::Pending));
        if self.is_over && self.rest.is_empty() && !self.is_tired {
            self.rewrite = None;
        }
        Some(done.map_err(Into::into))
    }
}

impl http_body::Body for Rewriting {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut work = Work::new(Work::TURN);
        loop {
            // Others have their turn, and the server hears of them.
            if work.is_done() {
                ready!(pin!(yield_now()).poll(cx));
                work = Work::new(Work::TURN);
            }
            match this.rewrite(&mut work) {
                // All of it is held back, or it is not yet known.
                Some(Ok(Poll::Ready(piece))) if piece.is_empty() => continue,
                Some(Ok(Poll::Pending)) => continue,
                Some(Ok(Poll::Ready(piece))) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {}
            }
            if this.is_over {
                let trailers = this.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            work.spend(PIECE);
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.is_over = true;
                    continue;
                }
            };
            match frame.into_data() {
                Ok(piece) => this.rest = piece,
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else { continue };
                    if let Some(redactor) = &this.redactor {
                        redactor.headers(&mut trailers);
                    }
                    (this.is_over, this.trailers) = (true, Some(trailers));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
