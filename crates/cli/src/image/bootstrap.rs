//! `osb image bootstrap`.

mod apt;
mod child;
mod distribution;
mod maker;
mod place;
mod rootfs;

use futures_util::TryStreamExt as _;
use opensandbox::{Images, api::images::ImportImagesResponse};

use self::{
    apt::{Apt, Source},
    distribution::Distribution,
    maker::{Maker, Order},
    rootfs::Rootfs,
};
use super::import;
use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    pipe,
    progress::{Detail, Progress, Sent},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image to make: debian or ubuntu, and the name or number of a release
    #[arg(value_name = "NAME", value_parser = Distribution::parse)]
    distribution: Distribution,
    /// Where packages come from: a URL, or a line as in sources.list; may be repeated [default: what
    /// this machine has in /etc/apt]
    #[arg(long, value_name = "URL")]
    mirror: Vec<Source>,
    /// More packages to install; may be repeated
    #[arg(long, value_name = "PACKAGE,…", value_delimiter = ',', value_parser = package)]
    include: Vec<String>,
    /// How much to install, such as minbase, apt or important
    #[arg(long, value_name = "VARIANT", default_value = "minbase", value_parser = package)]
    variant: String,
    /// Print the digest, or digest and names as JSON
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

/// A word that a program can be given between others.
fn package(text: &str) -> Result<String, &'static str> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.:=~/_".contains(&byte);
    let is_word = !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_fine);
    if is_word { Ok(text.to_owned()) } else { Err("it should be a word such as curl") }
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let images = args.target.lifecycle(environment)?.images();
    let wish = Wish {
        distribution: args.distribution,
        mirrors: args.mirror,
        include: args.include,
        variant: args.variant,
    };
    let mut progress = Progress::new(output, Detail::Some);
    let made = bootstrap(&images, wish, environment, &mut progress).await?;
    drop(progress);
    import::print(&made, args.output, output)
}

/// What is to be made.
#[derive(Debug)]
pub(crate) struct Wish {
    distribution: Distribution,
    mirrors: Vec<Source>,
    include: Vec<String>,
    variant: String,
}

impl Wish {
    /// As little as can be, from where this machine gets its packages.
    pub(crate) fn minimal(name: &str) -> Result<Self, Failure> {
        Ok(Self {
            distribution: Distribution::parse(name).map_err(Failure::Usage)?,
            mirrors: Vec::new(),
            include: Vec::new(),
            variant: "minbase".to_owned(),
        })
    }
}

/// Makes the image here, and gives it to the server.
pub(crate) async fn bootstrap(
    images: &Images,
    wish: Wish,
    environment: &Environment,
    progress: &mut Progress<'_, '_>,
) -> Result<ImportImagesResponse, Failure> {
    let name = wish.distribution.name().to_owned();
    let maker = Maker::find(environment)?;
    let apt = Apt::of_this_machine();
    let sources =
        if wish.mirrors.is_empty() { apt.sources(&wish.distribution)? } else { wish.mirrors };
    let order = Order {
        distribution: wish.distribution,
        sources,
        settings: maker::settings(environment),
        include: wish.include,
        variant: wish.variant,
    };
    progress.stage(&format!("making {name} with {}", maker.name()));
    let rootfs = maker.make(&order, environment, progress).await?;
    send(images, &name, rootfs, progress).await
}

async fn send(
    images: &Images,
    name: &str,
    rootfs: Rootfs,
    progress: &mut Progress<'_, '_>,
) -> Result<ImportImagesResponse, Failure> {
    let sent = Sent::of(Some(rootfs.size()));
    let count = sent.clone();
    let (writing, pieces) = pipe::written_by(move |to| rootfs.write(to));
    let pieces = pieces.inspect_ok(move |piece| count.add(piece.len()));
    let import = images.import(Some(name), pieces);
    let imported = progress.sending(name, &sent, import).await;
    imported.map_err(|error| match writing.problem() {
        Some(source) => Failure::Machine { doing: "cannot send the image", source: source.into() },
        None => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use opensandbox::{
        Lifecycle,
        testkit::{ScriptedServer, reply},
    };

    use super::*;

    #[test]
    fn packages_are_words() {
        for text in ["curl", "libc6:amd64", "g++", "vim=2:9.0"] {
            assert!(package(text).is_ok(), "{text}");
        }
        for text in ["", "--hook-dir=x", "a b", "$(x)"] {
            assert!(package(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn what_was_made_is_imported_under_its_name() {
        let server = ScriptedServer::start(|_| {
            reply(200, r#"{"items":[{"digest":"sha256:a","names":["debian:bookworm"]}]}"#)
        })
        .await;
        let images = Lifecycle::new(server.connection()).images();
        let rootfs = Rootfs::pack(&b"a tar"[..]).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let mut progress = Progress::new(&mut output, Detail::Some);
        let made = send(&images, "debian:bookworm", rootfs, &mut progress).await.unwrap();
        assert_eq!(made.items[0].digest, "sha256:a");
        assert_eq!(server.calls(), ["POST /v1/images/import?name=debian%3Abookworm"]);
    }
}
