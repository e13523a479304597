//! Who lends sandboxes to the steps of a build.

use std::{collections::BTreeMap, fs::File, sync::Arc};

use async_trait::async_trait;
use osb_api::lifecycle::{CreateSandboxRequest, ImageSpec, NetworkPolicy};
use osb_build::{Ended, Output, Reach, RunStep, Sandboxes, WorkError};
use osb_core::{ImageDigest, ImageName};
use osb_image::Image;
use osb_registry::Platform;

use super::{Builds, Telling, image};
use crate::{
    admission,
    app::App,
    error::ApiError,
    library::Library,
    record::{Purpose, Record},
};

/// What all steps of a build may reach and use.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) policy: Option<NetworkPolicy>,
    pub(super) limits: BTreeMap<String, String>,
}

impl Terms {
    /// Whether sandboxes can be had on these terms.
    pub(super) fn check(
        app: &App,
        policy: Option<NetworkPolicy>,
        limits: Option<BTreeMap<String, String>>,
    ) -> Result<Self, ApiError> {
        let terms = Self { policy, limits: limits.unwrap_or_default() };
        terms.admit(app).map(|_| terms)
    }

    /// A sandbox for a step, without what is the step's own.
    fn admit(&self, app: &App) -> Result<Record, ApiError> {
        let request = CreateSandboxRequest {
            image: Some(ImageSpec { uri: "host".to_owned(), auth: None }),
            // It has none in the end.
            entrypoint: Some(vec!["true".to_owned()]),
            resource_limits: Some(self.limits.clone()),
            network_policy: self.policy.clone(),
            ..CreateSandboxRequest::default()
        };
        admission::admit(request, app.limits(), &app.store, &app.reconciler, app.clock.now())
    }
}

/// Lends sandboxes to one build.
pub(super) struct Lender<'a> {
    pub(super) app: &'a App,
    pub(super) builds: &'a Builds,
    pub(super) library: &'a Library,
    pub(super) terms: Terms,
    pub(super) telling: Telling,
}

impl Lender<'_> {
    /// The record of a sandbox whose root is this image.
    pub(super) fn record(&self, on: &Image, step: &RunStep) -> Result<Record, WorkError> {
        let doing = "cannot describe the sandbox of a step";
        let mut record = self.terms.admit(self.app).map_err(|error| refused(doing, error))?;
        let Some(digest) = &on.digest else {
            return Err(WorkError::Refused("a step cannot stand on the image host".to_owned()));
        };
        let spec = &mut record.desired.spec;
        spec.image = ImageName::new(digest.as_str());
        spec.image_digest = Some(ImageDigest::new(digest.as_str()));
        // Nothing that differs from one sandbox to the next.
        spec.env.clear();
        // The image need not have any program but that of the step.
        spec.entrypoint = Vec::new();
        record.purpose = match step.network {
            Reach::Policy => Purpose::Step,
            Reach::Nothing => Purpose::SealedStep,
        };
        Ok(record)
    }
}

/// What the server does not do, as a problem of the step if it is one.
pub(super) fn refused(doing: &str, error: ApiError) -> WorkError {
    match error.into_cause() {
        Ok(cause) => WorkError::failed(doing, cause),
        Err(message) => WorkError::Refused(message),
    }
}

#[async_trait]
impl Sandboxes for Lender<'_> {
    async fn image(&self, name: &ImageName, platform: &Platform) -> Result<Image, WorkError> {
        image::find(self, name, platform).await
    }

    async fn run(
        &self,
        on: &Image,
        step: &RunStep,
        output: &dyn Output,
    ) -> Result<Ended, WorkError> {
        self.step(on, step, output).await
    }

    async fn fetch(&self, url: &str, to: File) -> Result<File, WorkError> {
        super::fetch::fetch(self, url, Arc::new(to)).await
    }
}
