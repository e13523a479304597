use jiff::Timestamp;
use osb_api::{
    SnapshotId, TemplateId,
    lifecycle::{CreateTemplateRequest, TemplatePhase},
};

/// All that the server knows about one template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateRecord {
    pub(crate) id: TemplateId,
    /// What was asked for, and is the same for every sandbox from it.
    pub(crate) request: CreateTemplateRequest,
    pub(crate) phase: TemplatePhase,
    /// What went wrong, or how far it is.
    pub(crate) message: Option<String>,
    /// The files, once they are kept.
    pub(crate) kept: Option<KeptFiles>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// The files of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFiles {
    pub(crate) snapshot: SnapshotId,
    /// The same as clients see it, with the image that they stand on.
    pub(crate) manifest: String,
}

impl TemplateRecord {
    /// Notes that it is in another phase since now.
    pub(crate) fn become_phase(
        &mut self,
        phase: TemplatePhase,
        message: Option<String>,
        now: Timestamp,
    ) {
        self.phase = phase;
        self.message = message;
        self.updated_at = now;
    }

    /// Whether it is still to be built.
    pub(crate) fn is_unfinished(&self) -> bool {
        match self.phase {
            TemplatePhase::Pending | TemplatePhase::Building => true,
            TemplatePhase::Succeeded | TemplatePhase::Failed => false,
        }
    }
}

/// As clients see it.
pub(crate) fn phase_name(phase: TemplatePhase) -> &'static str {
    match phase {
        TemplatePhase::Pending => "Pending",
        TemplatePhase::Building => "Building",
        TemplatePhase::Succeeded => "Succeeded",
        TemplatePhase::Failed => "Failed",
    }
}
