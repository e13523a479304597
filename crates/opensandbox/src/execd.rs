use std::{collections::BTreeMap, io, time::Duration};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use osb_api::{
    execd::{FileInfo, RunCommand, UploadMetadata},
    lifecycle::Endpoint,
};
use percent_encoding::utf8_percent_encode;

use crate::{
    ClientError, Connection, Download, Events,
    lifecycle::ENCODED,
    transport::{self, Call, Chunks, Transport},
    upload,
};

/// Client of the daemon in a sandbox: runs commands and moves files.
///
/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Execd {
    transport: Transport,
    base: String,
    headers: HeaderMap,
    answer_within: Duration,
    dead_after: Duration,
}

impl Execd {
    pub(crate) fn new(
        connection: &Connection,
        transport: Transport,
        endpoint: &Endpoint,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            transport,
            base: base(endpoint),
            headers: headers(endpoint)?,
            answer_within: connection.answer_within,
            dead_after: connection.dead_after,
        })
    }

    /// Asks for a sign of life.
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.transport.settle(self.call("ping a sandbox", Method::GET, "/ping")).await
    }

    /// Starts a command and returns its events as they happen.
    ///
    /// Dropping the events breaks off the connection, and with that execd kills the command.
    pub async fn run(&self, command: &RunCommand) -> Result<Events, ClientError> {
        const DOING: &str = "run a command";
        let mut call = self.call(DOING, Method::POST, "/command").json(command)?;
        call.headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let answer = self.transport.send(call).await?;
        Ok(Events::new(Chunks::new(DOING, answer.into_body(), self.dead_after)))
    }

    /// Stops a command, gently at first. The id is that of [`Events::id`].
    pub async fn interrupt(&self, command_id: &str) -> Result<(), ClientError> {
        let path = format!("/command?id={}", utf8_percent_encode(command_id, ENCODED));
        self.transport.settle(self.call("interrupt a command", Method::DELETE, &path)).await
    }

    /// Writes one file, with content of any size.
    pub async fn upload(
        &self,
        metadata: &UploadMetadata,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), ClientError> {
        const DOING: &str = "upload a file";
        let mut call = self.call(DOING, Method::POST, "/files/upload");
        let form = upload::form(metadata, content)?;
        call.headers.insert(header::CONTENT_TYPE, form.content_type);
        call.body = form.body;
        // The answer begins only after the last byte went out, and that may take any time.
        call.within = Duration::MAX;
        self.transport.settle(call).await
    }

    /// Reads one file, of any size.
    pub async fn download(&self, path: &str) -> Result<Download, ClientError> {
        const DOING: &str = "download a file";
        let url = format!("/files/download?path={}", utf8_percent_encode(path, ENCODED));
        let answer = self.transport.send(self.call(DOING, Method::GET, &url)).await?;
        Ok(Download::new(Chunks::new(DOING, answer.into_body(), self.dead_after)))
    }

    /// What is known about each of these paths; fails if one does not exist.
    pub async fn info(&self, paths: &[String]) -> Result<BTreeMap<String, FileInfo>, ClientError> {
        let url = format!("/files/info?{}", path_query(paths));
        self.transport.fetch(self.call("look up files", Method::GET, &url)).await
    }

    /// Removes files. Those that do not exist count as removed.
    pub async fn delete_files(&self, paths: &[String]) -> Result<(), ClientError> {
        let url = format!("/files?{}", path_query(paths));
        self.transport.settle(self.call("remove files", Method::DELETE, &url)).await
    }

    fn call(&self, doing: &'static str, method: Method, path: &str) -> Call {
        Call {
            doing,
            method,
            url: format!("{}{path}", self.base),
            headers: self.headers.clone(),
            body: transport::empty(),
            within: self.answer_within,
        }
    }
}

fn path_query(paths: &[String]) -> String {
    let pairs: Vec<_> =
        paths.iter().map(|path| format!("path={}", utf8_percent_encode(path, ENCODED))).collect();
    pairs.join("&")
}

/// Where the paths of an endpoint begin.
pub(crate) fn base(endpoint: &Endpoint) -> String {
    format!("http://{}", endpoint.endpoint.trim_end_matches('/'))
}

/// What an endpoint asks its callers for.
pub(crate) fn headers(endpoint: &Endpoint) -> Result<HeaderMap, ClientError> {
    const DOING: &str = "look up an endpoint";
    let mut headers = HeaderMap::new();
    for (name, value) in endpoint.headers.iter().flatten() {
        let name: HeaderName =
            name.parse().map_err(|error| ClientError::protocol(DOING, &error))?;
        let mut value: HeaderValue =
            value.parse().map_err(|error| ClientError::protocol(DOING, &error))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use osb_api::{execd::Mode, headers};

    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    fn execd(server: &ScriptedServer) -> Execd {
        let connection = server.connection().api_key("k").unwrap();
        let endpoint = Endpoint {
            endpoint: format!("{}/p", server.address()),
            headers: Some([("X-EXECD-ACCESS-TOKEN".to_owned(), "t".to_owned())].into()),
        };
        Execd::new(&connection, Transport::new(), &endpoint).unwrap()
    }

    #[tokio::test]
    async fn calls_carry_the_token_and_never_the_key() {
        let server = ScriptedServer::start(|_| reply(200, "")).await;
        let execd = execd(&server);
        execd.ping().await.unwrap();
        execd.delete_files(&["/a b".to_owned(), "/c".to_owned()]).await.unwrap();
        execd.interrupt("9f").await.unwrap();
        assert_eq!(
            server.calls(),
            ["GET /p/ping", "DELETE /p/files?path=%2Fa%20b&path=%2Fc", "DELETE /p/command?id=9f"]
        );
        for request in server.seen() {
            assert_eq!(request.headers()[headers::EXECD_TOKEN], "t");
            assert!(!request.headers().contains_key(headers::API_KEY));
        }
    }

    #[tokio::test]
    async fn an_upload_is_a_form_with_metadata_before_content() {
        let server = ScriptedServer::start(|_| reply(200, "")).await;
        let metadata = UploadMetadata {
            path: "/a".to_owned(),
            mode: Some(Mode::from_bits(0o644)),
            ..UploadMetadata::default()
        };
        let content = stream::iter(["one", "two"].map(|part| Ok(Bytes::from(part))));
        execd(&server).upload(&metadata, content).await.unwrap();
        let request = server.seen().remove(0);
        let kind = request.headers()[header::CONTENT_TYPE].to_str().unwrap();
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        assert_eq!(
            body.replace(boundary, "B"),
            "--B\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n\
             Content-Type: application/json\r\n\r\n{\"path\":\"/a\",\"mode\":644}\r\n\
             --B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
             Content-Type: application/octet-stream\r\n\r\nonetwo\r\n--B--\r\n"
        );
    }

    #[tokio::test]
    async fn a_download_arrives_whole() {
        let server = ScriptedServer::start(|_| reply(200, "content")).await;
        let bytes = execd(&server).download("/x").await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, "content");
        assert_eq!(server.calls(), ["GET /p/files/download?path=%2Fx"]);
    }
}
