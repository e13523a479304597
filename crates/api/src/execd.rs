//! Wire types of the API that execd serves inside a sandbox.
//!
//! Requests accept explicit nulls and ignore fields they do not know; responses omit what is
//! absent. Times in JSON are RFC 3339, times in events are milliseconds since 1970.

mod change;
mod code;
mod command;
mod entrypoint;
mod event;
mod file;
mod isolated;
mod metrics;
mod mode;
mod pty;
mod session;

pub use change::{Change, ChangeKind};
pub use code::{CodeContext, ContextKind, ContextRef, CreateContext, RunCode, languages};
pub use command::{CommandStatus, RunCommand};
pub use entrypoint::EntrypointStatus;
pub use event::{Event, EventKind, Failure, enames};
pub use file::{FileInfo, FileKind, Ownership, Rename, Replaced, Replacement, UploadMetadata};
pub use isolated::{
    CreateIsolated, EnvMode, EnvPassthrough, Hardening, HardeningState, IsolatedBind,
    IsolatedCapabilities, IsolatedCreated, IsolatedList, IsolatedListed, IsolatedOverlay,
    IsolatedProfile, IsolatedRun, IsolatedRunStarted, IsolatedSession, IsolatedStatus,
    IsolatedWorkspace, RunIsolated, UidMode, WorkspaceMode,
};
pub use metrics::{Metrics, Work};
pub use mode::{InvalidMode, Mode};
pub use pty::{
    CreatePty, PtyClientFrame, PtyCreated, PtyMode, PtyServerFrame, PtySignal, PtyStatus, channels,
    pty_errors,
};
pub use session::{CreateSession, RunInSession, SessionCreated};
