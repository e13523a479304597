//! A client that speaks WebSocket.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use osb_api::execd::{PtyServerFrame, channels};
use serde_json::Value;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, frame::coding::CloseCode},
    },
};

use crate::daemon::{Daemon, request};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that has left HTTP.
pub(crate) struct WebSocket(WebSocketStream<TokioIo<Upgraded>>);

/// What a server sends to the client of a terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Output(u8, Vec<u8>),
    Replay(u64, Vec<u8>),
    Frame(PtyServerFrame),
    Close(u16, String),
}

impl WebSocket {
    /// The answer to a request for a WebSocket.
    pub(crate) async fn ask(daemon: &Daemon, path: &str) -> Response<Incoming> {
        let mut asked = request(http::Method::GET, path, "");
        for (name, value) in [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            asked.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        daemon.send(asked).await
    }

    pub(crate) async fn open(daemon: &Daemon, path: &str) -> Self {
        let response = Self::ask(daemon, path).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let accepted = &response.headers()[header::SEC_WEBSOCKET_ACCEPT];
        assert_eq!(accepted, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.0.send(message).await.unwrap();
    }

    pub(crate) async fn text(&mut self, frame: Value) {
        self.send(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn stdin(&mut self, input: impl AsRef<[u8]>) {
        self.send(Message::binary([&[channels::STDIN], input.as_ref()].concat())).await;
    }

    /// The next message, pings left out.
    pub(crate) async fn message(&mut self) -> Message {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.0.next()).await;
            let message = message.expect("a message in time").expect("a message").unwrap();
            if !message.is_ping() && !message.is_pong() {
                return message;
            }
        }
    }

    /// The next message of a terminal.
    pub(crate) async fn heard(&mut self) -> Heard {
        match self.message().await {
            Message::Text(text) => Heard::Frame(serde_json::from_str(&text).unwrap()),
            Message::Binary(bytes) => match bytes.split_first().unwrap() {
                (&channels::REPLAY, rest) => {
                    let (offset, bytes) = rest.split_first_chunk().unwrap();
                    Heard::Replay(u64::from_be_bytes(*offset), bytes.to_vec())
                }
                (&channel, bytes) => Heard::Output(channel, bytes.to_vec()),
            },
            Message::Close(frame) => {
                let frame = frame.unwrap();
                Heard::Close(frame.code.into(), frame.reason.to_string())
            }
            other @ (Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// Collects output until it contains `wanted`.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        let mut said = Vec::new();
        loop {
            let heard = self.heard().await;
            let Heard::Output(_, bytes) = heard else { panic!("{heard:?} after {said:?}") };
            said.extend_from_slice(&bytes);
            let text = String::from_utf8_lossy(&said);
            if text.contains(wanted) {
                return text.into_owned();
            }
        }
    }

    /// The next frame that is not output.
    pub(crate) async fn frame(&mut self) -> PtyServerFrame {
        loop {
            match self.heard().await {
                Heard::Output(..) => {}
                Heard::Frame(frame) => return frame,
                other @ (Heard::Replay(..) | Heard::Close(..)) => panic!("{other:?}"),
            }
        }
    }

    /// Collects output up to the end: all of each channel, and the exit code.
    pub(crate) async fn collect(&mut self) -> (Vec<u8>, Vec<u8>, i32) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exit_code = loop {
            match self.heard().await {
                Heard::Output(channels::STDOUT, bytes) => stdout.extend_from_slice(&bytes),
                Heard::Output(channels::STDERR, bytes) => stderr.extend_from_slice(&bytes),
                Heard::Frame(PtyServerFrame::Exit { exit_code }) => break exit_code,
                other @ (Heard::Output(..)
                | Heard::Replay(..)
                | Heard::Frame(_)
                | Heard::Close(..)) => panic!("{other:?}"),
            }
        };
        assert_eq!(self.heard().await, Heard::Close(CloseCode::Normal.into(), String::new()));
        (stdout, stderr, exit_code)
    }

    pub(crate) async fn close(mut self) {
        self.0.close(None).await.unwrap();
        while let Some(Ok(_)) = self.0.next().await {}
    }
}
