//! Wire types of the lifecycle API: what clients send to make, find, keep and end sandboxes.
//!
//! Requests take `null` for every optional field and ignore keys they do not know, except where a
//! type says otherwise. Responses leave absent fields out: published clients fail on `null`.

mod create;
mod endpoint;
mod hooks;
mod kept_volume;
mod network;
mod pool;
mod sandbox;
mod secret;
mod service;
mod snapshot;
mod template;
mod time;
mod usage;
mod volume;

pub use create::{CreateSandboxRequest, CredentialProxy, ImageAuth, ImageSpec, Platform};
pub use endpoint::{Endpoint, EndpointQuery};
pub use hooks::{Hooks, PeriodicHook, PreStartHook};
pub use kept_volume::{KeptVolume, ListVolumesQuery, ListVolumesResponse};
pub use network::{NetworkAction, NetworkPolicy, NetworkPolicyStatus, NetworkRule};
pub use pool::{
    CreatePoolRequest, ListPoolsResponse, Pool, PoolCapacity, PoolStatus, UpdatePoolRequest,
};
pub use sandbox::{
    Allocation, AllocationMode, AllocationState, CreateSandboxResponse, Image, ListSandboxesQuery,
    ListSandboxesResponse, MetadataPatch, Pagination, RenewExpirationRequest,
    RenewExpirationResponse, Sandbox, SandboxStatus,
};
pub use secret::Secret;
pub use service::{Health, MetricsEvent, MetricsEventType, Version};
pub use snapshot::{
    CreateSnapshotRequest, ListSnapshotsQuery, ListSnapshotsResponse, Snapshot, SnapshotStatus,
};
pub use template::{
    CreateTemplateRequest, ListTemplatesQuery, ListTemplatesResponse, Readiness, Template,
    TemplateFormat, TemplatePhase, TemplateStatus,
};
pub use time::{InvalidTime, Time};
pub use usage::SandboxUsage;
pub use volume::{HostVolume, OssfsVersion, OssfsVolume, PvcVolume, TmpfsVolume, Volume};
