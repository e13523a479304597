//! Linux made safe. The only crate with `unsafe` code; everything it exports is safe to call.

#![expect(unsafe_code, reason = "this crate is where the kernel's raw interfaces become safe")]

pub mod command;
pub mod fs;
