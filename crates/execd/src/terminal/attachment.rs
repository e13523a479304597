//! The conversation with the client that is attached.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use osb_api::execd::{PtyClientFrame, PtyMode, PtyServerFrame, channels, pty_errors};
use osb_sys::terminal::Size;
use tokio::{
    io::{ReadHalf, WriteHalf},
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use super::session::{Beginning, Next, Place, Refusal};
use crate::{
    daemon::Daemon,
    websocket::{Ended, Message, Reader, Writer, close},
};

/// How often the client is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// How long it may be silent; the answers to our pings are enough.
const HEARD_WITHIN: Duration = Duration::from_mins(1);
/// How long the client's own farewell is awaited, so that ours is not cut off.
const FAREWELL: Duration = Duration::from_secs(5);
/// Answers that wait to be sent. A client that asks more without reading waits.
const ANSWERS: usize = 8;
/// Input is handed on in pieces of this size, so that little of it waits for the program.
const PIECE: usize = 16 << 10;

type Stream = TokioIo<Upgraded>;

/// What the client asks for as it attaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) since: u64,
    pub(super) mode: PtyMode,
}

/// Serves the client until one side has enough.
pub(super) async fn converse(daemon: Arc<Daemon>, place: Place, upgrade: OnUpgrade, wish: Wish) {
    // A client that has left before it came is nobody's loss.
    let Ok(stream) = upgrade.await else { return };
    let (reader, writer) = tokio::io::split(TokioIo::new(stream));
    let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
    let parting = match place.begin(&daemon, wish.since, wish.mode).await {
        Err(refusal) => Parting::from(refusal),
        Ok(beginning) => {
            let (answers, mut asked) = mpsc::channel(ANSWERS);
            tokio::select! {
                parting = send(&mut writer, &place, beginning, &mut asked) => parting,
                parting = receive(&mut reader, &daemon, &place, answers) => parting,
            }
        }
    };
    // Whoever comes next need not wait for the farewell.
    drop(place);
    if parting.say(&mut writer).await.is_ok() {
        // Silence will do as a farewell.
        let _ = timeout(FAREWELL, reader.drain()).await;
    }
}

/// How a conversation ends.
#[derive(Debug)]
enum Parting {
    Exit(i32),
    TakenOver,
    Failed {
        code: &'static str,
        error: String,
    },
    /// The client has said that it goes, or has broken the rules.
    Close(u16),
    /// There is nobody to say anything to.
    Gone,
}

impl From<Refusal> for Parting {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TakenOver => Self::TakenOver,
            Refusal::Removed => Self::Failed {
                code: pty_errors::SESSION_GONE,
                error: "the terminal was removed".to_owned(),
            },
            Refusal::Start(error) => Self::Failed {
                code: pty_errors::START_FAILED,
                error: format!("the program could not be started: {error}"),
            },
        }
    }
}

impl Parting {
    async fn say(self, writer: &mut Writer<WriteHalf<Stream>>) -> io::Result<()> {
        match self {
            Self::Exit(exit_code) => {
                writer.text(&text(&PtyServerFrame::Exit { exit_code })).await?;
                writer.close(close::NORMAL, "").await
            }
            Self::TakenOver => {
                let error = "another client has taken over".to_owned();
                writer.text(&text(&failed(pty_errors::TAKEN_OVER, error))).await?;
                writer.close(channels::TAKEN_OVER, pty_errors::TAKEN_OVER).await
            }
            Self::Failed { code, error } => {
                writer.text(&text(&failed(code, error))).await?;
                writer.close(close::INTERNAL, code).await
            }
            Self::Close(code) => writer.close(code, "").await,
            Self::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// What is sent in answer to what was received.
#[derive(Debug)]
enum Answer {
    Frame(PtyServerFrame),
    Pong(Bytes),
}

async fn send(
    writer: &mut Writer<WriteHalf<Stream>>,
    place: &Place,
    beginning: Beginning,
    answers: &mut mpsc::Receiver<Answer>,
) -> Parting {
    match send_all(writer, place, beginning, answers).await {
        Ok(parting) => parting,
        Err(_) => Parting::Gone,
    }
}

async fn send_all(
    writer: &mut Writer<WriteHalf<Stream>>,
    place: &Place,
    beginning: Beginning,
    answers: &mut mpsc::Receiver<Answer>,
) -> io::Result<Parting> {
    let Beginning { mode, replay: (offset, replay) } = beginning;
    if !replay.is_empty() {
        writer.binary(&[&[channels::REPLAY], &offset.to_be_bytes(), &replay]).await?;
    }
    drop(replay);
    let session_id = place.terminal.id.to_string();
    writer.text(&text(&PtyServerFrame::Connected { session_id, mode })).await?;

    let mut news = place.terminal.news();
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.reset();
    loop {
        // In the middle of much output answers still come promptly.
        while let Ok(answer) = answers.try_recv() {
            say(writer, answer).await?;
        }
        news.mark_unchanged();
        match place.next() {
            Next::Output(channel, bytes) => {
                writer.binary(&[&[channel.byte()], &bytes]).await?;
                continue;
            }
            Next::Exit(exit_code) => return Ok(Parting::Exit(exit_code)),
            Next::TakenOver => return Ok(Parting::TakenOver),
            Next::Nothing => {}
        }
        tokio::select! {
            // The sender lives as long as the terminal.
            _ = news.changed() => {}
            Some(answer) = answers.recv() => say(writer, answer).await?,
            _ = ping.tick() => writer.ping().await?,
        }
    }
}

async fn say(writer: &mut Writer<WriteHalf<Stream>>, answer: Answer) -> io::Result<()> {
    match answer {
        Answer::Frame(frame) => writer.text(&text(&frame)).await,
        Answer::Pong(content) => writer.pong(&content).await,
    }
}

async fn receive(
    reader: &mut Reader<ReadHalf<Stream>>,
    daemon: &Daemon,
    place: &Place,
    answers: mpsc::Sender<Answer>,
) -> Parting {
    loop {
        let message = match timeout(HEARD_WITHIN, reader.message()).await {
            Ok(Ok(message)) => message,
            Ok(Err(Ended::Violated(violation))) => return Parting::Close(violation.code()),
            Ok(Err(Ended::Broken)) | Err(_) => return Parting::Gone,
        };
        let answer = match message {
            Message::Binary(mut bytes) => match bytes.split_first() {
                Some((&channels::STDIN, _)) => {
                    drop(bytes.split_to(1));
                    input(place, bytes).await.err()
                }
                _ => None,
            },
            Message::Text(text) => control(daemon, place, &text).await,
            Message::Ping(content) => Some(Answer::Pong(content)),
            Message::Pong => None,
            Message::Close(code) => return Parting::Close(code),
        };
        if let Some(answer) = answer
            && answers.send(answer).await.is_err()
        {
            return Parting::Gone;
        }
    }
}

/// Hands input to the program, as fast as it takes it.
async fn input(place: &Place, mut bytes: Bytes) -> Result<(), Answer> {
    let refused = || {
        let error = "the program takes no input".to_owned();
        Answer::Frame(failed(pty_errors::STDIN_WRITE_FAILED, error))
    };
    let input = place.input().ok_or_else(refused)?;
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        input.send(piece).await.map_err(|_| refused())?;
    }
    Ok(())
}

/// Does what a text frame asks for. What is not JSON at all is not answered.
async fn control(daemon: &Daemon, place: &Place, text: &str) -> Option<Answer> {
    let invalid = |error: String| Some(Answer::Frame(failed(pty_errors::INVALID_FRAME, error)));
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    match serde_json::from_value(value) {
        Ok(PtyClientFrame::Resize { cols: 0, .. } | PtyClientFrame::Resize { rows: 0, .. }) => {
            invalid("a terminal has at least one column and one row".to_owned())
        }
        Ok(PtyClientFrame::Resize { cols, rows }) => {
            place.terminal.resize(Size { cols, rows });
            None
        }
        Ok(PtyClientFrame::Signal { signal }) => {
            place.terminal.signal(daemon, signal);
            None
        }
        Ok(PtyClientFrame::Ping) => Some(Answer::Frame(PtyServerFrame::Pong)),
        Ok(PtyClientFrame::Stdin { data }) => input(place, data.into()).await.err(),
        Err(error) => invalid(error.to_string()),
    }
}

fn failed(code: &str, error: String) -> PtyServerFrame {
    PtyServerFrame::Error { code: code.to_owned(), error }
}

fn text(frame: &PtyServerFrame) -> String {
    serde_json::to_string(frame).expect("invariant: our frames have string keys")
}
