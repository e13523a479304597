//! `osb image import`.

use futures_util::TryStreamExt as _;
use opensandbox::api::images::ImportImagesResponse;
use osb_sys::fs::PathError;
use tokio::{fs::File, io::AsyncRead};
use tokio_util::io::ReaderStream;

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    progress::{Detail, Progress, Sent},
    target::Target,
};

/// How much is read at once.
const PIECE: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The archive, `-` for standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// What its image is to be called; a root file system needs it [default: as the archive says]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print a digest for each image, or digests and names as JSON
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let images = args.target.lifecycle(environment)?.images();
    let (reader, total): (Box<dyn AsyncRead + Send + Unpin>, _) = if args.file == "-" {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let wrong = |error| PathError::new("open", &args.file, error);
        let file = File::open(&args.file).await.map_err(wrong)?;
        let about = file.metadata().await.map_err(wrong)?;
        if about.is_dir() {
            let problem = "is a directory: an archive is needed, as `tar -c -C` makes it";
            return Err(Failure::Content { name: args.file, problem: problem.to_owned() });
        }
        (Box::new(file), about.is_file().then_some(about.len()))
    };
    let sent = Sent::of(total);
    let count = sent.clone();
    let content = ReaderStream::with_capacity(reader, PIECE).inspect_ok(move |piece| {
        count.add(piece.len());
    });
    let what = if args.file == "-" { "standard input" } else { &args.file };
    let import = images.import(args.name.as_deref(), content);
    let imported = Progress::new(output, Detail::Some).sending(what, &sent, import).await?;
    print(&imported, args.output, output)
}

pub(super) fn print(
    imported: &ImportImagesResponse,
    format: Format,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match format {
        Format::Table => {
            for image in &imported.items {
                output.line(&image.digest)?;
            }
        }
        Format::Json => output.json(&imported.items)?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, reply};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[tokio::test]
    async fn an_archive_is_sent_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.tar");
        osb_sys::fs::write(&file, "content").unwrap();
        let server = ScriptedServer::start(|_| {
            reply(200, r#"{"items":[{"digest":"sha256:a","names":["x"]},{"digest":"sha256:b","names":[]}]}"#)
        })
        .await;
        let domain = server.address().to_string();
        let import = async |path: &str| {
            let line = ["import", "--domain", &domain, path, "x"];
            let args = Line::try_parse_from(line).unwrap().args;
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut output = Output::new(&mut out, &mut err);
            let code = main(args, &Environment::default(), &mut output).await;
            (code, String::from_utf8(out).unwrap())
        };
        let (code, out) = import(file.to_str().unwrap()).await;
        assert_eq!((code.unwrap(), out.as_str()), (0, "sha256:a\nsha256:b\n"));
        assert_eq!(server.seen()[0].body().as_ref(), b"content");
        assert!(import("/nonexistent").await.0.is_err());
        let (code, _) = import(dir.path().to_str().unwrap()).await;
        assert!(code.unwrap_err().report().unwrap().contains("is a directory"));
        assert_eq!(server.calls(), ["POST /v1/images/import?name=x"]);
    }
}
