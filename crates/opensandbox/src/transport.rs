use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use osb_api::{ErrorBody, headers};
use serde::{Serialize, de::DeserializeOwned};

use crate::ClientError;

/// Larger answers than this are not JSON that anybody wants.
const LARGEST_ANSWER: usize = 16 << 20;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// One pool of connections, shared by the clients of all APIs.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    client: Client<HttpConnector, Body>,
}

/// One request, and what the caller was doing, for errors.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) doing: &'static str,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    /// How long the answer may take to begin.
    pub(crate) within: Duration,
}

impl Call {
    pub(crate) fn json(mut self, content: &impl Serialize) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(content)
            .map_err(|error| ClientError::protocol(self.doing, &error))?;
        self.headers.insert(header::CONTENT_TYPE, CONTENT_TYPE_JSON);
        self.body = whole(bytes.into());
        Ok(self)
    }
}

const CONTENT_TYPE_JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

impl Transport {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(10)));
        // Finds a peer whose machine is gone while a long upload waits for its answer.
        connector.set_keepalive(Some(Duration::from_secs(15)));
        connector.set_keepalive_interval(Some(Duration::from_secs(5)));
        connector.set_keepalive_retries(Some(3));
        Self {
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(Duration::from_secs(30))
                .build(connector),
        }
    }

    /// Sends the call and returns the answer once its head is here; refusals become errors.
    pub(crate) async fn send(&self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let Call { doing, method, url, headers, body, within } = call;
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .body(body)
            .map_err(|error| ClientError::protocol(doing, &format_args!("{url}: {error}")))?;
        *request.headers_mut() = headers;
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let answer = tokio::time::timeout(within, self.client.request(request))
            .await
            .map_err(|_| ClientError::Silent { doing, after: within })?;
        let answer = answer.map_err(|error| {
            if error.is_connect() {
                ClientError::Connect { address: authority, source: innermost(&error).into() }
            } else {
                ClientError::Broken { doing, source: error.into() }
            }
        })?;
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(refusal(doing, answer, within).await)
        }
    }

    /// Sends the call and reads its whole answer as JSON.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let (doing, within) = (call.doing, call.within);
        let mut chunks = Chunks::new(doing, self.send(call).await?.into_body(), within);
        let bytes = chunks.collect().await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::protocol(doing, &error))
    }

    /// Sends the call and lets its answer pass.
    pub(crate) async fn settle(&self, call: Call) -> Result<(), ClientError> {
        let (doing, within) = (call.doing, call.within);
        let mut chunks = Chunks::new(doing, self.send(call).await?.into_body(), within);
        // Reading to the end is what lets the connection be used again.
        chunks.collect().await.map(drop)
    }
}

/// The last cause: those above it only say that connecting failed, as the caller will.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

pub(crate) fn empty() -> Body {
    whole(Bytes::new())
}

pub(crate) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn streamed(
    chunks: impl futures_core::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Body {
    StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
}

/// The body of an answer, piece by piece, with an eye on whether the peer still lives.
#[derive(Debug)]
pub(crate) struct Chunks {
    doing: &'static str,
    body: Incoming,
    dead_after: Duration,
}

impl Chunks {
    pub(crate) fn new(doing: &'static str, body: Incoming, dead_after: Duration) -> Self {
        Self { doing, body, dead_after }
    }

    /// The next piece, or nothing at the end. Dropping this future loses no bytes.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(self.dead_after, self.body.frame())
                .await
                .map_err(|_| ClientError::Silent { doing: self.doing, after: self.dead_after })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame
                .map_err(|error| ClientError::Broken { doing: self.doing, source: error.into() })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    async fn collect(&mut self) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.next().await? {
            if all.len() + chunk.len() > LARGEST_ANSWER {
                let detail = format!("it is longer than {LARGEST_ANSWER} bytes");
                return Err(ClientError::Protocol { doing: self.doing, detail });
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}

/// What an answer that is not a success says, whoever sent it.
async fn refusal(doing: &'static str, answer: Response<Incoming>, within: Duration) -> ClientError {
    let status = answer.status();
    let request_id = answer
        .headers()
        .get(headers::REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .map(ToOwned::to_owned);
    let bytes = match Chunks::new(doing, answer.into_body(), within).collect().await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    if let Ok(ErrorBody { code, message }) = serde_json::from_slice(&bytes) {
        return ClientError::Api { status, code, message, request_id };
    }
    let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
    ClientError::protocol(doing, &format_args!("{status} {:?}", text.trim()))
}
