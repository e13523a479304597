//! What the tests of this and other crates share: a runtime in memory, a clock that tests set, and
//! the conformance suite that every runtime must pass.

mod clock;
pub mod conformance;
mod fake;
mod gate;
mod line;
mod news;
mod require;

pub use crate::conformance;
pub use clock::TestClock;
pub use fake::{Call, FakeRuntime, Sent};
pub use gate::Gate;
pub use line::{Line, answer_ok};
pub use require::required;
