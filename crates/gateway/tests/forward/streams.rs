use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use crate::site::{Answer, Site, answer, channel, settle, text};

#[tokio::test]
async fn events_arrive_one_by_one() {
    let site = Site::new();
    let (events, body) = channel();
    let body = std::sync::Mutex::new(Some(body));
    let body = Arc::new(body);
    let id = site
        .service(move |_| {
            let body: Answer = body.lock().unwrap().take().expect("one request");
            async { Response::builder().header("x-accel-buffering", "no").body(body).unwrap() }
        })
        .await;
    let request = Request::get("/events").body(text("")).unwrap();
    // The head is here although no event is.
    let mut stream = site.forward(id, request).await.unwrap().into_body();
    for number in 0..10 {
        let event = Bytes::from(format!("data: {number}\n\n"));
        assert!(poll_once(&mut stream).await.is_none(), "an event came before it was sent");
        events.send(event.clone()).await.unwrap();
        let frame = stream.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    drop(events);
    assert!(stream.frame().await.is_none());
}

async fn poll_once(stream: &mut osb_gateway::Body) -> Option<()> {
    settle().await;
    let mut frame = pin!(stream.frame());
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(frame.as_mut().poll(cx).is_ready().then_some(()))
    })
    .await
}

#[tokio::test]
async fn large_bodies_stream_in_bounded_memory() {
    const PIECE: usize = 64 * 1024;
    const PIECES: u64 = 1024;
    const MOST: u64 = 4 * 1024 * 1024;

    let site = Site::new();
    let id = site
        .service(async |request| {
            let echo = request.into_body().map_frame(|frame| frame);
            Response::new(echo.map_err(|error| panic!("{error}")).boxed_unsync())
        })
        .await;
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let pieces = futures_util::stream::unfold(0, move |number| {
        let counter = Arc::clone(&counter);
        async move {
            if number == PIECES {
                return None;
            }
            counter.fetch_add(PIECE as u64, Ordering::Relaxed);
            let byte = u8::try_from(number % 256).unwrap();
            let piece = Bytes::from(vec![byte; PIECE]);
            Some((Ok::<_, std::io::Error>(Frame::data(piece)), number + 1))
        }
    });
    let request = Request::post("/echo").body(StreamBody::new(Box::pin(pieces))).unwrap();
    let mut echo = site.forward(id, request).await.unwrap().into_body();

    // Nobody reads, so the sender must come to a halt.
    settle().await;
    let ahead = sent.load(Ordering::Relaxed);
    assert!(ahead <= MOST, "{ahead} bytes were taken from the sender before anybody read");

    let mut received = 0;
    while let Some(frame) = echo.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        for (index, byte) in data.iter().enumerate() {
            let piece = (received + index as u64) / PIECE as u64;
            assert_eq!(u64::from(*byte), piece % 256);
        }
        received += data.len() as u64;
        let ahead = sent.load(Ordering::Relaxed) - received;
        assert!(ahead <= MOST, "{ahead} bytes are on the way");
    }
    assert_eq!(received, PIECES * PIECE as u64);
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_has_ended() {
    let site = Site::new();
    let id = site
        .service(async |request| {
            drop(request);
            let mut early = answer("enough");
            *early.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
            early
        })
        .await;
    let (sender, body) = channel();
    let request = Request::post("/").body(body).unwrap();
    sender.send(Bytes::from_static(b"beginning")).await.unwrap();
    let response = site.forward(id, request).await.unwrap();
    assert_eq!(response.status(), 413);
    drop(sender);
}
