//! Rust SDK for OpenSandbox: one client per API.
//!
//! ```no_run
//! use opensandbox::{Connection, Lifecycle, Sandbox};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Connection::new("127.0.0.1:8080")?.api_key("…")?;
//! let lifecycle = Lifecycle::new(connection);
//! let sandbox = Sandbox::create(&lifecycle, &Sandbox::request("host")).await?;
//! sandbox.files().write("/tmp/hello.py", "print('hello')").await?;
//! let finished = sandbox.run(["python3", "/tmp/hello.py"]).await?;
//! assert_eq!(finished.stdout, "hello\n");
//! sandbox.kill().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Lifecycle`] and [`Execd`] are the APIs call by call, with the wire types of [`api`];
//! [`Images`] are those of the server; [`Sandbox`] puts the usual calls together. This version speaks plain HTTP only: see
//! [`InvalidDomain::Https`].

mod connection;
mod decisions;
mod diagnostics;
mod download;
mod error;
mod events;
mod execd;
mod frames;
mod image_events;
mod images;
mod lifecycle;
mod policies;
mod sandbox;
mod snapshots;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod transport;
mod upload;
mod vault;
mod volumes;

pub use connection::{Connection, InvalidApiKey, InvalidDomain, Route};
pub use decisions::Decisions;
pub use download::Download;
pub use error::ClientError;
pub use events::{Events, Outcome, output_line};
pub use execd::Execd;
pub use image_events::ImageEvents;
pub use images::{ArchiveFormat, Images};
pub use lifecycle::Lifecycle;
pub use osb_api as api;
pub use sandbox::{Files, Finished, Sandbox};
pub use vault::Vault;
