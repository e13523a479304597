//! Drives the real execd over HTTP.

mod boot;
mod command;
mod daemon;
mod disconnect;
mod download;
mod http_rules;
mod output;
mod upload;
