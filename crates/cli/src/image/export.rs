//! `osb image export`.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use opensandbox::{ArchiveFormat, Download};
use osb_sys::fs::PathError;
use tempfile::NamedTempFile;

use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    progress::{Detail, Progress, Sent},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image, by a name or its digest
    #[arg(value_name = "IMAGE")]
    name: String,
    /// Where to write it to, `-` for standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// What the archive is for
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Kind,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Kind {
    /// A layout of the OCI
    #[default]
    Oci,
    /// The same, and what `docker load` looks for
    Docker,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let is_standard = args.file == Path::new("-");
    if is_standard && io::stdout().is_terminal() {
        let text = "standard output is a terminal: name a file, or let another program read it";
        return Err(Failure::Usage(text.to_owned()));
    }
    let images = args.target.lifecycle(environment)?.images();
    let format = match args.format {
        Kind::Oci => ArchiveFormat::Oci,
        Kind::Docker => ArchiveFormat::Docker,
    };
    let mut download = images.export(&args.name, format).await?;
    if is_standard {
        while let Some(piece) = download.next().await? {
            output.data(&piece)?;
        }
        return Ok(0);
    }
    let sent = Sent::of(None);
    let save = save(&mut download, Place::open(&args.file)?, &sent);
    Progress::new(output, Detail::Some).sending(&args.name, &sent, save).await?;
    Ok(0)
}

async fn save(download: &mut Download, mut place: Place, sent: &Sent) -> Result<(), Failure> {
    while let Some(piece) = download.next().await? {
        place.write(&piece)?;
        sent.add(piece.len());
    }
    Ok(place.finish()?)
}

/// Where an archive is written to.
#[derive(Debug)]
enum Place {
    /// A file that gets its name when it is whole: half an archive looks like a whole one.
    New { content: NamedTempFile, file: PathBuf },
    /// Something that is there and no file, such as a pipe.
    Other { content: File, file: PathBuf },
}

impl Place {
    fn open(file: &Path) -> Result<Self, PathError> {
        let wrong = |error| PathError::new("create", file, error);
        if file.metadata().is_ok_and(|about| !about.is_file()) {
            let content = OpenOptions::new().write(true).open(file).map_err(wrong)?;
            return Ok(Self::Other { content, file: file.to_owned() });
        }
        let directory = match file.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let content = builder
            .prefix(".osb-export-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(directory)
            .map_err(wrong)?;
        Ok(Self::New { content, file: file.to_owned() })
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), PathError> {
        let (written, file) = match self {
            Self::New { content, file } => (content.write_all(piece), file),
            Self::Other { content, file } => (content.write_all(piece), file),
        };
        written.map_err(|error| PathError::new("write", &*file, error))
    }

    fn finish(self) -> Result<(), PathError> {
        let Self::New { content, file } = self else { return Ok(()) };
        let kept = content.persist(&file);
        kept.map(drop).map_err(|error| PathError::new("write", file, error.error))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use opensandbox::testkit::{ScriptedServer, Then, reply, stream_reply};
    use osb_sys::fs;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[tokio::test]
    async fn a_file_is_there_when_it_is_whole() {
        let server =
            ScriptedServer::start(|request| match request.uri().query().unwrap_or_default() {
                "name=x&format=docker" => stream_reply(["ab", "cd"], Then::End),
                _ => reply(404, r#"{"code":"SANDBOX::IMAGE_NOT_FOUND","message":"no"}"#),
            })
            .await;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.tar");
        let domain = server.address().to_string();
        let export = async |name: &str| {
            let file = file.to_str().unwrap();
            let line = ["export", "--domain", &domain, name, file, "--format", "docker"];
            let args = Line::try_parse_from(line).unwrap().args;
            let (mut out, mut err) = (Vec::new(), Vec::new());
            main(args, &Environment::default(), &mut Output::new(&mut out, &mut err)).await
        };
        assert!(export("y").await.is_err());
        assert_eq!(fs::count_entries(dir.path()).unwrap(), 0);
        assert_eq!(export("x").await.unwrap(), 0);
        assert_eq!(fs::read(&file).unwrap(), b"abcd");
        assert_eq!(fs::count_entries(dir.path()).unwrap(), 1);
    }

    #[test]
    fn half_a_file_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut place = Place::open(&dir.path().join("a.tar")).unwrap();
        place.write(b"half").unwrap();
        assert_eq!(fs::count_entries(dir.path()).unwrap(), 1);
        drop(place);
        assert_eq!(fs::count_entries(dir.path()).unwrap(), 0);
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let mut place = Place::open(Path::new("/dev/null")).unwrap();
        place.write(b"x").unwrap();
        place.finish().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
