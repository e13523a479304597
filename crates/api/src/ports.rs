//! Port numbers that clients know by heart.

/// Where clients look up execd.
pub const EXECD: u16 = 44772;
/// Where clients look up the egress policy and the credential vault.
pub const EGRESS: u16 = 18080;
/// Where the code interpreter client probes for a listener inside the sandbox.
pub const CODE_INTERPRETER: u16 = 44771;
