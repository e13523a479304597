//! `osb image build`.

mod archive;
mod context;
mod secret;

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use opensandbox::{
    Images,
    api::images::{BuildRequest, ImportedImage},
};
use osb_core::{Cpu, Memory};
use secrecy::ExposeSecret as _;

pub(crate) use self::archive::{Archive, Carried, Files};
use self::{context::Context, secret::SecretFlag};
use super::print;
use crate::{
    env::{self, Environment},
    failure::Failure,
    input,
    network::{self, Reach},
    output::{Format, Output},
    pair::{self, Pair},
    pipe,
    progress::{Detail, Progress, Sent},
    spec::amount,
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to call the image; may be repeated
    #[arg(short, long = "tag", value_name = "NAME")]
    tags: Vec<String>,
    /// The Dockerfile, `-` for standard input [default: Dockerfile in CONTEXT]
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Set an ARG of the Dockerfile, to the variable of that name if no value is given; may be
    /// repeated
    #[arg(long = "build-arg", value_name = "KEY[=VALUE]")]
    given: Vec<String>,
    /// The stage that is wanted [default: the last]
    #[arg(long = "target", value_name = "STAGE")]
    stage: Option<String>,
    /// Label the image; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Pair>,
    /// Let RUN steps that ask for it read a secret, which does not become part of the image; may be
    /// repeated
    #[arg(long = "secret", value_name = "id=ID[,src=FILE|,env=VARIABLE]")]
    secrets: Vec<SecretFlag>,
    /// Do everything anew, also what was done before
    #[arg(long)]
    no_cache: bool,
    /// The platform to build for, such as linux/amd64 [default: that of the server]
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<String>,
    /// Let no file of the image be newer than this, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    source_date_epoch: Option<i64>,
    /// Show every line that steps say
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    reach: Reach,
    /// Print the digest, or digest and names as JSON
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
    /// The directory that is built; `-` for none and the Dockerfile from standard input
    #[arg(value_name = "CONTEXT")]
    context: String,
}

/// What steps may take.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Limits {
    /// Processor limit of its steps, such as 2, 0.5 or 500m
    #[arg(long, value_name = "CORES", value_parser = amount::<Cpu>, help_heading = "Steps")]
    cpu: Option<String>,
    /// Memory limit of its steps, such as 512Mi or 2Gi
    #[arg(long, value_name = "BYTES", value_parser = amount::<Memory>, help_heading = "Steps")]
    memory: Option<String>,
    /// Limit on what its steps write, such as 512Mi or 10Gi
    #[arg(long, value_name = "BYTES", value_parser = amount::<Memory>, help_heading = "Steps")]
    disk: Option<String>,
}

impl Limits {
    pub(crate) fn to_request(&self) -> Option<BTreeMap<String, String>> {
        let limits = [("cpu", &self.cpu), ("memory", &self.memory), ("disk", &self.disk)];
        let limits: BTreeMap<_, _> = limits
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
            .collect();
        (!limits.is_empty()).then_some(limits)
    }
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let context = Context::find(&args.context, args.file.as_deref())?;
    let policy = args.reach.policy_file();
    let policy = policy.map(|file| input::read(file, network::parse)).transpose()?;
    let secrets = args.secrets.iter().map(SecretFlag::read);
    let mut request = BuildRequest {
        dockerfile: context.dockerfile.clone(),
        content: context.content.clone(),
        names: args.tags,
        target: args.stage,
        args: build_args(&args.given),
        labels: pair::to_map(&args.labels),
        secrets: secrets.collect::<Result<_, _>>()?,
        no_cache: args.no_cache,
        platform: args.platform,
        source_date_epoch: args.source_date_epoch,
        network_policy: policy,
        resource_limits: args.limits.to_request(),
    };
    let lifecycle = args.target.lifecycle(environment)?;
    if request.network_policy.is_none() {
        let leaves = args.reach.leaves_to_the_server();
        let around = if leaves { lifecycle.no_policy().await? } else { None };
        request.network_policy = args.reach.policy(around.as_ref());
        let operator = around.as_ref().map(|around| around.operator.as_slice());
        if let Some(note) = args.reach.outranked(operator.unwrap_or_default()) {
            output.say(&note);
        }
    }
    let detail = if args.verbose { Detail::All } else { Detail::Some };
    let archive = Archive { request, files: context.files };
    let image = build(&lifecycle.images(), archive, &mut Progress::new(output, detail)).await?;
    print(&image, args.output, output)
}

/// Builds what the archive says, and tells how far it is.
pub(crate) async fn build(
    images: &Images,
    archive: Archive,
    progress: &mut Progress<'_, '_>,
) -> Result<ImportedImage, Failure> {
    let sent = Sent::of(None);
    let count = sent.clone();
    let (writing, pieces) = pipe::written_by(move |to| archive.write(to));
    let pieces = pieces.inspect_ok(move |piece| count.add(piece.len()));
    let built = async {
        let build = images.build(pieces);
        let mut events = progress.sending("what is built", &sent, build).await?;
        progress.follow(&mut events).await
    };
    built.await.map_err(|error| match writing.problem() {
        Some(source) => {
            Failure::Machine { doing: "cannot send what is built", source: source.into() }
        }
        None => error.into(),
    })
}

/// The arguments; those without a value are as variables say, if they do.
pub(crate) fn build_args(words: &[String]) -> BTreeMap<String, String> {
    let value = |word: &String| match word.split_once('=') {
        Some((key, value)) => Some((key.to_owned(), value.to_owned())),
        None => Some((word.clone(), env::named(word)?.expose_secret().to_owned())),
    };
    words.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests;
