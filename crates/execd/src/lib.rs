//! The daemon inside every sandbox: it runs commands, moves files, and is the first process.
//!
//! A request enters in `serve`, is checked there for its token, and goes through the table in
//! `routes` to the module of its noun, such as `command`, `session` or `files`. Every process is
//! started through `reaper`, which alone waits for children.

mod accounts;
mod args;
mod blocking;
mod boot;
mod code;
mod command;
mod daemon;
mod driven;
mod duration;
mod entrypoint;
pub mod env;
mod env_file;
mod environment;
mod error;
mod events;
mod expand;
mod family;
mod files;
mod isolated;
mod isolator;
mod log;
mod metrics;
mod outlet;
mod output;
mod practice;
mod program;
mod proxy;
mod queue;
mod reaper;
mod reply;
mod request;
mod rest;
mod retained;
mod routes;
mod serve;
mod session;
mod signals;
mod terminal;
mod token;
mod trust;
mod websocket;
mod work;

pub use args::Args;
pub use boot::{Instructions, StartError};
pub use daemon::run;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
