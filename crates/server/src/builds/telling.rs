//! What is told of a build while somebody reads it.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture};
use osb_api::images::{ImageEvent, ImportedImage, OutputStream};
use osb_build::{Event, StepId, Stream as From};
use osb_registry::{Digest, Reference};
use tokio::{sync::watch, time::timeout};

use crate::error::ApiError;

/// What waits to be read. Whoever tells much waits in between, so that it does not grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Telling(Arc<Mutex<VecDeque<ImageEvent>>>);

impl Telling {
    pub(super) fn tell(&self, event: ImageEvent) {
        self.lock().push_back(event);
    }

    /// All that waits, each in a line.
    fn take(&self) -> Option<Bytes> {
        let mut lines = Vec::new();
        for event in self.lock().drain(..) {
            serde_json::to_writer(&mut lines, &event).ok();
            lines.push(b'\n');
        }
        (!lines.is_empty()).then(|| lines.into())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ImageEvent>> {
        lock(&self.0)
    }
}

/// How long a reader may leave lying what it was told.
const PATIENCE: Duration = Duration::from_mins(1);

/// A build that goes on, until it has ended or somebody ends it.
type Going = Arc<Mutex<Option<BoxFuture<'static, ImageEvent>>>>;

/// The events of a build. It goes on as long as they are read, and ends when this is dropped.
pub(crate) struct Lines {
    telling: Telling,
    build: Going,
    reader: watch::Sender<Reader>,
}

/// What a reader was given last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Nothing: it waits.
    Waits,
    /// Events. It asks for more once there is room for it where it is.
    Has,
}

impl Lines {
    /// The events, and who sees to it that they are read.
    pub(super) fn new(
        telling: Telling,
        build: BoxFuture<'static, ImageEvent>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (reader, reading) = watch::channel(Reader::Waits);
        let build = Arc::new(Mutex::new(Some(build)));
        let overseen = oversee(reading, Arc::clone(&build), telling.clone());
        (Self { telling, build, reader }, overseen)
    }

    fn go_on(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut build = lock(&self.build);
        if let Some(going) = &mut *build
            && let Poll::Ready(last) = going.as_mut().poll(context)
        {
            *build = None;
            self.telling.tell(last);
        }
        match (self.telling.take(), &*build) {
            (Some(lines), _) => Poll::Ready(Some(lines)),
            (None, Some(_)) => Poll::Pending,
            (None, None) => Poll::Ready(None),
        }
    }
}

/// Ends a build whose events nobody takes: it does not go on by itself, and holds its place.
async fn oversee(mut reading: watch::Receiver<Reader>, build: Going, telling: Telling) {
    loop {
        let reader = *reading.borrow_and_update();
        let asked = match reader {
            Reader::Waits => Ok(reading.changed().await),
            Reader::Has => timeout(PATIENCE, reading.changed()).await,
        };
        match asked {
            Ok(Ok(())) => {}
            // It is gone, and the build with it.
            Ok(Err(_)) => return,
            Err(_) => {
                let ended = lock(&build).take();
                if ended.is_some() {
                    telling.tell(failed(ApiError::unread(PATIENCE)));
                }
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Lines {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = self.go_on(context);
        self.reader.send_replace(if told.is_ready() { Reader::Has } else { Reader::Waits });
        told.map(|lines| lines.map(Ok))
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

/// An event of a build as clients see it.
pub(super) fn shown(event: Event) -> ImageEvent {
    let name = |step: StepId| format!("{}.{}", step.stage, step.step);
    let milliseconds =
        |took: std::time::Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match event {
        Event::Warned(warning) => {
            ImageEvent::Warning { line: warning.line as u64, message: warning.what }
        }
        Event::Began { step, title } => ImageEvent::Began { step: name(step), title },
        Event::Cached { step } => ImageEvent::Cached { step: name(step) },
        Event::Said { step, stream, line } => {
            let stream = match stream {
                From::Out => OutputStream::Stdout,
                From::Err => OutputStream::Stderr,
            };
            ImageEvent::Output { step: name(step), stream, text: line }
        }
        Event::Done { step, took } => {
            ImageEvent::Done { step: name(step), milliseconds: milliseconds(took) }
        }
        Event::Failed { step, took } => {
            ImageEvent::Failed { step: name(step), milliseconds: milliseconds(took) }
        }
    }
}

pub(super) fn built(digest: &Digest, names: &[Reference]) -> ImageEvent {
    let names = names.iter().map(Reference::familiar).collect();
    ImageEvent::Image(ImportedImage { digest: digest.to_string(), names })
}

/// Why there is no image. Its causes go to the log.
pub(super) fn failed(error: ApiError) -> ImageEvent {
    ImageEvent::Error(error.into_body())
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_told_is_a_line_each_and_the_end_is_the_last() {
        let telling = Telling::default();
        let told = telling.clone();
        let build = Box::pin(async move {
            told.tell(ImageEvent::Cached { step: "0.1".to_owned() });
            tokio::task::yield_now().await;
            told.tell(ImageEvent::Cached { step: "0.2".to_owned() });
            ImageEvent::Image(ImportedImage { digest: "d".to_owned(), names: Vec::new() })
        });
        let (lines, overseen) = Lines::new(telling, build);
        let lines: Vec<_> = lines.map(Result::unwrap).collect().await;
        // There is nothing left to see to.
        overseen.await;
        let lines: Vec<_> = lines.iter().map(|it| String::from_utf8_lossy(it)).collect();
        assert_eq!(
            lines,
            [
                "{\"type\":\"cached\",\"step\":\"0.1\"}\n",
                "{\"type\":\"cached\",\"step\":\"0.2\"}\n\
                 {\"type\":\"image\",\"digest\":\"d\",\"names\":[]}\n",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_build_whose_events_nobody_takes_ends() {
        let telling = Telling::default();
        let (told, place) = (telling.clone(), Arc::new(()));
        let held = Arc::clone(&place);
        let build = Box::pin(async move {
            // Nothing is told for long, and that is no fault of whoever reads.
            tokio::time::sleep(10 * PATIENCE).await;
            told.tell(ImageEvent::Cached { step: "0.1".to_owned() });
            let last = std::future::pending().await;
            drop(held);
            last
        });
        let (mut lines, overseen) = Lines::new(telling, build);
        tokio::pin!(overseen);
        let first = tokio::select! {
            first = lines.next() => first.unwrap().unwrap(),
            () = &mut overseen => panic!("it ended while somebody waited"),
        };
        assert!(first.starts_with(b"{\"type\":\"cached\""));
        assert_eq!(Arc::strong_count(&place), 2);
        // Nobody asks for more.
        overseen.await;
        assert_eq!(Arc::strong_count(&place), 1, "its place is free");
        let last = lines.next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&last).contains("nothing was read for 60 seconds"));
        assert!(lines.next().await.is_none());
    }
}
