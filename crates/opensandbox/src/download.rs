use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::stream;

use crate::{ClientError, transport::Chunks};

/// The content of a file on its way here.
#[derive(Debug)]
pub struct Download {
    chunks: Chunks,
}

impl Download {
    pub(crate) fn new(chunks: Chunks) -> Self {
        Self { chunks }
    }

    /// The next piece, or nothing at the end. Dropping this future loses no bytes.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.chunks.next().await
    }

    /// The rest, all in memory.
    pub async fn bytes(mut self) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// The rest, piece by piece.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, ClientError>> + Send {
        stream::try_unfold(self, async |mut download| {
            Ok(download.next().await?.map(|chunk| (chunk, download)))
        })
    }
}
