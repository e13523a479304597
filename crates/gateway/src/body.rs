use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use crate::{GatewayError, Held, dialler::Target};

/// The body of an answer, as the service sends it and no faster than the client takes it.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    target: Target,
    /// Kept for as long as this lasts.
    _kept: Option<Kept>,
}

/// What a request keeps until it is over: its place among those in progress, and what its caller
/// wants to be kept.
pub(crate) type Kept = (OwnedSemaphorePermit, Option<Held>);

impl Body {
    pub(crate) fn new(incoming: Incoming, target: Target, kept: Option<Kept>) -> Self {
        Self { incoming, target, _kept: kept }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = GatewayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GatewayError>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|error| self.target.broken(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of a request on its way in.
pub(crate) type Outgoing = UnsyncBoxBody<Bytes, ClientBroke>;

/// The client broke off in the middle of its request.
#[derive(Debug)]
pub(crate) struct ClientBroke(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for ClientBroke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request broke off")
    }
}

impl std::error::Error for ClientBroke {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

pub(crate) fn outgoing<B>(body: B) -> Outgoing
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(|error| ClientBroke(error.into())).boxed_unsync()
}
