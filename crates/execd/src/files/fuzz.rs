use axum::body::Bytes;

use super::{
    line_range::LineRange,
    multipart::{Form, Piece},
    pattern::Pattern,
    range::Range,
};

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
    let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
    let mut form = Form::new(&content_type).ok_or_else(|| format!("{boundary:?} is too long"))?;
    let mut parts: Vec<Part> = Vec::new();
    for piece in pieces {
        form.feed(Bytes::copy_from_slice(piece));
        while let Some(piece) = form.next().map_err(|error| error.to_string())? {
            match (piece, parts.last_mut()) {
                (Piece::Begin(name), _) => parts.push((name, Vec::new())),
                (Piece::Content(bytes), Some((_, content))) => content.extend_from_slice(&bytes),
                (Piece::Content(_) | Piece::Complete, _) => {}
            }
        }
    }
    form.finish().map_err(|error| error.to_string())?;
    Ok(parts)
}

/// Whether a name is as a pattern wants it.
pub fn pattern(pattern: &str, name: &str) -> Result<bool, String> {
    let pattern = Pattern::parse(pattern).map_err(|error| error.to_string())?;
    Ok(pattern.matches(name))
}
