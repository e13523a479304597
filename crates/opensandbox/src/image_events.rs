use futures_core::Stream;
use futures_util::stream;
use http::StatusCode;
use osb_api::{
    ErrorBody,
    images::{ImageEvent, ImportedImage},
};

use crate::{ClientError, frames::Frames, transport::Chunks};

/// The largest event that is read: what a pull says of all its layers is in one.
const LARGEST_EVENT: usize = 8 << 20;

/// What is told while an image is pulled, pushed or built, as it happens.
#[derive(Debug)]
pub struct ImageEvents {
    doing: &'static str,
    chunks: Chunks,
    frames: Frames,
    /// The last event came.
    concluded: bool,
    ended: bool,
}

impl ImageEvents {
    pub(crate) fn new(doing: &'static str, chunks: Chunks) -> Self {
        let frames = Frames::new(LARGEST_EVENT);
        Self { doing, chunks, frames, concluded: false, ended: false }
    }

    /// The next event, or nothing after the last, which is `Image` or `Error`. Kinds that this
    /// version does not know are skipped. Dropping this future loses no event.
    ///
    /// A stream that ends before its last event is an error.
    pub async fn next(&mut self) -> Result<Option<ImageEvent>, ClientError> {
        loop {
            while let Some(frame) = self.frames.pop() {
                if self.concluded {
                    return Ok(None);
                }
                if let Some(event) = self.read(&frame)? {
                    self.concluded = event.is_last();
                    return Ok(Some(event));
                }
            }
            if self.concluded {
                return Ok(None);
            }
            if self.ended {
                return Err(self.broken_off());
            }
            let taken = if let Some(chunk) = self.chunks.next().await? {
                self.frames.push(&chunk)
            } else {
                self.ended = true;
                self.frames.finish()
            };
            taken.map_err(|error| ClientError::protocol(self.doing, &error))?;
        }
    }

    /// Tells `each` of every event that is left, and returns the image. What the server says went
    /// wrong is a refusal like any other.
    pub async fn finish(
        &mut self,
        mut each: impl FnMut(&ImageEvent),
    ) -> Result<ImportedImage, ClientError> {
        while let Some(event) = self.next().await? {
            each(&event);
            if let ImageEvent::Image(image) = event {
                return Ok(image);
            } else if let ImageEvent::Error(error) = event {
                return Err(refusal(error));
            }
        }
        Err(self.broken_off())
    }

    /// The rest of the events.
    pub fn into_stream(self) -> impl Stream<Item = Result<ImageEvent, ClientError>> + Send {
        stream::try_unfold(self, async |mut events| {
            Ok(events.next().await?.map(|event| (event, events)))
        })
    }

    fn read(&self, frame: &[u8]) -> Result<Option<ImageEvent>, ClientError> {
        let wrong = match serde_json::from_slice(frame) {
            Ok(event) => return Ok(Some(event)),
            Err(wrong) => wrong,
        };
        if let Ok(error) = serde_json::from_slice::<ErrorBody>(frame) {
            return Err(refusal(error));
        }
        match serde_json::from_slice::<serde_json::Value>(frame) {
            Ok(value) if value.get("type").is_some_and(|kind| !is_known(kind)) => Ok(None),
            _ => Err(ClientError::protocol(self.doing, &wrong)),
        }
    }

    fn broken_off(&self) -> ClientError {
        ClientError::Broken {
            doing: self.doing,
            source: "the stream ended before it said how it ended".into(),
        }
    }
}

/// Whether events of this kind have a shape that is known here.
fn is_known(kind: &serde_json::Value) -> bool {
    const KNOWN: [&str; 11] = [
        "resolving",
        "pulling",
        "pushing",
        "warning",
        "began",
        "cached",
        "output",
        "done",
        "failed",
        "image",
        "error",
    ];
    kind.as_str().is_some_and(|kind| KNOWN.contains(&kind))
}

fn refusal(ErrorBody { code, message }: ErrorBody) -> ClientError {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ClientError::Api { status, code, message, request_id: None }
}

#[cfg(test)]
mod tests {
    use osb_api::images::PullImageRequest;

    use super::*;
    use crate::{
        Lifecycle,
        testkit::{ScriptedServer, Then, stream_reply},
    };

    const RESOLVING: &str = "{\"type\":\"resolving\",\"name\":\"x\"}\n";
    const IMAGE: &str = "{\"type\":\"image\",\"digest\":\"sha256:a\",\"names\":[]}\n";

    async fn pull(pieces: &'static [&'static str], then: Then) -> (ScriptedServer, ImageEvents) {
        let server =
            ScriptedServer::start(move |_| stream_reply(pieces.iter().copied(), then)).await;
        let images = Lifecycle::new(server.connection()).images();
        let request = PullImageRequest { name: "x".to_owned(), auth: None, platform: None };
        let events = images.pull(&request).await.unwrap();
        (server, events)
    }

    #[tokio::test]
    async fn nothing_is_waited_for_after_the_last_event() {
        let (_server, mut events) = pull(&[RESOLVING, IMAGE], Then::Hang).await;
        let mut seen = 0;
        let image = events.finish(|_| seen += 1).await.unwrap();
        assert_eq!((image.digest.as_str(), seen), ("sha256:a", 2));
        assert_eq!(events.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_went_wrong_is_a_refusal() {
        let error = "{\"type\":\"error\",\"code\":\"A::B\",\"message\":\"no such image\"}\n";
        for error in [error, "{\"code\":\"A::B\",\"message\":\"no such image\"}\n"] {
            let pieces = Vec::leak(vec![RESOLVING, error]);
            let (_server, mut events) = pull(pieces, Then::End).await;
            let error = events.finish(|_| ()).await.unwrap_err();
            assert_eq!(error.to_string(), "no such image (A::B)");
        }
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_an_error() {
        let (_server, mut events) = pull(&[RESOLVING], Then::End).await;
        let error = events.finish(|_| ()).await.unwrap_err();
        assert!(matches!(error, ClientError::Broken { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn new_kinds_are_skipped_and_nonsense_is_not() {
        const LATER: &str = "\n{\"type\":\"later\",\"x\":1}\n\n";
        let (_server, mut events) = pull(&[LATER, IMAGE], Then::End).await;
        assert!(matches!(events.next().await.unwrap(), Some(ImageEvent::Image(_))));
        for nonsense in ["{\"type\":\"done\"}\n", "{}\n", "{x\n"] {
            let (_server, mut events) = pull(Vec::leak(vec![nonsense]), Then::End).await;
            let error = events.next().await.unwrap_err();
            assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        }
    }
}
