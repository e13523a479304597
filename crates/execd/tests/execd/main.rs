//! Drives the real execd over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ahead;
mod background;
mod bare_image;
mod boot;
mod code;
mod command;
mod daemon;
mod directories;
mod disconnect;
mod download;
mod entrypoint;
mod files;
mod hold_up;
mod http_rules;
mod identity;
mod interrupt;
mod isolated;
mod kernels;
mod lifecycle;
mod limits;
mod metrics;
mod output;
mod plain;
mod proxy;
mod sandbox;
mod service;
mod session;
mod terminal;
mod transcript;
mod upload;
mod watch;
mod websocket;
mod work;
