//! One repository, at its registry and at the mirrors of that.

mod blob;
mod image;
mod push;
mod upload;

pub use blob::Blob;
pub use image::{Fetched, Found};
pub use push::Name;
pub use upload::Pushed;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use tokio::sync::OnceCell;

use crate::{
    Client, Login, Origin, Reference, RegistryError,
    challenge::Challenge,
    error::HadLogin,
    keyring::Credential,
    passes::{Purpose, Scope},
    tries::{self, Tries},
    wire::{Answer, Body, Call, empty},
};

/// The place of an image. Made by [`Client::repository`].
#[derive(Debug)]
pub struct Repository {
    client: Client,
    reference: Reference,
    /// Who is asked, in this order. The registry itself is the last.
    sources: Vec<Source>,
    /// The first of them that is worth asking.
    first: AtomicUsize,
}

/// Somebody who may have the image.
#[derive(Debug)]
struct Source {
    origin: Origin,
    /// How its login is found.
    name: String,
    credential: OnceCell<Option<Credential>>,
}

/// What to do with a repository, which a registry may allow or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Pull,
    Push,
}

/// Whether to go where the other side sends us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redirects {
    Follow,
    Return,
}

impl Repository {
    pub(crate) fn new(client: Client, reference: Reference, mut login: Option<Login>) -> Self {
        let origins = client.settings().sources(&reference);
        let last = origins.len().saturating_sub(1);
        let source = |(at, origin): (usize, Origin)| {
            let is_registry = at == last;
            let name =
                if is_registry { reference.registry().to_owned() } else { origin.to_string() };
            let given = if is_registry { login.take() } else { None }.map(Credential::Basic);
            let credential = OnceCell::new_with(given.map(Some));
            Source { origin, name, credential }
        };
        let sources = origins.into_iter().enumerate().map(source).collect();
        Self { client, reference, sources, first: AtomicUsize::new(0) }
    }

    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Asks each source in turn, and each as often as there is hope. The one that answered is asked
    /// first from then on.
    async fn ask<T, F>(&self, ask: impl Fn(usize) -> F) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, RegistryError>>,
    {
        let mut failure = None;
        for at in self.first.load(Relaxed)..self.sources.len() {
            let is_last = at + 1 == self.sources.len();
            // A mirror is there to be quick. If it is not, there is somebody else to ask.
            let mut tries = Tries::new(if is_last { self.client.settings().tries } else { 1 });
            let error = loop {
                match ask(at).await {
                    Ok(answer) => {
                        self.first.fetch_max(at, Relaxed);
                        return Ok(answer);
                    }
                    Err(error) => match tries.after(error).await {
                        Ok(()) => {}
                        Err(error) => break error,
                    },
                }
            };
            if !is_last {
                let cause = osb_core::Chain(&error);
                tracing::debug!(error = %cause, "a mirror does not help");
            }
            failure = Some(error);
        }
        Err(failure.unwrap_or_else(|| self.nowhere()))
    }

    fn nowhere(&self) -> RegistryError {
        RegistryError::Settings(format!("{} is no registry", self.reference.registry()))
    }

    fn source(&self, at: usize) -> Result<&Source, RegistryError> {
        self.sources.get(at).ok_or_else(|| self.nowhere())
    }

    /// The registry itself.
    fn registry(&self) -> Result<&Source, RegistryError> {
        self.sources.last().ok_or_else(|| self.nowhere())
    }

    /// An address of this repository.
    fn at(&self, source: &Source, rest: &str) -> Result<Uri, RegistryError> {
        let path = format!("/v2/{}/{rest}", self.reference.repository());
        source.origin.at(&path).ok_or_else(|| self.nowhere())
    }

    fn scope(&self, right: Right) -> Scope {
        match right {
            Right::Pull => Scope::pull(self.reference.repository()),
            Right::Push => Scope::push(self.reference.repository()),
        }
    }

    async fn purpose(&self, source: &Source, right: Right, beside: Option<Scope>) -> Purpose {
        let credential = self.credential(source).await;
        self.client.0.passes.purpose(&source.origin, self.scope(right), beside, credential)
    }

    async fn credential<'a>(&self, source: &'a Source) -> Option<&'a Credential> {
        let find = async || {
            let (client, name) = (self.client.clone(), source.name.clone());
            let found = tokio::task::spawn_blocking(move || client.0.keyring.find(&name)).await;
            match found {
                Ok(Ok(found)) => found,
                // Most images are for everybody.
                Ok(Err(error)) => {
                    let error = osb_core::Chain(&error);
                    tracing::warn!(registry = source.name, %error, "asking without a login");
                    None
                }
                Err(_) => None,
            }
        };
        source.credential.get_or_init(find).await.as_ref()
    }

    /// Sends a request that has no body, and says who asks if the other side wants to know.
    async fn call(
        &self,
        source: &Source,
        purpose: &Purpose,
        call: &Call,
        redirects: Redirects,
    ) -> Result<Answer, RegistryError> {
        let shared = &self.client.0;
        let send = async |pass: Option<HeaderValue>| match redirects {
            Redirects::Follow => shared.wire.fetch(call, pass.as_ref()).await,
            Redirects::Return => shared.wire.send(call, pass.as_ref(), empty()).await,
        };
        let known = shared.passes.find(purpose);
        let was_known = known.is_some();
        let answer = send(known).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        if was_known {
            shared.passes.forget(purpose);
        }
        let Some(challenge) = Challenge::of(answer.headers()) else { return Ok(answer) };
        let credential = self.credential(source).await;
        let pass = shared.passes.obtain(&shared.wire, purpose, &challenge, credential).await?;
        match pass {
            Some(pass) => send(Some(pass)).await,
            None => Ok(answer),
        }
    }

    /// Sends the next request of an upload, whose address the registry has given: who asks is told
    /// to the registry alone.
    async fn send(
        &self,
        purpose: &Purpose,
        call: &Call,
        body: Body,
    ) -> Result<Answer, RegistryError> {
        let is_same = Origin::of(&call.uri).as_ref() == Some(&purpose.origin);
        let pass = self.client.0.passes.find(purpose).filter(|_| is_same);
        self.client.0.wire.send(call, pass.as_ref(), body).await
    }

    /// The error that an answer is. `what` is not there if it says so.
    async fn failure(
        &self,
        source: &Source,
        doing: &str,
        what: &str,
        answer: Answer,
    ) -> RegistryError {
        let (host, doing, what) = (source.origin.to_string(), doing.to_owned(), what.to_owned());
        let status = answer.status();
        let retry_after = tries::retry_after(answer.headers());
        let said = self.client.0.wire.explanation(&host, answer).await;
        match status.as_u16() {
            401 | 403 => {
                let has_login = self.credential(source).await.is_some();
                let login = if has_login { HadLogin::Yes } else { HadLogin::No };
                RegistryError::Denied { host, doing, login, said }
            }
            404 | 410 => RegistryError::Unknown { host, what, said },
            _ if tries::is_transient(status) => {
                RegistryError::Unavailable { host, doing, status, said, retry_after }
            }
            _ => RegistryError::Refused { host, doing, status, said },
        }
    }
}

/// The value of a header that has one.
fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn get(method: Method, uri: Uri) -> Call {
    // What is compressed on the way would not be as long as it is said to be.
    let identity = HeaderValue::from_static("identity");
    Call::new(method, uri).header(header::ACCEPT_ENCODING, identity)
}
