//! Content, piece by piece, whatever becomes of the connections that it comes by.

use std::{io, sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{Redirects, Repository, Right, get, text};
use crate::{
    Descriptor, Digest, Origin, RegistryError, transfers::Transfer, tries::Tries, wire::Answer,
};

/// What must arrive in the time in which something must: a registry that gives a byte now and then
/// holds up a pull as well as one that gives none.
const LEAST: u64 = 32 << 10;
/// A connection that brings so much was worth it.
const PROGRESS: u64 = 64 << 10;
/// How often one blob is asked for, in all.
const ROUNDS: u32 = 200;

/// Content of a registry that is on its way.
///
/// It never gives more than the size that was asked for, and less only with an error. Whether it
/// hashes to its digest is for the reader to see, who alone has all of it: what the reader had before
/// is not read again.
#[derive(Debug)]
pub struct Blob<'a> {
    repository: &'a Repository,
    wanted: Descriptor,
    /// How much of it the reader has.
    offset: u64,
    /// Who is asked.
    source: usize,
    parts: Parts,
    open: Option<Open>,
    tries: Tries,
    rounds: u32,
    _transfer: Transfer,
}

/// Whether the other side can begin in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    Asked,
    /// It did so wrongly: what the reader has is passed over.
    Misunderstood,
}

#[derive(Debug)]
struct Open {
    body: Incoming,
    /// How much comes that the reader has.
    known: u64,
    /// What the reader had when it began.
    from: u64,
    pace: Pace,
}

impl Repository {
    /// Begins to read a blob at `offset`. Waits until few enough others are on their way.
    pub async fn blob(&self, wanted: &Descriptor, offset: u64) -> Result<Blob<'_>, RegistryError> {
        let mut blob = Blob {
            repository: self,
            wanted: wanted.clone(),
            offset: offset.min(wanted.size),
            source: self.first.load(Relaxed),
            parts: Parts::Asked,
            open: None,
            tries: Tries::new(self.client.settings().tries),
            rounds: 0,
            _transfer: self.client.0.transfers.begin(self.reference.registry()).await?,
        };
        // Whether it is there is known before somebody makes room for it.
        if blob.offset < blob.wanted.size {
            blob.open(None).await?;
        }
        Ok(blob)
    }

    /// A small blob as a whole, verified.
    pub async fn small_blob(
        &self,
        wanted: &Descriptor,
        most: usize,
    ) -> Result<Bytes, RegistryError> {
        if wanted.size > most as u64 {
            let problem = format!("{} has more than {most} bytes", wanted.digest);
            return Err(RegistryError::corrupt(&self.registry()?.origin, problem));
        }
        loop {
            let mut blob = self.blob(wanted, 0).await?;
            let mut content = Vec::new();
            while let Some(piece) = blob.next().await? {
                content.extend_from_slice(&piece);
            }
            if Digest::by(wanted.digest.algorithm(), &content) == wanted.digest {
                return Ok(content.into());
            }
            blob.distrust()?;
        }
    }
}

impl Blob<'_> {
    /// How much the reader has.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; `None` when there is all of it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        while self.offset < self.wanted.size {
            let Some(open) = &mut self.open else {
                self.open(None).await?;
                continue;
            };
            let arrived = self.repository.client.0.wire.piece(&mut open.body).await;
            let mut piece = match arrived.and_then(|piece| open.pace.check(piece)) {
                Ok(piece) => piece,
                Err(error) => {
                    if self.offset - open.from >= PROGRESS {
                        self.tries.forget();
                    }
                    let error = RegistryError::unreachable(self.origin()?, error);
                    self.open(Some(error)).await?;
                    continue;
                }
            };
            let known = usize::try_from(open.known).unwrap_or(usize::MAX).min(piece.len());
            open.known -= known as u64;
            drop(piece.split_to(known));
            if piece.is_empty() {
                continue;
            }
            if piece.len() as u64 > self.wanted.size - self.offset {
                let Descriptor { digest, size, .. } = &self.wanted;
                let problem = format!("its {digest} has more than {size} bytes");
                return Err(RegistryError::corrupt(self.origin()?, problem));
            }
            self.offset += piece.len() as u64;
            return Ok(Some(piece));
        }
        Ok(None)
    }

    /// What came does not hash to what it should: its source is not asked again. Fails if there is
    /// nobody else to ask.
    pub fn distrust(self) -> Result<(), RegistryError> {
        let next = self.source + 1;
        if next < self.repository.sources.len() {
            self.repository.first.fetch_max(next, Relaxed);
            return Ok(());
        }
        let problem = format!("its {} does not hash to that", self.wanted.digest);
        Err(RegistryError::corrupt(self.origin()?, problem))
    }

    fn origin(&self) -> Result<&Origin, RegistryError> {
        Ok(&self.repository.source(self.source)?.origin)
    }

    /// Asks for what follows, after a failure perhaps.
    async fn open(&mut self, mut failure: Option<RegistryError>) -> Result<(), RegistryError> {
        self.open = None;
        loop {
            if let Some(error) = failure.take() {
                self.rounds += 1;
                match self.tries.after(error).await {
                    Ok(()) if self.rounds < ROUNDS => {}
                    Ok(()) => {
                        let problem = "its connections break again and again";
                        return Err(RegistryError::corrupt(self.origin()?, problem));
                    }
                    // Somebody else may have it.
                    Err(_) if self.source + 1 < self.repository.sources.len() => {
                        self.source += 1;
                        self.parts = Parts::Asked;
                        self.tries.forget();
                    }
                    Err(error) => return Err(error),
                }
            }
            match self.request().await {
                Ok(Some(open)) => {
                    self.open = Some(open);
                    return Ok(());
                }
                Ok(None) => self.parts = Parts::Misunderstood,
                Err(error) => failure = Some(error),
            }
        }
    }

    /// `None` if the other side does not understand where we want it to begin.
    async fn request(&self) -> Result<Option<Open>, RegistryError> {
        let repository = self.repository;
        let source = repository.source(self.source)?;
        let digest = &self.wanted.digest;
        let mut call = get(Method::GET, repository.at(source, &format!("blobs/{digest}"))?);
        let is_part = self.offset > 0 && self.parts == Parts::Asked;
        let range = HeaderValue::from_str(&format!("bytes={}-", self.offset));
        if let (true, Ok(range)) = (is_part, range) {
            call = call.header(header::RANGE, range);
        }
        let purpose = repository.purpose(source, Right::Pull, None).await;
        let answer = repository.call(source, &purpose, &call, Redirects::Follow).await?;
        let known = match answer.status() {
            StatusCode::OK => self.offset,
            StatusCode::PARTIAL_CONTENT if is_part && self.is_what_follows(&answer) => 0,
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if is_part => {
                return Ok(None);
            }
            _ => {
                let familiar = repository.reference.familiar();
                let (doing, what) = (format!("pull {familiar}"), format!("{digest} of {familiar}"));
                return Err(repository.failure(source, &doing, &what, answer).await);
            }
        };
        let length = text(answer.headers(), header::CONTENT_LENGTH);
        let expected = self.wanted.size - self.offset + known;
        if length.is_some_and(|length| length.parse() != Ok(expected)) {
            let problem = format!("its {digest} is not as long as it should be");
            return Err(RegistryError::corrupt(&source.origin, problem));
        }
        let pace = Pace::new(repository.client.settings().stall_timeout);
        Ok(Some(Open { body: answer.into_body(), known, from: self.offset, pace }))
    }

    fn is_what_follows(&self, answer: &Answer) -> bool {
        let range = text(answer.headers(), header::CONTENT_RANGE);
        let Some((range, size)) = range.and_then(|it| it.strip_prefix("bytes ")?.split_once('/'))
        else {
            return false;
        };
        let from = range.split_once('-').and_then(|(from, _)| from.parse().ok());
        from == Some(self.offset) && (size == "*" || size.parse() == Ok(self.wanted.size))
    }
}

/// How much has come in the present stretch of time.
#[derive(Debug)]
struct Pace {
    stretch: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(stretch: Duration) -> Self {
        Self { stretch, since: Instant::now(), bytes: 0 }
    }

    /// What came, unless it came too slowly or was the end of something that has not ended.
    fn check(&mut self, piece: Option<Bytes>) -> io::Result<Bytes> {
        let early = || io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ends early");
        let piece = piece.ok_or_else(early)?;
        self.bytes += piece.len() as u64;
        if self.since.elapsed() >= self.stretch {
            if self.bytes < LEAST {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it sends too slowly"));
            }
            *self = Self::new(self.stretch);
        }
        Ok(piece)
    }
}
