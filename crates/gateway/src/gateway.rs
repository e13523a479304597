use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, rt::Executor};
use hyper_util::{
    client::legacy::{self, Client},
    rt::TokioTimer,
};
use osb_api::{SandboxId, ports};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Body, Caller, Dial, GatewayError, Held, Stage,
    body::{Outgoing, outgoing},
    dialler::{Dialler, Target},
    headers,
    tunnel::{self, Upgrade},
    wire::Used,
};

/// execd keeps idle connections for ever, so we may keep them for as long as an agent thinks.
const EXECD_IDLE: Idle = Idle { time: Duration::from_mins(1), count: 16 };
/// Common servers close an idle connection after five seconds; we must be earlier, or a request
/// can meet the end of its connection.
const SERVICE_IDLE: Idle = Idle { time: Duration::from_secs(3), count: 8 };
/// A connection for one request.
const NO_IDLE: Idle = Idle { time: Duration::ZERO, count: 0 };
/// The most that the head of an answer may take, and with it the buffer of a connection, through
/// which downloads go.
const HEAD_BYTES: usize = 512 * 1024;
const HEAD_FIELDS: usize = 128;
/// How often a service may say that its answer is still to come (statuses below 200).
const MOST_INTERIM: u32 = 32;

/// Forwards requests into sandboxes. Clones share their connections.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    execd: Client<Dialler, Outgoing>,
    services: Client<Dialler, Outgoing>,
    /// Never reuses a connection: for the second try after a stale one.
    fresh: Client<Dialler, Outgoing>,
    tasks: Tasks,
    answer_within: Option<Duration>,
    /// One for each request that may be in progress.
    places: Arc<Semaphore>,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    pub sandbox: SandboxId,
    pub port: u16,
    /// Path and query for the service, raw as the client sent them, from the `/` on.
    pub rest: &'a str,
    /// What stood before `rest` in the client's path; redirects to the service's root get it back.
    pub prefix: &'a str,
}

impl Gateway {
    pub fn new(dial: impl Dial) -> Self {
        let tasks = Tasks::default();
        let dialler = Dialler(Arc::new(dial));
        Self(Arc::new(Shared {
            execd: EXECD_IDLE.client(dialler.clone(), tasks.clone()),
            services: SERVICE_IDLE.client(dialler.clone(), tasks.clone()),
            fresh: NO_IDLE.client(dialler, tasks.clone()),
            tasks,
            answer_within: None,
            places: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }))
    }

    /// Gives services this long to begin their answer, counted from the start of the request.
    /// execd is exempt: its answers begin with the first event, whenever that is.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        Self(Arc::new(Shared { answer_within: Some(limit), ..(*self.0).clone() }))
    }

    /// Refuses what is more than this many requests at once. A request is over when the body of
    /// its answer is, or the stream that it was upgraded to.
    #[must_use]
    pub fn at_most(self, requests: usize) -> Self {
        let places = Arc::new(Semaphore::new(requests));
        Self(Arc::new(Shared { places, ..(*self.0).clone() }))
    }

    /// Forwards `request` and returns the answer once its head is here; bodies stream both ways.
    ///
    /// A [`Caller`] among the request's extensions is what the service is told of its origin, and a
    /// [`Held`] is kept until the request is over.
    pub async fn forward<B>(
        &self,
        route: &Route<'_>,
        mut request: Request<B>,
    ) -> Result<Response<Body>, GatewayError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if request.method() == Method::CONNECT {
            return Err(GatewayError::BadRequest("CONNECT cannot be forwarded".to_owned()));
        }
        let place =
            Arc::clone(&self.0.places).try_acquire_owned().map_err(|_| GatewayError::Busy)?;
        let kept = (place, request.extensions_mut().remove::<Held>());
        let target = Target { sandbox: route.sandbox, port: route.port };
        let upgrade = Upgrade::requested(&mut request)?;
        let request = prepared(route, target, request, upgrade.as_ref())?;
        let host = request.headers().get(header::HOST).cloned();

        let mut response = self.answer(target, request).await?;
        if let Some(used) = response.extensions_mut().remove::<Used>() {
            used.mark();
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = upgrade else {
                return Err(target.broken("it changed the protocol without being asked"));
            };
            let (service, protocol) = tunnel::agreed(&mut response);
            headers::outbound(response.headers_mut(), route.prefix, host.as_ref());
            tunnel::confirm(response.headers_mut(), protocol);
            self.0.tasks.execute(async move {
                upgrade.run(service).await;
                drop(kept);
            });
            *response.version_mut() = Version::HTTP_11;
            return Ok(response.map(|incoming| Body::new(incoming, target, None)));
        }
        headers::outbound(response.headers_mut(), route.prefix, host.as_ref());
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(|incoming| Body::new(incoming, target, Some(kept))))
    }

    /// Breaks every connection and waits until nothing of the gateway runs any more.
    pub async fn shutdown(&self) {
        self.0.tasks.stop.cancel();
        self.0.tasks.tracker.close();
        self.0.tasks.tracker.wait().await;
    }

    /// Sends the request, and again if a kept connection turned out to be dead and asking twice
    /// does no harm.
    async fn answer(
        &self,
        target: Target,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, GatewayError> {
        let again = replica(&request);
        let client = if target.port == ports::EXECD { &self.0.execd } else { &self.0.services };
        match (self.send(client, target, request).await, again) {
            (Err(Unanswered { stale: true, .. }), Some(again)) => {
                let second = self.send(&self.0.fresh, target, again).await;
                second.map_err(|unanswered| unanswered.error)
            }
            (first, _) => first.map_err(|unanswered| unanswered.error),
        }
    }

    async fn send(
        &self,
        client: &Client<Dialler, Outgoing>,
        target: Target,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let unanswered = |error| Unanswered { error, stale: false };
        let interim = Arc::new(Semaphore::new(0));
        let said = Arc::clone(&interim);
        hyper::ext::on_informational(&mut request, move |_| said.add_permits(1));
        let answer = async {
            tokio::select! {
                answer = client.request(request) => answer.map_err(|error| Unanswered {
                    stale: was_used(&error),
                    error: target.explain(error),
                }),
                _ = interim.acquire_many(MOST_INTERIM) => {
                    Err(unanswered(target.broken("its answer is always still to come")))
                }
            }
        };
        match self.0.answer_within.filter(|_| target.port != ports::EXECD) {
            None => answer.await,
            Some(limit) => tokio::time::timeout(limit, answer)
                .await
                .map_err(|_| unanswered(target.late(Stage::Answer)))?,
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("answer_within", &self.0.answer_within)
            .finish_non_exhaustive()
    }
}

/// The request as the service will see it.
fn prepared<B>(
    route: &Route<'_>,
    target: Target,
    request: Request<B>,
    upgrade: Option<&Upgrade>,
) -> Result<Request<Outgoing>, GatewayError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.remove::<Caller>();
    headers::inbound(&mut parts.headers, &parts.uri, target.port, caller.as_ref());
    if let Some(upgrade) = upgrade {
        upgrade.write(&mut parts.headers);
    }
    // hyper takes it for granted that a GET of unknown length has no body unless a header says so.
    if body.size_hint().exact().is_none() && !parts.headers.contains_key(header::CONTENT_LENGTH) {
        parts
            .headers
            .insert(header::TRANSFER_ENCODING, header::HeaderValue::from_static("chunked"));
    }
    let mut forwarded = Request::new(outgoing(body));
    *forwarded.method_mut() = parts.method;
    *forwarded.uri_mut() = target.uri(route.rest)?;
    *forwarded.headers_mut() = parts.headers;
    Ok(forwarded)
}

/// The same request once more, if repeating it does no harm.
fn replica(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    use http_body::Body as _;
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut replica = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *replica.method_mut() = request.method().clone();
    *replica.uri_mut() = request.uri().clone();
    *replica.headers_mut() = request.headers().clone();
    Some(replica)
}

struct Unanswered {
    error: GatewayError,
    /// The connection had been kept from an earlier request.
    stale: bool,
}

fn was_used(error: &legacy::Error) -> bool {
    let mut extras = http::Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut extras);
    }
    extras.get::<Used>().is_some_and(Used::is_marked)
}

/// How long, and how many of, the connections to one port are kept for the next request.
struct Idle {
    time: Duration,
    count: usize,
}

impl Idle {
    fn client(&self, dialler: Dialler, tasks: Tasks) -> Client<Dialler, Outgoing> {
        Client::builder(tasks)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.time)
            .pool_max_idle_per_host(self.count)
            .http1_max_buf_size(HEAD_BYTES)
            .http1_max_headers(HEAD_FIELDS)
            .set_host(false)
            .build(dialler)
    }
}

/// Everything that runs on behalf of the gateway, so that it can be stopped and waited for.
#[derive(Clone, Default)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move { stop.run_until_cancelled_owned(task).await.map(drop) });
    }
}
