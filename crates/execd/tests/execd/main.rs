//! Drives the real execd over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod boot;
mod command;
mod daemon;
mod directories;
mod disconnect;
mod download;
mod entrypoint;
mod files;
mod http_rules;
mod isolated;
mod lifecycle;
mod limits;
mod metrics;
mod output;
mod sandbox;
mod terminal;
mod upload;
mod websocket;
