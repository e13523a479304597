//! What leaves a sandbox.
//!
//! A sandbox has no wire: whatever it sends arrives at sockets that the server opened inside its
//! network namespace. This crate answers there. It gives every name an address of its own, so that a
//! connection says exactly whom it is for; it asks the [`Policy`], resolves and dials itself, and
//! passes bytes on. Where nothing answers, nothing leaves.

mod book;
mod datagrams;
mod decision;
mod dial;
mod dns;
mod door;
mod egress;
mod extra_ca;
mod fetch;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod guard;
mod intercept;
mod limits;
mod name;
mod opened;
mod operator;
mod passage;
mod policy;
mod resolver;
mod ruling;
mod sniff;
mod splice;
mod streams;
#[cfg(test)]
mod testing;
mod upstream;
pub mod vault;
mod webhook;

pub use decision::{
    Asked, Attempt, Counts, CredentialOutcome, CredentialUse, Decision, End, Ending, Protocol,
    Witness,
};
pub use egress::{Egress, Follow, Settings};
pub use extra_ca::ExtraCa;
pub use fetch::FetchError;
pub use guard::is_public;
pub use intercept::Root;
pub use name::{BadName, Name};
pub use operator::{Amount, Operator, OperatorError, RawOperator, Reach};
pub use policy::{BadTarget, Policy, PolicyError, Readings, add, meet, merge, remove};
pub use ruling::{By, Guarded, Ruling, Verdict};
pub use upstream::Resolvers;
pub use webhook::Webhook;
