//! Manifests, and the one that is for a platform.

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};

use super::{Redirects, Repository, Right, get, text};
use crate::{
    Descriptor, Digest, Document, Index, Manifest, Platform, RegistryError, manifest, media,
    said::Said, wire::Answer,
};

/// How deep indexes are in indexes.
const DEPTH: usize = 3;
/// How many platforms an error names.
const NAMED: usize = 20;

/// A manifest or an index, as a registry has it.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub descriptor: Descriptor,
    pub content: Bytes,
    pub document: Document,
}

/// An image for one platform.
#[derive(Debug, Clone)]
pub struct Found {
    /// What the name stands for: the image itself, or the outermost index.
    pub named: Descriptor,
    /// The indexes that lead to the image, outermost first.
    pub indexes: Vec<Fetched>,
    pub descriptor: Descriptor,
    pub content: Bytes,
    pub manifest: Manifest,
}

impl Repository {
    /// What the name stands for now. Asks for nothing but that if the registry can say it.
    pub async fn resolve(&self) -> Result<Descriptor, RegistryError> {
        let version = self.reference.version();
        self.ask(async |at| {
            let (host, answer) = self.manifest_answer(at, Method::HEAD, version).await?;
            match described(&answer) {
                Some(described) => self.expected(&host, described),
                // Some registries say so only if they send it.
                None => Ok(self.fetch_from(at, version, None).await?.descriptor),
            }
        })
        .await
    }

    /// The image of this name for a platform.
    pub async fn image(&self, wanted: &Platform) -> Result<Found, RegistryError> {
        let mut fetched = self.manifest().await?;
        let named = fetched.descriptor.clone();
        let mut indexes = Vec::new();
        for _ in 0..=DEPTH {
            let index = match fetched.document {
                Document::Manifest(manifest) => {
                    let Fetched { descriptor, content, .. } = fetched;
                    return Ok(Found { named, indexes, descriptor, content, manifest: *manifest });
                }
                Document::Index(ref index) => index,
            };
            let chosen = index.choose(wanted).ok_or_else(|| self.not_for(wanted, index))?.clone();
            indexes.push(fetched);
            fetched = self.manifest_of(&chosen).await?;
        }
        let host = &self.registry()?.origin;
        Err(RegistryError::corrupt(host, "its indexes are of indexes without end"))
    }

    /// The manifest or index of this name.
    pub async fn manifest(&self) -> Result<Fetched, RegistryError> {
        self.ask(async |at| self.fetch_from(at, self.reference.version(), None).await).await
    }

    /// The manifest that an index speaks of.
    pub async fn manifest_of(&self, wanted: &Descriptor) -> Result<Fetched, RegistryError> {
        self.ask(async |at| self.fetch_from(at, wanted.digest.as_str(), Some(wanted)).await).await
    }

    fn not_for(&self, wanted: &Platform, index: &Index) -> RegistryError {
        let mut available: Vec<String> = index.platforms().map(ToString::to_string).collect();
        available.sort_unstable();
        available.dedup();
        let more = available.len().saturating_sub(NAMED);
        available.truncate(NAMED);
        let mut available = available.join(", ");
        if more > 0 {
            available = format!("{available} and {more} more");
        }
        if available.is_empty() {
            "no platform".clone_into(&mut available);
        }
        RegistryError::Platform {
            image: self.reference.familiar(),
            wanted: wanted.to_string(),
            available: Said::new(&available).as_str().to_owned(),
        }
    }

    async fn manifest_answer(
        &self,
        at: usize,
        method: Method,
        version: &str,
    ) -> Result<(String, Answer), RegistryError> {
        let source = self.source(at)?;
        let mut call = get(method, self.at(source, &format!("manifests/{version}"))?);
        for kind in media::MANIFESTS {
            call = call.header(header::ACCEPT, HeaderValue::from_static(kind));
        }
        let purpose = self.purpose(source, Right::Pull, None).await;
        let answer = self.call(source, &purpose, &call, Redirects::Follow).await?;
        if answer.status() == StatusCode::OK {
            return Ok((source.origin.to_string(), answer));
        }
        let familiar = self.reference.familiar();
        let what = if version == self.reference.version() {
            familiar.clone()
        } else {
            format!("{version} of {familiar}")
        };
        Err(self.failure(source, &format!("pull {familiar}"), &what, answer).await)
    }

    async fn fetch_from(
        &self,
        at: usize,
        version: &str,
        wanted: Option<&Descriptor>,
    ) -> Result<Fetched, RegistryError> {
        let (host, answer) = self.manifest_answer(at, Method::GET, version).await?;
        let said = text(answer.headers(), DIGEST_HEADER).map(Digest::parse);
        let kind = text(answer.headers(), header::CONTENT_TYPE).map(str::to_owned);
        let wire = &self.client.0.wire;
        let content = wire.collect(&host, answer.into_body(), manifest::LARGEST).await?;
        let wrong = |problem: String| RegistryError::corrupt(&host, problem);
        let said =
            said.transpose().map_err(|_| wrong("it names a digest that is none".to_owned()))?;
        // A name says nothing about its content, but a digest does, and so may the registry.
        let asked = Digest::parse(version).ok();
        for expected in asked.iter().chain(&said) {
            let found = Digest::by(expected.algorithm(), &content);
            if found != *expected {
                return Err(wrong(format!("its manifest {expected} hashes to {found}")));
            }
        }
        if let Some(wanted) = wanted.filter(|wanted| wanted.size != content.len() as u64) {
            let Descriptor { digest, size, .. } = wanted;
            return Err(wrong(format!("its manifest {digest} has not the {size} bytes it should")));
        }
        let kind = wanted.map(|wanted| wanted.media_type.clone()).or(kind);
        let document = Document::parse(&content, kind.as_deref());
        let document = document.map_err(|cause| {
            let (host, image) = (host.clone(), self.reference.familiar());
            RegistryError::Manifest { host, image, cause }
        })?;
        let digest = asked.unwrap_or_else(|| Digest::of(&content));
        let media_type = document.media_type(kind.as_deref());
        let descriptor = Descriptor::new(media_type, digest, content.len() as u64);
        Ok(Fetched { descriptor, content, document })
    }

    /// Whether the answer is about what was asked for, if that was a digest.
    fn expected(&self, host: &str, described: Descriptor) -> Result<Descriptor, RegistryError> {
        match self.reference.digest() {
            Some(asked) if *asked != described.digest => {
                let problem = format!("asked for {asked}, it speaks of {}", described.digest);
                Err(RegistryError::corrupt(host, problem))
            }
            _ => Ok(described),
        }
    }
}

const DIGEST_HEADER: &str = "docker-content-digest";

/// What the head of an answer says about a manifest.
fn described(answer: &Answer) -> Option<Descriptor> {
    let headers = answer.headers();
    let digest = Digest::parse(text(headers, DIGEST_HEADER)?).ok()?;
    let size = text(headers, header::CONTENT_LENGTH).and_then(|it| it.parse().ok())?;
    let kind = text(headers, header::CONTENT_TYPE)?;
    Some(Descriptor::new(manifest::essence(kind), digest, size))
}
