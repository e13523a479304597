//! Starts execd.

use std::{
    io::{Write, stderr},
    process::ExitCode,
};

use clap::Parser;
use osb_core::Chain;
use osb_execd::{Args, Start};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

fn main() -> ExitCode {
    // Neither the memory of this process, with the token in it, nor its descriptors are for the
    // programs of the sandbox.
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Nor is what our own parent may have left open. Kernels and filters too old for this call are
    // found under runtimes that leave nothing open.
    drop(osb_sys::inherited::keep_to_ourselves());
    let started = Args::parse().start().and_then(|start| {
        hidden.map_err(|error| osb_execd::StartError::Hide(error.into()))?;
        run(start)
    });
    match started {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // With nobody to read it there is nobody to tell.
            drop(writeln!(stderr(), "execd: {}", Chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(start: Start) -> Result<u8, osb_execd::StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(1))
        .build()
        .map_err(osb_execd::StartError::Runtime)?;
    let code = runtime.block_on(osb_execd::run(start));
    runtime.shutdown_background();
    code
}
