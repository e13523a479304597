use std::sync::Arc;

/// Whether something may leave, and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub verdict: Verdict,
    pub by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// A rule of the sandbox's policy, by its target as it was written.
    Rule(Arc<str>),
    /// A rule that the operator gave all sandboxes.
    Operator(Arc<str>),
    /// No rule said anything.
    Default,
    /// The address is one that nobody reaches unless a rule names it.
    Guard(Guarded),
    /// The connection is not for the host that it says it is for.
    Mismatch,
    /// The sandbox has more of them at once, or more often, than it may.
    Limit,
    /// A binding of the sandbox's vault, by its name.
    Binding(Arc<str>),
}

impl By {
    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Rule(_) => "rule",
            Self::Operator(_) => "operator",
            Self::Default => "default",
            Self::Guard(_) => "guard",
            Self::Mismatch => "mismatch",
            Self::Limit => "limit",
            Self::Binding(_) => "binding",
        }
    }
}

/// Addresses that a name alone opens to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// The host's own: its loopback and the addresses of its interfaces.
    Host,
    /// Where clouds give machines their identity.
    Metadata,
    /// Private networks, RFC 1918 and its kin.
    Private,
    LinkLocal,
    /// Everything else that is not the public Internet: multicast, reserved, documentation.
    Special,
}
