//! Bodies that wait until the host wants them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode, Version, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::{sync::Notify, time::timeout};

use super::{Body, BoxError};

/// How long a host may take to say that it wants a body. Some never do and wait for it themselves.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Makes the body of a request wait as its client does, if it does: it goes once the host has asked
/// for it, and does not if the host answers at once.
pub(super) fn await_leave(mut request: Request<Body>, version: Version) -> Request<Body> {
    let waits = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    // In other versions nobody waits, or it is between us and the client.
    if version != Version::HTTP_11 || !request.headers().get(header::EXPECT).is_some_and(waits) {
        request.headers_mut().remove(header::EXPECT);
        return request;
    }
    let wanted = Arc::new(Notify::new());
    let tell = Arc::clone(&wanted);
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            tell.notify_one();
        }
    });
    let leave = async move { drop(timeout(LEAVE_WITHIN, wanted.notified()).await) };
    request.map(|body| Waiting { body, leave: Some(Box::pin(leave)) }.boxed_unsync())
}

struct Waiting {
    body: Body,
    leave: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl http_body::Body for Waiting {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(leave) = &mut self.leave {
            ready!(leave.as_mut().poll(cx));
            self.leave = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
