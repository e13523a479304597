//! Giving manifests to a registry.

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};

use super::{Redirects, Repository, Right, get, text};
use crate::{
    Descriptor, Digest, RegistryError,
    tries::Tries,
    wire::{Call, whole},
};

impl Repository {
    /// Whether the registry itself has this content.
    pub async fn has_blob(&self, wanted: &Descriptor) -> Result<bool, RegistryError> {
        self.has(&format!("blobs/{}", wanted.digest)).await
    }

    /// Whether the registry itself has this manifest.
    pub async fn has_manifest(&self, wanted: &Digest) -> Result<bool, RegistryError> {
        self.has(&format!("manifests/{wanted}")).await
    }

    async fn has(&self, what: &str) -> Result<bool, RegistryError> {
        let source = self.registry()?;
        let call = get(Method::HEAD, self.at(source, what)?);
        let mut tries = Tries::new(self.client.settings().tries);
        loop {
            let purpose = self.purpose(source, Right::Push, None).await;
            let answer = self.call(source, &purpose, &call, Redirects::Follow).await;
            let error = match answer {
                Ok(answer) if answer.status().is_success() => return Ok(true),
                Ok(answer) if answer.status() == StatusCode::NOT_FOUND => return Ok(false),
                Ok(answer) => self.failure(source, &self.pushing(), what, answer).await,
                Err(error) => error,
            };
            tries.after(error).await?;
        }
    }

    pub(super) fn pushing(&self) -> String {
        format!("push {}", self.reference.familiar())
    }

    /// Gives the registry a manifest or an index under the name of this repository, or under its
    /// digest alone. What it speaks of must be there.
    pub async fn push_manifest(
        &self,
        manifest: &Descriptor,
        content: &Bytes,
        name: Name,
    ) -> Result<(), RegistryError> {
        let source = self.registry()?;
        let version = match name {
            Name::Tag => self.reference.tag().unwrap_or(manifest.digest.as_str()),
            Name::Digest => manifest.digest.as_str(),
        };
        let kind = HeaderValue::from_str(&manifest.media_type);
        let kind =
            kind.map_err(|_| RegistryError::Settings("a manifest is of no kind".to_owned()))?;
        let uri = self.at(source, &format!("manifests/{version}"))?;
        let call = Call::new(Method::PUT, uri).header(http::header::CONTENT_TYPE, kind);
        let mut tries = Tries::new(self.client.settings().tries);
        loop {
            // A question without a body, so that the registry says who may come before it is sent.
            self.has(&format!("manifests/{}", manifest.digest)).await?;
            let purpose = self.purpose(source, Right::Push, None).await;
            let answer = self.send(&purpose, &call, whole(content.clone())).await;
            let error = match answer {
                Ok(answer) if answer.status().is_success() => {
                    let told = text(answer.headers(), "docker-content-digest");
                    if told.is_some_and(|told| told != manifest.digest.as_str()) {
                        let problem = format!("it takes {} for something else", manifest.digest);
                        return Err(RegistryError::corrupt(&source.origin, problem));
                    }
                    return Ok(());
                }
                Ok(answer) => self.failure(source, &self.pushing(), version, answer).await,
                Err(error) => error,
            };
            tries.after(error).await?;
        }
    }
}

/// Under what a manifest is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Tag,
    Digest,
}
