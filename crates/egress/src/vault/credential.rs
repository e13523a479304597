use osb_api::egress::{Credential, CredentialSummary, SourceType};

use super::{
    binding,
    source::{Source, Sources},
};

/// A credential as the vault keeps it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) source: Source,
    /// The vault's revision when it came.
    pub(super) revision: u64,
}

impl Held {
    pub(super) fn new(
        credential: Credential,
        revision: u64,
        sources: &Sources,
    ) -> Result<Self, String> {
        let name = binding::name("credential", &credential.name)?;
        let source = sources
            .admit(credential.source)
            .map_err(|error| format!("credential {name:?}: {error}"))?;
        Ok(Self { name, source, revision })
    }

    pub(super) fn summary(&self) -> CredentialSummary {
        let source_type = match &self.source {
            Source::Inline(_) => SourceType::Inline,
            Source::Env(_) => SourceType::Env,
            Source::File(_) => SourceType::File,
            Source::Remote { .. } => SourceType::Vault,
        };
        CredentialSummary { name: self.name.clone(), source_type, revision: self.revision }
    }
}
