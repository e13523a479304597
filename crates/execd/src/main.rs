//! Starts execd.

use std::{
    io::{Write, stderr},
    process::ExitCode,
    sync::{Arc, Barrier},
    time::Duration,
};

use osb_core::Chain;
use osb_execd::{Args, Instructions, StartError};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::runtime::Runtime;

/// Threads for work that waits for disks.
const WORKERS: usize = 4;

/// Those that are there from the start. A sandbox whose programs have used up its processes may not
/// start a thread, and must answer all the same.
const READY: usize = 2;

/// Longer than anything runs.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 10);

fn main() -> ExitCode {
    // Neither the memory of this process, with the token in it, nor its descriptors are for the
    // programs of the sandbox.
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Nor is what our own parent may have left open. Kernels and filters too old for this call are
    // found under runtimes that leave nothing open.
    drop(osb_sys::inherited::keep_to_ourselves());
    osb_sys::memory::share_one_heap();
    // Many connections and commands need many descriptors; with fewer execd works as well.
    drop(osb_sys::rlimit::raise());
    let instructions = Instructions::of_runtime();
    let instructions = if let Some(instructions) = instructions {
        instructions
    } else {
        let args = Args::from_process();
        if let Some(serve) = args.isolator() {
            return match serve() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    // With nobody to read it there is nobody to tell.
                    drop(writeln!(stderr(), "execd: the isolator {}", Chain(&error)));
                    ExitCode::FAILURE
                }
            };
        }
        args.instructions()
    };
    let started = instructions.and_then(|instructions| {
        hidden.map_err(|error| StartError::Hide(error.into()))?;
        run(instructions)
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

fn run(instructions: Instructions) -> Result<u8, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORKERS)
        .thread_keep_alive(FOR_EVER)
        .build()
        .map_err(StartError::Runtime)?;
    get_ready(&runtime);
    let code = runtime.block_on(osb_execd::run(instructions));
    runtime.shutdown_background();
    code
}

/// Makes the runtime start its first threads, each of which waits until all of them are there.
fn get_ready(runtime: &Runtime) {
    let all = Arc::new(Barrier::new(READY));
    for _ in 0..READY {
        let all = Arc::clone(&all);
        // It ends by itself, and its end is not waited for.
        drop(runtime.spawn_blocking(move || all.wait()));
    }
}
