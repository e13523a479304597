//! Wire types of the diagnostics API.
