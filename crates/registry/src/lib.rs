//! Images at registries, and a client of the API by which they are had from there.
//!
//! A [`Reference`] is the name that people give an image, a [`Digest`] the name that its content
//! gives it, and a [`Descriptor`] is what manifests say of such content. A [`Client`] knows
//! registries; with a reference it has a [`Repository`], from which manifests and blobs are pulled
//! and to which they are pushed.
//!
//! Names come from clients and content from strangers. Every address is asked about before it is
//! dialled ([`Guard`]), logins go to those they are for, and everything has a bound.

mod challenge;
mod client;
mod descriptor;
mod dial;
mod digest;
mod error;
mod keyring;
mod login;
mod manifest;
pub mod media;
mod origin;
mod passes;
mod raw;
mod reference;
mod repository;
mod said;
mod settings;
#[cfg(feature = "testkit")]
pub mod testkit;
mod transfers;
mod tries;
mod trust;
mod wire;

pub use client::Client;
pub use descriptor::{Descriptor, Platform};
pub use dial::Guard;
pub use digest::{Algorithm, Digest, InvalidDigest, Verifier};
pub use error::{Fault, HadLogin, RegistryError};
pub use login::Login;
pub use manifest::{Document, Index, InvalidManifest, Manifest};
pub use origin::{InvalidOrigin, Origin, Scheme};
pub use raw::RawRegistry;
pub use reference::{InvalidReference, Reference};
pub use repository::{Blob, Fetched, Found, Name, Pushed, Repository};
pub use said::Said;
pub use settings::{LoginSettings, RegistrySettings, Settings, Transport};
