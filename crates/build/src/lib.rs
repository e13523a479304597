//! Dockerfiles, built in sandboxes.
//!
//! A [`Dockerfile`] is what was written, a [`Plan`] is what is wanted of it, and a [`Build`] makes it an
//! image in a [`Workshop`], which is where commands run and layers are kept. A [`Bench`] is one with the
//! store of images of this machine, for anybody who has sandboxes to lend.

mod accounts;
mod asker;
mod bench;
mod build;
mod cache;
mod chmod;
mod context;
mod dockerfile;
mod error;
mod event;
mod expand;
mod glob;
mod ignore;
mod key;
mod plan;
mod problem;
mod scope;
mod transfer;
mod workshop;

pub use accounts::Account;
pub use bench::{Bench, Changes, Ended, Sandboxes};
pub use build::{Build, Built, Caching};
pub use cache::{Bounds, Cache, Kept};
pub use context::{Context, ContextError};
pub use dockerfile::{
    Command, Declared, Directives, Dockerfile, Healthcheck, Heredoc, Instruction, Mount, Place,
    Reach, Run, Said, Stage, Transfer,
};
pub use error::{BuildError, Failed, How};
pub use event::{Event, Progress, StepId};
pub use ignore::Ignore;
pub use key::CacheKey;
pub use plan::{Base, Plan, Planned, Source, Wanted};
pub use problem::{Problem, Warning};
pub use scope::Sharing;
pub use workshop::{
    BaseImage, CacheMount, Layer, Made, Output, Ran, RunStep, Secret, SecretFile, Stream,
    TmpfsMount, Tree, WorkError, Workshop,
};
