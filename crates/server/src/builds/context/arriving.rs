//! The body of a build while it comes. What is asked for has secrets in it, so that is read before
//! anything is written to a disk.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use osb_api::images::BuildRequest;
use osb_image::{Limits, Parcel};
use osb_sys::memfd;
use tokio::{task::spawn_blocking, time::Instant};
use zeroize::Zeroizing;

use super::{MOST_BYTES, MOST_REQUEST, REQUEST, first, understand, wrong};
use crate::error::ApiError;

/// How long less than this may come: whoever sends a byte now and then holds a place as well.
const SILENCE: Duration = Duration::from_mins(1);
const LEAST: usize = 64 << 10;
/// How much is written at once.
const BATCH: usize = 1 << 20;
/// Archives are made of blocks of this size; the first one describes the first entry.
const BLOCK: usize = 512;
/// How much of a body is kept in memory until it is known what is asked for: the longest request, with
/// all that may be around it.
const MOST_FIRST: usize = 9 << 20;

/// Where a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before all else, and it is taken out of the body.
    Before,
    /// Somewhere in the first bytes, and it is in the body still.
    Within,
}

pub(super) struct Arriving {
    stream: BodyDataStream,
    waiting: BytesMut,
    bytes: u64,
}

impl Arriving {
    pub(super) fn new(body: Body) -> Self {
        Self { stream: body.into_data_stream(), waiting: BytesMut::new(), bytes: 0 }
    }

    /// What is asked for. It is taken out of the body if the archive begins with it in the plainest
    /// way; otherwise it must have no secrets.
    pub(super) async fn request(&mut self) -> Result<(BuildRequest, Place), ApiError> {
        self.have(BLOCK).await?;
        let Some(size) = self.waiting.get(..BLOCK).and_then(size_of_request) else {
            return Ok((self.look().await?, Place::Within));
        };
        if size as u64 > MOST_REQUEST {
            return Err(wrong("it is too long"));
        }
        let whole = BLOCK + size.next_multiple_of(BLOCK);
        self.have(whole).await?;
        let Some(text) = self.waiting.get(BLOCK..BLOCK + size) else {
            return Err(wrong("it breaks off"));
        };
        let text = Zeroizing::new(text.to_vec());
        let taken = whole.min(self.waiting.len());
        self.waiting.iter_mut().take(taken).for_each(|byte| *byte = 0);
        self.waiting.advance(taken);
        Ok((understand(&text)?, Place::Before))
    }

    /// Looks for what is asked for in the first bytes, which may be compressed.
    async fn look(&mut self) -> Result<BuildRequest, ApiError> {
        self.have(MOST_FIRST).await?;
        let bytes = Zeroizing::new(self.waiting.to_vec());
        let looking = spawn_blocking(move || {
            let file = memfd::with_content("build", &bytes).map_err(ApiError::internal)?;
            first(&mut Parcel::open(file, Limits::default()).map_err(ApiError::internal)?)
        });
        let request = looking.await.map_err(ApiError::internal)??;
        if !request.secrets.is_empty() {
            let why = "with secrets in it, it must not be compressed, and nothing may be before it";
            return Err(wrong(why));
        }
        Ok(request)
    }

    /// What is to be written next; nothing once all of it has come.
    pub(super) async fn batch(&mut self) -> Result<Option<Bytes>, ApiError> {
        self.have(BATCH).await?;
        Ok(Some(self.waiting.split().freeze()).filter(|batch| !batch.is_empty()))
    }

    /// Waits until this much is here, or all of it.
    async fn have(&mut self, length: usize) -> Result<(), ApiError> {
        let (mut due, mut come) = (Instant::now() + SILENCE, 0);
        while self.waiting.len() < length {
            let arrived = tokio::time::timeout_at(due, self.stream.next()).await;
            let arrived = arrived.map_err(|_| ApiError::body_too_slow(LEAST, SILENCE))?;
            let Some(chunk) = arrived else { break };
            let chunk =
                chunk.map_err(|error| ApiError::invalid(format!("the body broke off: {error}")))?;
            come += chunk.len();
            if come >= LEAST {
                (due, come) = (Instant::now() + SILENCE, 0);
            }
            self.bytes += chunk.len() as u64;
            if self.bytes > MOST_BYTES {
                let most = usize::try_from(MOST_BYTES).unwrap_or(usize::MAX);
                return Err(ApiError::body_too_large(most));
            }
            self.waiting.extend_from_slice(&chunk);
        }
        Ok(())
    }
}

/// How long the request is, if this block describes it and nothing else.
fn size_of_request(block: &[u8]) -> Option<usize> {
    let name = block.get(..100)?.split(|byte| *byte == 0).next()?;
    let is_file = matches!(block.get(156)?, 0 | b'0');
    let is_it = is_file && [REQUEST.as_bytes(), b"./build.json"].contains(&name);
    let size = std::str::from_utf8(block.get(124..136)?).ok()?;
    let size = size.trim_matches(['\0', ' ']);
    is_it.then(|| usize::from_str_radix(size, 8).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Write as _, path::Path};

    use osb_image::{Entry, Tarball, What};

    use super::*;

    fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
        let (mut tar, extended) = (Tarball::new(Vec::new()), BTreeMap::new());
        for (path, text) in entries {
            let what = What::File { size: text.len() as u64 };
            let (path, mode, modified) = (Path::new(path), 0o644, 0);
            let (user, group, extended) = (0, 0, &extended);
            let entry = Entry { path, what, mode, user, group, modified, extended };
            tar.add(&entry, text.as_bytes()).unwrap();
        }
        tar.finish().unwrap()
    }

    type Read = Result<(BuildRequest, Place), ApiError>;

    async fn read(body: Vec<u8>) -> (Read, Vec<u8>) {
        // In pieces, as networks do it.
        let pieces: Vec<_> =
            body.chunks(300).map(|it| Ok::<_, std::io::Error>(it.to_vec())).collect();
        let mut arriving = Arriving::new(Body::from_stream(futures_util::stream::iter(pieces)));
        let request = arriving.request().await;
        let mut rest = Vec::new();
        while let Ok(Some(batch)) = arriving.batch().await {
            rest.write_all(&batch).unwrap();
        }
        (request, rest)
    }

    /// The same archive in all the ways that are not the plainest.
    fn disguised(plain: &[u8]) -> [Vec<u8>; 3] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(plain).unwrap();
        let zstd = zstd::encode_all(plain, 1).unwrap();
        // A record for all that follows: what it says is of no matter here.
        let mut before = vec![0; 2 * BLOCK];
        before[..11].copy_from_slice(b"@PaxHeader\0");
        before[124..136].copy_from_slice(b"00000000013\0");
        before[156] = b'g';
        before[257..265].copy_from_slice(b"ustar\x0000");
        before[148..156].copy_from_slice(b"        ");
        let sum: u64 = before.iter().map(|byte| u64::from(*byte)).sum();
        before[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        before[BLOCK..BLOCK + 11].copy_from_slice(b"11 a=bcdef\n");
        [gzip.finish().unwrap(), zstd, [before, plain.to_vec()].concat()]
    }

    const SECRET: &str = r#"{"names": ["a"], "secrets": {"token": "aHVudGVyMg=="}}"#;

    #[tokio::test]
    async fn secrets_are_taken_out_before_anything_is_written() {
        let (request, rest) = read(archive(&[("build.json", SECRET), ("context/x", "y")])).await;
        let (request, place) = request.unwrap();
        assert_eq!((request.secrets.len(), place), (1, Place::Before));
        assert_eq!(rest, archive(&[("context/x", "y")]), "the rest is an archive of its own");
    }

    #[tokio::test]
    async fn secrets_that_cannot_be_taken_out_are_refused_before_anything_is_written() {
        for body in disguised(&archive(&[("build.json", SECRET), ("context/x", "y")])) {
            let said = read(body).await.0.unwrap_err().into_body().message;
            assert!(said.contains("with secrets in it, it must not be compressed"), "{said}");
        }
    }

    #[tokio::test]
    async fn without_secrets_all_of_it_stays_as_it_is() {
        let plain = archive(&[("build.json", r#"{"names": ["a"]}"#), ("context/x", "y")]);
        for body in disguised(&plain) {
            let (request, rest) = read(body.clone()).await;
            let (request, place) = request.unwrap();
            assert_eq!((&request.names[..], place), (&["a".to_owned()][..], Place::Within));
            assert_eq!(rest, body);
        }
    }

    #[tokio::test]
    async fn what_does_not_begin_with_a_request_is_refused_before_anything_is_written() {
        let late = archive(&[("context/x", "y"), ("build.json", SECRET)]);
        for body in [late, b"\x1f\x8b not much".to_vec(), Vec::new()] {
            assert!(read(body).await.0.is_err());
        }
    }

    #[tokio::test]
    async fn no_error_tells_a_value() {
        for text in [r#"{"secrets": "271828"}"#, r#"{"secrets": 271828}"#, r#"{"271828": 1}"#] {
            let said = read(archive(&[("build.json", text)])).await.0.unwrap_err();
            let said = said.into_body().message;
            assert!(said.contains("expected") && !said.contains("271828"), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_go_on_is_refused() {
        use axum::response::IntoResponse as _;
        use futures_util::stream;

        let silent = stream::pending::<Result<Vec<u8>, std::io::Error>>().boxed();
        let slow = stream::unfold((), |()| async {
            tokio::time::sleep(SILENCE / 2).await;
            Some((Ok(vec![0]), ()))
        });
        for body in [silent, slow.boxed()] {
            let mut arriving = Arriving::new(Body::from_stream(body));
            let began = Instant::now();
            assert_eq!(arriving.request().await.unwrap_err().into_response().status(), 408);
            assert!(began.elapsed() < 2 * SILENCE);
        }
        // One that is slow, but not that slow.
        let pieces = stream::iter(0..20).then(|_| async {
            tokio::time::sleep(SILENCE / 2).await;
            Ok::<_, std::io::Error>(vec![0; LEAST])
        });
        let mut arriving = Arriving::new(Body::from_stream(pieces));
        while arriving.batch().await.unwrap().is_some() {}
    }

    #[tokio::test]
    async fn one_that_breaks_off_or_makes_no_sense_is_refused() {
        let whole = archive(&[("build.json", &"x".repeat(2000))]);
        assert!(read(whole[..1200].to_vec()).await.0.is_err());
        assert!(read(whole).await.0.is_err());
    }
}
