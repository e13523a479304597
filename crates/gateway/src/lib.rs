//! Reverse proxy into sandboxes.
//!
//! A [`Gateway`] forwards one request to one port of one sandbox over a stream that [`Dial`] opens:
//! streaming both ways, byte for byte in path and query, with connections kept for the next
//! request. Who may call what is decided by the caller; this crate only keeps the system's own
//! credentials from reaching the service behind.

mod body;
mod caller;
mod dial;
mod dialler;
mod error;
mod fair;
mod gateway;
mod headers;
mod tunnel;
mod wire;

pub use body::Body;
pub use caller::{Caller, Held};
pub use dial::Dial;
pub use error::{Fault, GatewayError, Stage};
pub use fair::Fair;
pub use gateway::{Gateway, Route};
