//! Giving content to a registry: ask for a place, fill it, say what it is.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Redirects, Repository, Right, text};
use crate::{
    Descriptor, RegistryError,
    origin::follow,
    passes::{Purpose, Scope},
    tries::Tries,
    wire::{Answer, Body, Call, empty},
};

/// What is read from a file at once.
const PIECE: usize = 256 << 10;

/// How content came to be at a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It was there.
    Already,
    /// Another repository of the registry had it.
    Mounted,
    Sent,
}

/// What becomes of an attempt to begin.
enum Begun {
    Mounted,
    At(Uri),
}

impl Repository {
    /// Gives the registry a blob, unless it has it. `open` is called for each attempt; `from` is a
    /// repository at the same registry that may have it.
    pub async fn push_blob(
        &self,
        blob: &Descriptor,
        from: Option<&str>,
        open: impl Fn() -> io::Result<File>,
        sent: impl Fn(u64) + Clone + Send + 'static,
    ) -> Result<Pushed, RegistryError> {
        let _transfer = self.client.0.transfers.begin(self.reference.registry()).await?;
        if self.has_blob(blob).await? {
            return Ok(Pushed::Already);
        }
        let mut tries = Tries::new(self.client.settings().tries);
        loop {
            let attempt = async {
                let (purpose, begun) = self.begin_upload(blob, from).await?;
                let Begun::At(place) = begun else { return Ok(Pushed::Mounted) };
                let file = open().map_err(RegistryError::Source)?;
                self.fill(&purpose, place, blob, file, sent.clone()).await?;
                Ok(Pushed::Sent)
            };
            match attempt.await {
                Ok(pushed) => return Ok(pushed),
                Err(error) => tries.after(error).await?,
            }
        }
    }

    async fn begin_upload(
        &self,
        blob: &Descriptor,
        from: Option<&str>,
    ) -> Result<(Purpose, Begun), RegistryError> {
        let source = self.registry()?;
        let mut uri = self.at(source, "blobs/uploads/")?;
        if let Some(from) = from {
            let (digest, from) = (escape(blob.digest.as_str()), escape(from));
            uri = self.at(source, &format!("blobs/uploads/?mount={digest}&from={from}"))?;
        }
        let call = Call::new(Method::POST, uri)
            .header(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        let purpose = self.purpose(source, Right::Push, from.map(Scope::pull)).await;
        let answer = self.call(source, &purpose, &call, Redirects::Return).await?;
        match answer.status() {
            StatusCode::CREATED if from.is_some() => Ok((purpose, Begun::Mounted)),
            StatusCode::ACCEPTED => {
                let place = self.place(&call.uri, &answer)?;
                Ok((purpose, Begun::At(place)))
            }
            _ => Err(self.failure(source, &self.pushing(), "room for it", answer).await),
        }
    }

    /// Where an upload goes on, as the registry says.
    fn place(&self, base: &Uri, answer: &Answer) -> Result<Uri, RegistryError> {
        let location = text(answer.headers(), header::LOCATION);
        location.and_then(|location| follow(base, location)).ok_or_else(|| {
            let host = self.sources.last().map_or_else(String::new, |it| it.origin.to_string());
            RegistryError::corrupt(host, "it has no place for what is pushed")
        })
    }

    async fn fill(
        &self,
        purpose: &Purpose,
        place: Uri,
        blob: &Descriptor,
        file: File,
        sent: impl Fn(u64) + Send + 'static,
    ) -> Result<(), RegistryError> {
        let source = self.registry()?;
        let length = HeaderValue::from(blob.size);
        let call = Call::new(Method::PATCH, place.clone())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
            .header(header::CONTENT_LENGTH, length);
        let answer = self.send(purpose, &call, read(file, blob.size, sent)).await?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(self.interrupted(purpose, answer).await?);
        }
        let place = self.place(&place, &answer)?;
        let mark = if place.query().is_some() { '&' } else { '?' };
        let whole = format!("{place}{mark}digest={}", escape(blob.digest.as_str())).parse();
        let whole = whole.map_err(|_| {
            RegistryError::corrupt(&source.origin, "it has no place for what is pushed")
        })?;
        let call = Call::new(Method::PUT, whole)
            .header(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        let answer = self.send(purpose, &call, empty()).await?;
        if answer.status() == StatusCode::CREATED {
            return Ok(());
        }
        Err(self.interrupted(purpose, answer).await?)
    }

    /// The error of an answer in the middle of an upload. A token that has ended meanwhile is no
    /// reason to give up.
    async fn interrupted(
        &self,
        purpose: &Purpose,
        answer: Answer,
    ) -> Result<RegistryError, RegistryError> {
        let source = self.registry()?;
        if answer.status() == StatusCode::UNAUTHORIZED
            && self.client.0.passes.find(purpose).is_some()
        {
            self.client.0.passes.forget(purpose);
            let ended = io::Error::new(io::ErrorKind::ConnectionAborted, "the token has ended");
            return Ok(RegistryError::unreachable(&source.origin, ended));
        }
        Ok(self.failure(source, &self.pushing(), "the place that it has given", answer).await)
    }
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The content of a file, as it is taken.
fn read(file: File, size: u64, sent: impl Fn(u64) + Send + 'static) -> Body {
    let state = (file, 0u64, sent);
    let pieces = stream::try_unfold(state, move |(mut file, at, sent)| async move {
        sent(at);
        if at >= size {
            return Ok(None);
        }
        let reading = tokio::task::spawn_blocking(move || {
            let most = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
            let mut piece = vec![0; most];
            file.seek(io::SeekFrom::Start(at))?;
            file.read_exact(&mut piece)?;
            Ok::<_, io::Error>((file, Bytes::from(piece)))
        });
        let (file, piece) = reading.await.map_err(io::Error::other)??;
        let next = at + piece.len() as u64;
        Ok(Some((Frame::data(piece), (file, next, sent))))
    });
    StreamBody::new(pieces).boxed_unsync()
}
