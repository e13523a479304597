//! Connections of HTTP/2, which come with TLS alone.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, header, uri::PathAndQuery};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{HEAD_WITHIN, Serving};

/// Requests of one connection at the same time.
const STREAMS: u32 = 100;
/// How large the head of a request may be. All requests of a connection can have one.
const HEAD_BYTES: u32 = 64 << 10;
/// What a client may send ahead of what has been read of it, in one request and in all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits of one answer until the client takes it.
const UNSENT: usize = 64 << 10;
/// A client that is gone without a word is noticed after both.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How often is looked whether anything is going on.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Serves one connection, until the client or the server is done with it.
pub(super) async fn serve<S>(stream: S, serving: Serving) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Serving { ending, broken, tasks, .. } = &serving;
    let open = Arc::new(());
    let service = service_fn({
        let (serving, open) = (serving.clone(), Arc::clone(&open));
        move |request: Request<Incoming>| {
            let open = Arc::clone(&open);
            let answer = serving.answer(as_http1(request));
            async move {
                let answer = answer.await?;
                Ok::<_, std::convert::Infallible>(
                    answer.map(|body| Body::new(Counted { body, _open: open })),
                )
            }
        }
    });
    let beside = Beside { tasks: tasks.clone(), broken: broken.clone() };
    let connection = http2::Builder::new(beside)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(UNSENT)
        .keep_alive_interval(ASK_EVERY)
        .keep_alive_timeout(ANSWER_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return result,
        () = ending.cancelled() => connection.as_mut().graceful_shutdown(),
        () = idle(&open) => {
            connection.as_mut().graceful_shutdown();
            // Not even a request that has begun to come may keep it longer.
            return timeout(HEAD_WITHIN, connection).await.unwrap_or(Ok(()));
        }
    }
    connection.await
}

/// Ends once there was no request for as long as a connection of HTTP/1.1 is kept without one.
async fn idle(open: &Arc<()>) {
    let mut until = Instant::now() + HEAD_WITHIN;
    while Instant::now() < until {
        sleep(LOOK_EVERY).await;
        // This one, and the one of the service.
        if Arc::strong_count(open) > 2 {
            until = Instant::now() + HEAD_WITHIN;
        }
    }
    sleep_until(until).await;
}

/// The request as everybody behind knows requests: with a path for a target, the host in a header,
/// and its cookies in one.
fn as_http1(mut request: Request<Incoming>) -> Request<Incoming> {
    let authority = request.uri().authority().and_then(|authority| {
        let host = authority.as_str().rsplit('@').next()?;
        HeaderValue::try_from(host).ok()
    });
    if let Some(host) = authority {
        request.headers_mut().insert(header::HOST, host);
    }
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    join_cookies(request.headers_mut());
    request
}

/// HTTP/2 lets clients send each cookie for itself, HTTP/1.1 does not.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// The tasks of connections, of which the server knows.
#[derive(Clone)]
struct Beside {
    tasks: TaskTracker,
    broken: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Beside {
    fn execute(&self, task: F) {
        let broken = self.broken.clone();
        self.tasks.spawn(async move {
            broken.run_until_cancelled(task).await;
        });
    }
}

/// An answer that is counted until all of it has gone.
struct Counted {
    body: Body,
    _open: Arc<()>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_one_header() {
        let mut headers = HeaderMap::new();
        for cookie in ["a=1", "b=2"] {
            headers.append(header::COOKIE, HeaderValue::from_static(cookie));
        }
        join_cookies(&mut headers);
        let cookies: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_while_nothing_is_answered() {
        let open = Arc::new(());
        let of_service = Arc::clone(&open);
        let answering = Arc::clone(&open);
        assert!(timeout(10 * HEAD_WITHIN, idle(&open)).await.is_err());
        drop(answering);
        assert!(timeout(2 * HEAD_WITHIN, idle(&open)).await.is_ok());
        drop(of_service);
    }
}
