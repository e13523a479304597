use jiff::Timestamp;
use osb_api::{SandboxId, SnapshotId, TemplateId};
use osb_core::{ImageDigest, ImageName};

/// All that the server knows about one snapshot.
///
/// Nothing of the sandbox's environment, labels, tokens or expiry is in it: a sandbox that starts
/// from a snapshot has its files and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotRecord {
    pub(crate) id: SnapshotId,
    pub(crate) sandbox: SandboxId,
    pub(crate) name: Option<String>,
    pub(crate) image: ImageName,
    /// What the name stood for when the sandbox was made that the files are of.
    pub(crate) image_digest: Option<ImageDigest>,
    /// The template whose files these are, which alone knows of it.
    pub(crate) template: Option<TemplateId>,
    pub(crate) state: SnapshotState,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// When it came into this state.
    pub(crate) since: Timestamp,
    pub(crate) created_at: Timestamp,
    pub(crate) bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotState {
    Creating,
    Ready,
    Failed,
    Deleting,
}

impl SnapshotState {
    /// As clients see it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
        }
    }
}

impl SnapshotRecord {
    /// Whether clients may hear of it.
    pub(crate) fn is_clients(&self) -> bool {
        self.template.is_none()
    }

    /// Notes that it is in another state since now.
    pub(crate) fn become_state(
        &mut self,
        state: SnapshotState,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        self.state = state;
        reason.clone_into(&mut self.reason);
        message.clone_into(&mut self.message);
        self.since = now;
    }
}
