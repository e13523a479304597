//! Developer programs that have logic of their own: `tidy`, `spec` and `bench`.
#![expect(clippy::print_stdout, reason = "these programs report to the person who started them")]

mod bench;
mod checkout;
mod spec;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer programs of this project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check what neither the compiler nor clippy checks: sizes, names, dependencies, text.
    Tidy,
    /// Write `specs/` from the code.
    Spec(spec::Options),
    /// Measure a real server and print the table of promises.
    Bench(bench::Options),
    /// Measure one thing, in a sandbox that `bench` has put this program into.
    #[command(hide = true)]
    Probe(bench::probe::Options),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Tidy => tidy::run(),
        Task::Spec(options) => spec::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Probe(options) => bench::probe::run(&options).map(|()| ExitCode::SUCCESS),
    }
}
