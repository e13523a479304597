//! Wire types of the four OpenSandbox APIs: lifecycle, execd, egress and diagnostics.
//!
//! Nothing here does I/O and nothing here is a domain type: the crates that own behaviour convert
//! at their edge. Responses omit absent fields, requests accept explicit nulls, and every error is
//! an [`ErrorBody`].

pub mod diagnostics;
pub mod egress;
mod error;
pub mod execd;
pub mod headers;
mod id;
pub mod images;
pub mod lifecycle;
mod null;
pub mod ports;

pub use error::{ErrorBody, codes};
pub use id::{InvalidId, SandboxId, SnapshotId, TemplateId};
