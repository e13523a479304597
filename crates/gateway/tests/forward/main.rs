//! The gateway in front of small services in the sandboxes of a fake runtime.

mod failures;
mod headers;
mod pool;
mod site;
mod socket;
mod streams;
mod upgrade;
