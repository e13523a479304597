//! Requests and answers, with a bound on everything.

use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    Guard, Origin, RegistryError, Settings,
    dial::{Dialler, Undialled},
    origin::follow,
    said::Said,
};

/// What is read from a connection at once, which is also the longest head of an answer.
const BUFFER: usize = 256 << 10;
const HEADERS: usize = 128;
/// How often a registry may send us elsewhere for one thing.
const REDIRECTS: usize = 5;
/// The most that is read of an explanation.
const EXPLANATION: usize = 64 << 10;
/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(15);

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Answer = Response<Incoming>;

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn whole(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// Sends requests to whoever may be sent to.
#[derive(Debug)]
pub(crate) struct Wire {
    client: Client<Dialler, Watched>,
    answer_timeout: Duration,
    stall_timeout: Duration,
}

/// A request to a registry, which can be sent again.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Call {
    pub(crate) fn new(method: Method, uri: Uri) -> Self {
        Self { method, uri, headers: HeaderMap::new() }
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// To whom it goes, for messages.
    pub(crate) fn host(&self) -> String {
        host(&self.uri)
    }
}

fn host(uri: &Uri) -> String {
    Origin::of(uri).map_or_else(String::new, |origin| origin.to_string())
}

impl Wire {
    pub(crate) fn new(settings: &Settings, guard: Guard) -> Result<Self, RegistryError> {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(BUFFER)
            .http1_max_headers(HEADERS)
            .build(Dialler::new(settings, guard)?);
        let Settings { answer_timeout, stall_timeout, .. } = *settings;
        Ok(Self { client, answer_timeout, stall_timeout })
    }

    /// Sends, and waits for the head of the answer. Time counts from when the other side last took
    /// some of the body.
    pub(crate) async fn send(
        &self,
        call: &Call,
        authorization: Option<&HeaderValue>,
        body: Body,
    ) -> Result<Answer, RegistryError> {
        let progress = Arc::new(Progress(std::sync::Mutex::new(Instant::now())));
        let body = Watched { body, progress: Arc::clone(&progress) };
        let mut request = Request::new(body);
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.uri.clone();
        *request.headers_mut() = call.headers.clone();
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, AGENT);
        if let Some(authorization) = authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let mut answering = pin!(self.client.request(request));
        loop {
            let deadline = progress.last() + self.answer_timeout;
            tokio::select! {
                answer = &mut answering => {
                    return answer.map_err(|error| Undialled::explain(&error, call.host()));
                }
                () = sleep_until(deadline) => if Instant::now() >= progress.last() + self.answer_timeout {
                    let late = io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
                    return Err(RegistryError::unreachable(call.host(), late));
                },
            }
        }
    }

    /// As [`Self::send`] without a body, and goes where the other side sends us. Whoever that is does
    /// not learn who asks.
    pub(crate) async fn fetch(
        &self,
        call: &Call,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let origin = Origin::of(&call.uri);
        let mut next = call.clone();
        for _ in 0..=REDIRECTS {
            let is_same = Origin::of(&next.uri) == origin;
            let answer = self.send(&next, authorization.filter(|_| is_same), empty()).await?;
            if !is_redirect(answer.status()) {
                return Ok(answer);
            }
            let location = answer.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
            let to = location.and_then(|location| follow(&next.uri, location));
            next.uri = to.ok_or_else(|| {
                RegistryError::corrupt(next.host(), "it sends us to where we do not go")
            })?;
        }
        Err(RegistryError::corrupt(call.host(), "it sends us from one place to the next"))
    }

    /// The next part of a body, unless nothing comes for too long.
    pub(crate) async fn piece(&self, body: &mut Incoming) -> io::Result<Option<Bytes>> {
        loop {
            let frame = timeout(self.stall_timeout, body.frame())
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "nothing more arrives"))?;
            match frame.transpose().map_err(io::Error::other)? {
                Some(frame) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => {}
                },
                None => return Ok(None),
            }
        }
    }

    /// A whole body that must not be long, nor take long.
    pub(crate) async fn collect(
        &self,
        host: &str,
        mut body: Incoming,
        most: usize,
    ) -> Result<Bytes, RegistryError> {
        let too_long = || RegistryError::corrupt(host, format!("it sends more than {most} bytes"));
        if body.size_hint().lower() > most as u64 {
            return Err(too_long());
        }
        let collecting = async {
            let mut content = BytesMut::new();
            while let Some(piece) = self
                .piece(&mut body)
                .await
                .map_err(|error| RegistryError::unreachable(host, error))?
            {
                if content.len() + piece.len() > most {
                    return Err(too_long());
                }
                content.extend_from_slice(&piece);
            }
            Ok(content.freeze())
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it sends too slowly");
        let collected = timeout(self.answer_timeout + self.stall_timeout, collecting).await;
        collected.unwrap_or_else(|_| Err(RegistryError::unreachable(host, late())))
    }

    /// What the other side says of why it does not do what it was asked to.
    pub(crate) async fn explanation(&self, host: &str, answer: Answer) -> Said {
        let collected = self.collect(host, answer.into_body(), EXPLANATION).await;
        collected.map(|body| Said::read(&body)).unwrap_or_default()
    }
}

const AGENT: HeaderValue = HeaderValue::from_static("opensandbox");

fn is_redirect(status: StatusCode) -> bool {
    [301, 302, 303, 307, 308].contains(&status.as_u16())
}

/// When the other side last took something.
#[derive(Debug)]
struct Progress(std::sync::Mutex<Instant>);

impl Progress {
    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }
}

/// A body that notes when it is taken.
#[derive(Debug)]
struct Watched {
    body: Body,
    progress: Arc<Progress>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.progress.note();
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
