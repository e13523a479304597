use std::{fmt::Write as _, io};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use http::HeaderValue;
use osb_api::execd::UploadMetadata;

use crate::{
    ClientError,
    transport::{self, Body},
};

/// A request body with one file in it.
pub(crate) struct Form {
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Body,
}

/// The file as `multipart/form-data`: its metadata, then its content, which is never held whole.
pub(crate) fn form(
    metadata: &UploadMetadata,
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Result<Form, ClientError> {
    const DOING: &str = "upload a file";
    let boundary = boundary()?;
    let metadata =
        serde_json::to_string(metadata).map_err(|error| ClientError::protocol(DOING, &error))?;
    let head = format!(
        "--{boundary}\r\n\
         Content-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n{metadata}\r\n\
         --{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let content_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"))
        .map_err(|error| ClientError::protocol(DOING, &error))?;
    let edge = |text: String| stream::iter([Ok(Bytes::from(text))]);
    Ok(Form {
        content_type,
        body: transport::streamed(edge(head).chain(content).chain(edge(tail))),
    })
}

/// A line that no file contains but by an accident of one in 2^128.
fn boundary() -> Result<String, ClientError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| ClientError::Broken { doing: "upload a file", source: error.into() })?;
    let mut text = "osb-".to_owned();
    for byte in random {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
    }
    Ok(text)
}
