//! The spawner on its own, for programs that use this crate without being `osb`.

use std::process::ExitCode;

fn main() -> ExitCode {
    osb_native::spawner_main()
}
