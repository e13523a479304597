//! `osb image`: what sandboxes start from.

pub(crate) mod bootstrap;
pub(crate) mod build;
mod export;
mod gc;
mod import;
mod inspect;
mod login;
mod ls;
mod pull;
mod push;
mod rm;
mod tag;

use opensandbox::api::images::ImportedImage;
use osb_registry::Reference;

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    signals::{Interrupts as _, Signals},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List images, and say what they take
    #[command(visible_alias = "list")]
    Ls(ls::Args),
    /// Show one image
    Inspect(inspect::Args),
    /// Get an image from a registry, and print its digest
    ///
    /// The server asks the registry, with the login that is given here or else with its own.
    Pull(pull::Args),
    /// Give an image to a registry, and print its digest
    ///
    /// The server sends it, with the login that is given here or else with its own.
    Push(push::Args),
    /// Take in the images of an archive, and print their digests
    ///
    /// Archives are what `docker save` writes, layouts of the OCI, and root file systems as tar, which
    /// become an image that says nothing about itself. They may be compressed with gzip or zstd.
    Import(import::Args),
    /// Write an image as an archive
    Export(export::Args),
    /// Give an image another name
    Tag(tag::Args),
    /// Take names away, and with its last name the image, unless something stands on it
    Rm(rm::Args),
    /// Remove what no image needs, and images without a name on which nothing stands
    Gc(gc::Args),
    /// Make an image of Debian or Ubuntu from its packages, without a container registry
    ///
    /// Runs mmdebstrap, or debootstrap if that is what there is, on this machine, and gives the server
    /// what it made. Packages come from where this machine gets its own, if it is the same
    /// distribution, with the same keys and proxies; or else from the archive of the distribution.
    #[command(after_help = BOOTSTRAP)]
    Bootstrap(bootstrap::Args),
    /// Build an image from a Dockerfile, and print its digest
    ///
    /// Its steps run in sandboxes of the server. What `.dockerignore` names is not sent there.
    #[command(after_help = BUILD)]
    Build(Box<build::Args>),
}

const BOOTSTRAP: &str = "\
Examples:
  osb image bootstrap debian:bookworm
  osb image bootstrap debian:trixie --include ca-certificates,curl
  osb image bootstrap ubuntu:24.04 --mirror http://mirror.corp.example/ubuntu";

const BUILD: &str = "\
Examples:
  osb image build -t me/tool .
  osb image build -t me/tool -f docker/Dockerfile --build-arg VERSION=2 .
  osb image build -t me/tool --allow pypi.org --allow '*.pythonhosted.org' .
  osb image build -t me/tool --secret id=token,env=TOKEN .
  osb image build -t me/tool - < Dockerfile";

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let work = async {
        match command {
            Command::Ls(args) => ls::main(args, environment, output).await,
            Command::Inspect(args) => inspect::main(args, environment, output).await,
            Command::Pull(args) => pull::main(args, environment, output).await,
            Command::Push(args) => push::main(args, environment, output).await,
            Command::Import(args) => import::main(args, environment, output).await,
            Command::Export(args) => export::main(args, environment, output).await,
            Command::Tag(args) => tag::main(args, environment).await,
            Command::Rm(args) => rm::main(args, environment, output).await,
            Command::Gc(args) => gc::main(args, environment, output).await,
            Command::Bootstrap(args) => bootstrap::main(args, environment, output).await,
            Command::Build(args) => build::main(*args, environment, output).await,
        }
    };
    // Whoever stops waiting for an answer has the server stop working on it.
    tokio::select! {
        done = Box::pin(work) => done,
        signal = signals.next() => Ok(signal.exit_code()),
    }
}

/// Prints what came here: its digest, or all that is known of it.
fn print(image: &ImportedImage, format: Format, output: &mut Output<'_>) -> Result<u8, Failure> {
    match format {
        Format::Table => output.line(&image.digest)?,
        Format::Json => output.json(image)?,
    }
    Ok(0)
}

/// A name as people write it.
fn familiar(name: &str) -> String {
    Reference::parse(name).map_or_else(|_| name.to_owned(), |name| name.familiar())
}
