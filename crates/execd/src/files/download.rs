use std::{
    fs::{File, Metadata},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use futures_core::Stream;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Uri, header, response::Builder};
use osb_sys::fs::PathError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{line_range::LineRange, range::Range, scope::Scope, validators::Validators};
use crate::{error::ApiError, request::Parameters};

/// How much is read at once, and so the most that is held for a slow client.
const CHUNK: u64 = 256 << 10;

const OK: u16 = 200;
const PARTIAL_CONTENT: u16 = 206;
const NOT_MODIFIED: u16 = 304;

/// `GET /files/download`: a file, a range of its bytes, or a range of its lines.
pub(super) async fn download(
    scope: Scope,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let given = parameters.one("path").ok_or_else(|| ApiError::missing_query("path"))?;
    let path = scope.path(given)?;
    let range = headers.get(header::RANGE).map(|value| value.to_str().unwrap_or("bytes="));
    let lines = LineRange::of(&parameters)?;
    if lines.is_some() && range.is_some() {
        return Err(ApiError::invalid("a range of lines and a `Range` header exclude each other"));
    }
    let opened = path.clone();
    let (file, metadata) = scope.run(move || open(&opened)).await?;
    if let Some(lines) = lines {
        let head = Response::builder()
            .status(OK)
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        return reply(head, Body::from_stream(line_chunks(file, lines)));
    }
    let validators = Validators::of(&metadata);
    let mut head = Response::builder().header(header::ETAG, &validators.tag);
    if let Some(modified) = &validators.modified {
        head = head.header(header::LAST_MODIFIED, modified);
    }
    // The kernel's own files claim to be empty and unchanged whatever they hold.
    if metadata.len() > 0 && validators.are_known(&headers) {
        return reply(head.status(NOT_MODIFIED), Body::empty());
    }
    let range = range.filter(|_| validators.allow_range(&headers));
    let head = head
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_DISPOSITION, disposition(&path));
    bytes(file, metadata.len(), range, head).await
}

/// Opens a regular file.
fn open(path: &Path) -> Result<(File, Metadata), ApiError> {
    // Without waiting, should the path be a pipe that nobody writes to.
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|source| PathError::new("open", path, source))?;
    let metadata = file.metadata().map_err(|source| PathError::new("look at", path, source))?;
    if !metadata.is_file() {
        return Err(ApiError::form(format!("{} is not a regular file", path.display())));
    }
    Ok((file, metadata))
}

async fn bytes(
    mut file: File,
    size: u64,
    range: Option<&str>,
    head: Builder,
) -> Result<Response, ApiError> {
    match range.map_or(Range::Whole, |header| Range::parse(header, size)) {
        Range::Unsatisfiable => Err(ApiError::unsatisfiable(range.unwrap_or_default(), size)),
        Range::Part { start, end } => {
            file.seek(SeekFrom::Start(start)).map_err(|error| ApiError::runtime(&error))?;
            let head = head
                .status(PARTIAL_CONTENT)
                .header(header::CONTENT_LENGTH, end - start)
                .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1));
            reply(head, Body::from_stream(chunks(file, end - start)))
        }
        Range::Whole if size > 0 => {
            let head = head.status(OK).header(header::CONTENT_LENGTH, size);
            reply(head, Body::from_stream(chunks(file, size)))
        }
        // The kernel's own files claim to be empty whatever they hold.
        Range::Whole => match read(file, CHUNK).await {
            Err(error) => Err(ApiError::runtime(&error)),
            Ok((_, first)) if first.is_empty() => {
                reply(head.status(OK).header(header::CONTENT_LENGTH, 0), Body::empty())
            }
            Ok((file, first)) => {
                let rest = chunks(file, u64::MAX);
                let whole = stream::StreamExt::chain(stream::iter([Ok(first)]), rest);
                reply(head.status(OK), Body::from_stream(whole))
            }
        },
    }
}

fn reply(head: Builder, body: Body) -> Result<Response, ApiError> {
    head.body(body).map_err(|error| ApiError::runtime(&error))
}

/// The next `length` bytes of a file, or what there is of them.
fn chunks(file: File, length: u64) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((file, length), |(file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let (file, chunk) = read(file, left.min(CHUNK)).await?;
        let left = left - chunk.len() as u64;
        Ok((!chunk.is_empty()).then_some((chunk, (file, left))))
    })
}

/// The lines of a file that were asked for.
fn line_chunks(file: File, lines: LineRange) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(Some((file, lines)), |state| async move {
        let Some((mut file, mut lines)) = state else { return Ok(None) };
        let mut picked = Vec::new();
        while !lines.is_done() {
            let (same_file, chunk) = read(file, CHUNK).await?;
            file = same_file;
            if chunk.is_empty() {
                break;
            }
            lines.feed(&chunk, &mut picked);
            if !picked.is_empty() {
                return Ok(Some((Bytes::from(picked), Some((file, lines)))));
            }
        }
        lines.finish(&mut picked);
        Ok((!picked.is_empty()).then(|| (Bytes::from(picked), None)))
    })
}

/// Reads up to `length` bytes; fewer only at the end of the file.
async fn read(mut file: File, length: u64) -> io::Result<(File, Bytes)> {
    tokio::task::spawn_blocking(move || {
        let mut chunk = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        (&mut file).take(length).read_to_end(&mut chunk)?;
        Ok((file, Bytes::from(chunk)))
    })
    .await?
}

/// Names the file for whoever saves it.
fn disposition(path: &Path) -> HeaderValue {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    let value = if name.bytes().all(plain) {
        format!("attachment; filename=\"{name}\"")
    } else {
        let encoded = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        format!("attachment; filename=\"{encoded}\"; filename*=UTF-8''{encoded}")
    };
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_plain_is_encoded() {
        let name = |path| disposition(Path::new(path));
        assert_eq!(name("/tmp/a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(
            name("/tmp/é\".txt"),
            "attachment; filename=\"%C3%A9%22%2Etxt\"; filename*=UTF-8''%C3%A9%22%2Etxt"
        );
    }
}
