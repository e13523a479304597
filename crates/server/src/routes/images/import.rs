//! Archives that clients send.

use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json as JsonBody,
    body::Body,
    extract::{RawQuery, Request, State},
};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use osb_api::images::ImportImagesResponse;
use tokio::sync::mpsc;

use super::{library, parameter, reference};
use crate::{app::App, error::ApiError, view};

/// How long nothing may arrive of an archive.
const STALL: Duration = Duration::from_mins(1);
/// How many pieces wait to be written. The longest are as long as the buffer of a connection.
const WAITING: usize = 8;
/// How much of an archive that is refused is read and thrown away, so that the client gets to see
/// the answer instead of a broken connection.
const DRAINED: usize = 64 << 20;

/// Takes in the images of an archive: one of `docker save`, a layout of the OCI, or a root file
/// system. A client that goes away before all of it has arrived leaves nothing.
pub(crate) async fn import(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Result<JsonBody<ImportImagesResponse>, ApiError> {
    let library = Arc::clone(library(&app)?);
    let name = parameter(raw.as_deref(), "name").map(|name| reference(&name)).transpose()?;
    let place = library.archive()?;
    let (send, pieces) = mpsc::channel(WAITING);
    let importing = tokio::task::spawn_blocking(move || {
        let _place = place;
        let from = Upload { pieces, current: Bytes::new(), is_whole: false };
        library.images().import(from, name.as_ref())
    });
    feed(request.into_body(), send).await;
    let imported = importing.await.map_err(ApiError::internal)??;
    let items = imported.iter().map(view::imported).collect();
    Ok(JsonBody(ImportImagesResponse { items }))
}

/// A part of an archive, or that there are no more.
enum Piece {
    Data(Bytes),
    End,
}

/// Passes the body on. Whoever reads is told of its end only if it has one.
async fn feed(mut body: Body, send: mpsc::Sender<Piece>) {
    let mut drained = 0_usize;
    loop {
        let frame = match tokio::time::timeout(STALL, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return,
        };
        let Ok(data) = frame.into_data() else { continue };
        if send.is_closed() {
            drained = drained.saturating_add(data.len());
            if drained > DRAINED {
                return;
            }
        } else {
            // Whoever has stopped reading says why.
            send.send(Piece::Data(data)).await.ok();
        }
    }
    send.send(Piece::End).await.ok();
}

/// A body, for those who wait for it in a thread.
struct Upload {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    is_whole: bool,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.is_whole {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.is_whole = true,
                None => {
                    let why = "it broke off before its end";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
            }
        }
        let count = self.current.len().min(buffer.len());
        if let Some(into) = buffer.get_mut(..count) {
            self.current.copy_to_slice(into);
        }
        Ok(count)
    }
}
