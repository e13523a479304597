//! What leaves a sandbox.
//!
//! A sandbox has no wire: whatever it sends arrives at sockets that the server opened inside its
//! network namespace. This crate answers there. It gives every name an address of its own, so that a
//! connection says exactly whom it is for; it asks the [`Policy`], resolves and dials itself, and
//! passes bytes on. Where nothing answers, nothing leaves.

mod guard;
mod intercept;
mod name;
mod operator;
mod policy;
mod ruling;
pub mod vault;

pub use intercept::{
    Authority, Body, BoxError, Connect, Credentials, Finish, Host, InterceptError, Interceptor,
    Refusal, Root, Rules, Scheme,
};
pub use name::{BadName, Name};
pub use operator::{Operator, OperatorError, RawOperator, Reach};
pub use policy::{BadTarget, Policy, PolicyError, merge, remove};
pub use ruling::{By, Guarded, Ruling, Verdict};
