//! A vault as it is written down, before it is sealed.

use std::{collections::BTreeMap, io, sync::Arc};

use osb_api::{
    egress::{Binding, Credential, CredentialSource, SourceType},
    lifecycle::Secret,
};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::{Deserialize, Serialize};

use super::{Content, Kept, credential::Held, source::Source};

#[derive(Serialize, Deserialize)]
struct Written {
    revision: u64,
    /// Absent in one that was deleted, of which only the revision counts.
    #[serde(default)]
    content: Option<WrittenContent>,
}

#[derive(Serialize, Deserialize)]
struct WrittenContent {
    credentials: Vec<WrittenCredential>,
    bindings: Vec<Binding>,
}

#[derive(Serialize, Deserialize)]
struct WrittenCredential {
    revision: u64,
    credential: Credential,
}

pub(super) fn write(revision: u64, content: Option<&Content>) -> io::Result<Zeroizing<Vec<u8>>> {
    let content = content.map(|content| WrittenContent {
        credentials: content.credentials.values().map(|held| written(held)).collect(),
        bindings: content.bindings.values().cloned().collect(),
    });
    let written = Written { revision, content };
    // With room for all of it, so that no part is left behind by growing.
    let mut length = Length(0);
    serde_json::to_writer(&mut length, &written)?;
    let mut text = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *text, &written)?;
    Ok(text)
}

pub(super) fn read(text: &[u8]) -> Option<Kept> {
    let Written { revision, content } = serde_json::from_slice(text).ok()?;
    let Some(content) = content else { return Some(Kept { revision, content: None }) };
    let mut credentials = BTreeMap::new();
    for WrittenCredential { revision, credential } in content.credentials {
        let source = source(credential.source)?;
        let held = Held { name: credential.name.clone(), source, revision };
        credentials.insert(credential.name, Arc::new(held));
    }
    let bindings = content.bindings.into_iter().map(|binding| (binding.name.clone(), binding));
    let content = Content { credentials, bindings: bindings.collect() };
    Some(Kept { revision, content: Some(content) })
}

fn written(held: &Held) -> WrittenCredential {
    let source = match &held.source {
        Source::Inline(secret) => CredentialSource {
            value: Some(Secret::new(secret.expose_secret())),
            ..CredentialSource::default()
        },
        Source::Env(name) => CredentialSource {
            kind: SourceType::Env,
            name: Some(name.clone()),
            ..CredentialSource::default()
        },
        Source::File(path) => CredentialSource {
            kind: SourceType::File,
            path: path.to_str().map(str::to_owned),
            ..CredentialSource::default()
        },
        Source::Remote { path, field } => CredentialSource {
            kind: SourceType::Vault,
            path: Some(path.clone()),
            field: Some(field.clone()),
            ..CredentialSource::default()
        },
    };
    let credential = Credential { name: held.name.clone(), source };
    WrittenCredential { revision: held.revision, credential }
}

/// What was once admitted. Whether the operator still offers it shows when it is needed.
fn source(source: CredentialSource) -> Option<Source> {
    Some(match source.kind {
        SourceType::Inline => {
            Source::Inline(Arc::new(SecretString::from(source.value.as_ref()?.reveal())))
        }
        SourceType::Env => Source::Env(source.name?),
        SourceType::File => Source::File(source.path?.into()),
        SourceType::Vault => Source::Remote { path: source.path?, field: source.field? },
    })
}

/// Counts what is written to it.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0 += text.len();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
