//! Archives for clients.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Body,
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header;
use osb_image::{ArchiveKind, Image, ImageError};
use osb_registry::{Digest, Reference};
use tokio::{runtime::Handle, sync::mpsc};

use super::{find, library, named, parameter};
use crate::{app::App, error::ApiError, library::Library};

/// How long a client may take to take a piece.
const STALL: Duration = Duration::from_mins(1);
/// How many pieces wait to be sent, and how long one is.
const WAITING: usize = 8;
const PIECE: usize = 256 << 10;

type Piece = Result<Bytes, ImageError>;

/// Gives an image away as an archive.
pub(crate) async fn export(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<Response, ApiError> {
    let library = Arc::clone(library(&app)?);
    let name = named(raw.as_deref())?;
    let kind = match parameter(raw.as_deref(), "format").as_deref() {
        None | Some("oci") => ArchiveKind::Oci,
        Some("docker") => ArchiveKind::Docker,
        Some(_) => return Err(ApiError::invalid("format must be oci or docker")),
    };
    let image = find(&library, &name)?;
    let names = names(&library, &image);
    let place = library.archive()?;
    let (send, mut pieces) = mpsc::channel(WAITING);
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let to = Download { send: send.clone(), handle };
        let to = io::BufWriter::with_capacity(PIECE, to);
        if let Err(error) = library.images().export(&image, kind, &names, to) {
            // Who went away does not care.
            send.blocking_send(Err(error)).ok();
        }
    });
    // What goes wrong at once is an answer of its own.
    let first = pieces.recv().await.ok_or_else(|| ApiError::internal("nothing was exported"))??;
    let rest = stream::unfold(pieces, async |mut pieces| Some((pieces.recv().await?, pieces)));
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], body).into_response())
}

/// What the image is called in the archive: as it was asked for, or all that it is called here.
fn names(library: &Library, image: &Image) -> Vec<Reference> {
    let asked = image.name.as_str();
    if Digest::parse(asked).is_err()
        && let Ok(name) = Reference::parse(asked)
    {
        return vec![name];
    }
    let listed = library.images().list().into_iter();
    let names = listed.filter(|it| Some(&it.digest) == image.digest.as_ref());
    names.flat_map(|it| it.names).filter_map(|name| Reference::parse(&name).ok()).collect()
}

/// A body, for those who write it in a thread.
struct Download {
    send: mpsc::Sender<Piece>,
    handle: Handle,
}

impl Write for Download {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(content.get(..PIECE).unwrap_or(content));
        let length = piece.len();
        let sending = self.send.send_timeout(Ok(piece), STALL);
        let sent = self.handle.block_on(sending);
        sent.map(|()| length).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
