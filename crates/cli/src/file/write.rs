//! `osb file write`.

use std::{io, path::PathBuf};

use futures_util::{StreamExt as _, stream::BoxStream};
use opensandbox::api::execd::{Mode, UploadMetadata};
use osb_sys::fs::PathError;
use tokio::{fs::File, io::AsyncRead};
use tokio_util::io::ReaderStream;

use crate::{env::Environment, failure::Failure, target::Target};

/// How much is read at once: fewer, larger pieces are what makes uploads fast.
const PIECE: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// The file to write, as an absolute path in the sandbox; directories on the way are made
    path: String,
    /// Read this local file in place of standard input
    #[arg(short, long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Permissions in octal digits
    #[arg(long, value_name = "MODE", default_value = "644", value_parser = mode)]
    mode: Mode,
    /// The user who shall own the file
    #[arg(long)]
    owner: Option<String>,
    /// The group that shall own the file
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    target: Target,
}

fn mode(text: &str) -> Result<Mode, String> {
    let digits = text.parse().map_err(|_| "it should look like 644 or 755".to_owned())?;
    Mode::from_digits(digits).map_err(|error| error.to_string())
}

pub(crate) async fn main(args: Args, environment: &Environment) -> Result<u8, Failure> {
    let content = match &args.from {
        None => pieces(tokio::io::stdin()),
        Some(path) => {
            let file = File::open(path).await;
            pieces(file.map_err(|error| PathError::new("open", path, error))?)
        }
    };
    let metadata = UploadMetadata {
        path: args.path,
        mode: Some(args.mode),
        owner: args.owner,
        group: args.group,
    };
    let execd = args.target.lifecycle(environment)?.execd(&args.id).await?;
    execd.upload(&metadata, content).await?;
    Ok(0)
}

fn pieces(
    reader: impl AsyncRead + Send + 'static,
) -> BoxStream<'static, io::Result<tokio_util::bytes::Bytes>> {
    ReaderStream::with_capacity(reader, PIECE).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        assert_eq!(mode("755"), Ok(Mode::from_bits(0o755)));
        assert_eq!(mode("0644"), Ok(Mode::from_bits(0o644)));
        assert!(mode("789").is_err());
        assert!(mode("rw-r--r--").is_err());
    }
}
