//! One pull in a process of its own, for tests that kill it and for measurements.
//!
//! `osb-pull DIRECTORY IMAGE`, from a registry that speaks without TLS.

use std::process::ExitCode;

use osb_core::Chain;
use osb_image::{Images, Remote, Settings};
use osb_registry::{Client, Guard, Platform, Reference, RegistrySettings, Transport};
use osb_sys::userns::IdBase;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(name)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: osb-pull DIRECTORY IMAGE");
        return ExitCode::from(2);
    };
    match pull(&directory, &name).await {
        Ok(digest) => {
            println!("{digest}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("osb-pull: {}", Chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn pull(directory: &str, name: &str) -> Result<String, Box<dyn std::error::Error>> {
    let reference = Reference::parse(name)?;
    let plain = RegistrySettings { transport: Transport::Plain, ..RegistrySettings::default() };
    let settings = osb_registry::Settings {
        registries: [(reference.registry().to_owned(), plain)].into(),
        ..osb_registry::Settings::default()
    };
    let images = Images::open(directory, IdBase(0), Settings::default())?;
    let remote = Remote::new(images, Client::new(settings, Guard::new(|_| true))?);
    let pulled = remote.pull(&reference, None, &Platform::host()).await;
    Ok(pulled.map_err(|error| error.to_string())?.digest.to_string())
}
