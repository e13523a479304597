use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::stream;

use super::{line_range::LineRange, range::Range, upload};

/// The first and the last byte but one of a range of a file; nothing if the header asks for no
/// bytes at all, an error if there are no such bytes.
pub fn range(header: &str, size: u64) -> Result<Option<(u64, u64)>, String> {
    match Range::parse(header, size) {
        Range::Whole => Ok(None),
        Range::Part { start, end } => Ok(Some((start, end))),
        Range::Unsatisfiable => Err(format!("{size} bytes have no {header:?}")),
    }
}

/// The lines of a file that comes in pieces.
pub fn line_range<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    offset: u64,
    limit: Option<u64>,
) -> Vec<u8> {
    let (mut lines, mut out) = (LineRange::new(offset, limit), Vec::new());
    for piece in pieces {
        lines.feed(piece, &mut out);
    }
    lines.finish(&mut out);
    out
}

/// The name of a part of a form, and what it holds.
pub type Part = (Option<String>, Vec<u8>);

/// The names and contents of the parts of an upload that comes in pieces.
pub fn form<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    boundary: &str,
) -> Result<Vec<Part>, String> {
    let pieces: Vec<_> = pieces
        .into_iter()
        .map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)))
        .collect();
    let mut content = Body::from_stream(stream::iter(pieces)).into_data_stream();
    let mut form = upload::form(&mut content, boundary.to_owned());
    let read = async {
        let mut parts = Vec::new();
        while let Some(mut field) = form.next_field().await? {
            let name = field.name().map(str::to_owned);
            let mut bytes = Vec::new();
            while let Some(chunk) = field.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            parts.push((name, bytes));
        }
        Ok::<_, multer::Error>(parts)
    };
    // Everything is there already, so nothing ever waits.
    futures_util::FutureExt::now_or_never(read)
        .unwrap_or_else(|| Ok(Vec::new()))
        .map_err(|error| error.to_string())
}
