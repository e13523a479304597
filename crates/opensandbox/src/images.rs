//! Images on the server's machine. An extension: not every server has these calls.

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::stream;
use http::{HeaderValue, Method, header};
use osb_api::images::{
    CollectImagesResponse, Image, ImportImagesResponse, ListImagesQuery, ListImagesResponse,
    PullImageRequest, PushImageRequest, TagImageRequest,
};
use percent_encoding::utf8_percent_encode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{
    ClientError, Download, ImageEvents, Lifecycle,
    lifecycle::ENCODED,
    transport::{self, Call, Chunks},
};

/// How much of an archive is read at once.
const PIECE: usize = 256 << 10;

/// Some calls answer when they are done, and that may take any time. Whether the other side still
/// lives is found out by the connection.
const AS_LONG_AS_IT_TAKES: Duration = Duration::MAX;

/// Client of the server's images: has them come and go, and says what there is.
///
/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Images {
    lifecycle: Lifecycle,
}

/// What an archive is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchiveFormat {
    /// A layout of the OCI.
    #[default]
    Oci,
    /// The same, and what `docker load` looks for beside it.
    Docker,
}

impl ArchiveFormat {
    fn word(self) -> &'static str {
        match self {
            Self::Oci => "oci",
            Self::Docker => "docker",
        }
    }
}

impl Lifecycle {
    /// A client of the server's images.
    pub fn images(&self) -> Images {
        Images { lifecycle: self.clone() }
    }
}

impl Images {
    /// One page of images, in the order in which they came, and what all take together.
    pub async fn list(&self, query: &ListImagesQuery) -> Result<ListImagesResponse, ClientError> {
        let path = format!("/images?page={}&pageSize={}", query.page, query.page_size);
        self.fetch(self.call("list images", Method::GET, &path)).await
    }

    /// The image with this name or digest.
    pub async fn inspect(&self, name: &str) -> Result<Image, ClientError> {
        self.fetch(self.call("look up an image", Method::GET, &named("/images/inspect", name)))
            .await
    }

    /// Gets an image from a registry. Dropping the events gives the pull up.
    pub async fn pull(&self, request: &PullImageRequest) -> Result<ImageEvents, ClientError> {
        const DOING: &str = "pull an image";
        self.follow(self.call(DOING, Method::POST, "/images/pull").json(request)?).await
    }

    /// Gives an image to a registry. Dropping the events gives the push up.
    pub async fn push(&self, request: &PushImageRequest) -> Result<ImageEvents, ClientError> {
        const DOING: &str = "push an image";
        self.follow(self.call(DOING, Method::POST, "/images/push").json(request)?).await
    }

    /// Takes in the images of an archive, which is never held whole. They get `name`, or the names
    /// that the archive has for them.
    pub async fn import(
        &self,
        name: Option<&str>,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ImportImagesResponse, ClientError> {
        let path =
            name.map_or_else(|| "/images/import".to_owned(), |name| named("/images/import", name));
        let call = self.call("import an image", Method::POST, &path);
        self.fetch(upload(call, content)).await
    }

    /// The same with what `reader` has; `progress` is told how many bytes have been taken so far.
    pub async fn import_from(
        &self,
        name: Option<&str>,
        reader: impl AsyncRead + Send + Unpin + 'static,
        progress: impl FnMut(u64) + Send + 'static,
    ) -> Result<ImportImagesResponse, ClientError> {
        self.import(name, pieces(reader, progress)).await
    }

    /// An image as an archive.
    pub async fn export(&self, name: &str, format: ArchiveFormat) -> Result<Download, ClientError> {
        const DOING: &str = "export an image";
        let path = format!("{}&format={}", named("/images/export", name), format.word());
        let call = self.call(DOING, Method::GET, &path);
        let answer = self.lifecycle.transport.send(call).await?;
        let dead_after = self.lifecycle.connection().dead_after;
        Ok(Download::new(Chunks::new(DOING, answer.into_body(), dead_after)))
    }

    /// Writes an image as an archive, and returns how many bytes it has.
    pub async fn export_to(
        &self,
        name: &str,
        format: ArchiveFormat,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64, ClientError> {
        let wrong = |error: io::Error| ClientError::Broken {
            doing: "write an archive",
            source: error.into(),
        };
        let mut download = self.export(name, format).await?;
        let mut written = 0;
        while let Some(piece) = download.next().await? {
            writer.write_all(&piece).await.map_err(wrong)?;
            written += piece.len() as u64;
        }
        writer.flush().await.map_err(wrong)?;
        Ok(written)
    }

    /// Gives an image another name.
    pub async fn tag(&self, request: &TagImageRequest) -> Result<(), ClientError> {
        let call = self.call("name an image", Method::POST, "/images/tag").json(request)?;
        self.lifecycle.transport.settle(call).await
    }

    /// Takes a name away, and the image with its last one, unless something stands on it. By digest,
    /// all names go.
    pub async fn remove(&self, name: &str) -> Result<(), ClientError> {
        let mut call = self.call("remove an image", Method::DELETE, &named("/images", name));
        call.within = AS_LONG_AS_IT_TAKES;
        self.lifecycle.transport.settle(call).await
    }

    /// Removes what no image needs, and images that nobody does.
    pub async fn collect(&self) -> Result<CollectImagesResponse, ClientError> {
        let mut call = self.call("collect images", Method::POST, "/images/gc");
        call.within = AS_LONG_AS_IT_TAKES;
        self.fetch(call).await
    }

    /// Forgets what builds left for the next ones: the next build does everything anew.
    pub async fn forget_builds(&self) -> Result<(), ClientError> {
        let mut call = self.call("forget earlier builds", Method::DELETE, "/images/build");
        call.within = AS_LONG_AS_IT_TAKES;
        self.lifecycle.transport.settle(call).await
    }

    /// Builds an image. `archive` is as [`osb_api::images::BuildRequest`] says, and is sent while it
    /// is being made. Dropping the events gives the build up.
    pub async fn build(
        &self,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ImageEvents, ClientError> {
        let call = self.call("build an image", Method::POST, "/images/build");
        self.follow(upload(call, archive)).await
    }

    fn call(&self, doing: &'static str, method: Method, path: &str) -> Call {
        self.lifecycle.call(doing, method, path)
    }

    async fn fetch<T: serde::de::DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        self.lifecycle.transport.fetch(call).await
    }

    async fn follow(&self, mut call: Call) -> Result<ImageEvents, ClientError> {
        let doing = call.doing;
        call.headers.insert(header::ACCEPT, HeaderValue::from_static("application/x-ndjson"));
        let answer = self.lifecycle.transport.send(call).await?;
        // A step of a build may say nothing for hours.
        let chunks = Chunks::new(doing, answer.into_body(), AS_LONG_AS_IT_TAKES);
        Ok(ImageEvents::new(doing, chunks))
    }
}

fn named(path: &str, name: &str) -> String {
    format!("{path}?name={}", utf8_percent_encode(name, ENCODED))
}

fn upload(mut call: Call, content: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Call {
    call.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    call.body = transport::streamed(content);
    // The answer begins only after the last byte went out.
    call.within = AS_LONG_AS_IT_TAKES;
    call
}

/// What a reader has, piece by piece.
fn pieces(
    reader: impl AsyncRead + Send + Unpin + 'static,
    progress: impl FnMut(u64) + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (reader, progress, 0_u64);
    stream::try_unfold(state, async |(mut reader, mut progress, taken)| {
        let mut buffer = BytesMut::with_capacity(PIECE);
        let count = reader.read_buf(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        let taken = taken + count as u64;
        progress(taken);
        Ok(Some((buffer.freeze(), (reader, progress, taken))))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use osb_api::images::ImageEvent;

    use super::*;
    use crate::testkit::{Reply, ScriptedServer, Then, reply, stream_reply};

    const IMAGE: &str = r#"{"digest":"sha256:a","names":["debian:bookworm"],"size":1,"unpacked":2,"own":3,"layers":1,"usedBy":0,"config":{"os":"linux","architecture":"amd64"}}"#;
    const LAST: &str = "{\"type\":\"image\",\"digest\":\"sha256:a\",\"names\":[\"x\"]}\n";

    fn answer(request: &http::Request<Bytes>) -> Reply {
        match (request.method().as_str(), request.uri().path()) {
            ("GET", "/v1/images") => reply(
                200,
                format!(
                    r#"{{"items":[{IMAGE}],"usage":{{"images":1,"blobs":1,"layers":2,"shared":0,"unused":0}},"pagination":{{"page":1,"pageSize":20,"totalItems":1,"totalPages":1,"hasNextPage":false}}}}"#
                ),
            ),
            ("GET", "/v1/images/inspect") => reply(200, IMAGE),
            ("GET", "/v1/images/export") => stream_reply(["ab", "cd"], Then::End),
            ("POST", "/v1/images/import") => {
                reply(200, r#"{"items":[{"digest":"sha256:a","names":["x"]}]}"#)
            }
            ("POST", "/v1/images/gc") => {
                reply(200, r#"{"images":1,"layers":2,"blobs":3,"bytes":4}"#)
            }
            ("POST", "/v1/images/tag") | ("DELETE", _) => reply(204, ""),
            _ => stream_reply(["{\"type\":\"resolving\",\"name\":\"x\"}\n", LAST], Then::End),
        }
    }

    async fn start() -> (ScriptedServer, Images) {
        let server = ScriptedServer::start(answer).await;
        let images = Lifecycle::new(server.connection().api_key("k").unwrap()).images();
        (server, images)
    }

    #[tokio::test]
    async fn each_call_has_its_path() {
        let (server, images) = start().await;
        let page = images.list(&ListImagesQuery::default()).await.unwrap();
        assert_eq!((page.items.len(), page.usage.layers), (1, 2));
        assert_eq!(images.inspect("a/b:c").await.unwrap(), page.items[0]);
        let tag = TagImageRequest { name: "x".to_owned(), tag: "y".to_owned() };
        images.tag(&tag).await.unwrap();
        images.remove("sha256:a").await.unwrap();
        assert_eq!(images.collect().await.unwrap().bytes, 4);
        images.forget_builds().await.unwrap();
        let mut archive = Vec::new();
        let bytes = images.export_to("x", ArchiveFormat::Docker, &mut archive).await.unwrap();
        assert_eq!((bytes, &archive[..]), (4, &b"abcd"[..]));
        assert_eq!(
            server.calls(),
            [
                "GET /v1/images?page=1&pageSize=20",
                "GET /v1/images/inspect?name=a%2Fb%3Ac",
                "POST /v1/images/tag",
                "DELETE /v1/images?name=sha256%3Aa",
                "POST /v1/images/gc",
                "DELETE /v1/images/build",
                "GET /v1/images/export?name=x&format=docker",
            ]
        );
    }

    #[tokio::test]
    async fn an_archive_is_sent_piece_by_piece() {
        let (server, images) = start().await;
        let told = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&told);
        let archive = vec![7; 3 * PIECE + 5];
        let reader = io::Cursor::new(archive.clone());
        let progress = move |bytes| seen.store(bytes, Ordering::Relaxed);
        let imported = images.import_from(Some("x:1"), reader, progress).await.unwrap();
        assert_eq!(imported.items[0].digest, "sha256:a");
        assert_eq!(told.load(Ordering::Relaxed), archive.len() as u64);
        assert_eq!(server.seen()[0].body().as_ref(), archive);
        let piece = Ok(Bytes::from_static(b"z"));
        images.import(None, stream::iter([piece])).await.unwrap();
        assert_eq!(server.calls(), ["POST /v1/images/import?name=x%3A1", "POST /v1/images/import"]);
    }

    #[tokio::test]
    async fn pulls_pushes_and_builds_are_followed() {
        let (server, images) = start().await;
        let pull = PullImageRequest { name: "x".to_owned(), auth: None, platform: None };
        let push = PushImageRequest { name: "x".to_owned(), to: None, auth: None };
        let archive = stream::iter([Ok(Bytes::from_static(b"tar"))]);
        for mut events in [
            images.pull(&pull).await.unwrap(),
            images.push(&push).await.unwrap(),
            images.build(archive).await.unwrap(),
        ] {
            let first = events.next().await.unwrap();
            assert_eq!(first, Some(ImageEvent::Resolving { name: "x".to_owned() }));
            let image = events.finish(|_| ()).await.unwrap();
            assert_eq!(image.digest, "sha256:a");
        }
        let paths = ["/v1/images/pull", "/v1/images/push", "/v1/images/build"];
        assert_eq!(server.calls(), paths.map(|path| format!("POST {path}")));
        assert_eq!(server.seen()[0].body().as_ref(), br#"{"name":"x"}"#);
        assert_eq!(server.seen()[2].body().as_ref(), b"tar");
    }
}
