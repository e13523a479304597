use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    connection::Ports,
    frames::{Arrived, Socket},
    message::{Key, Message, Writer},
    peer::Peer,
};

/// How often to look whether a kernel listens.
const LOOK: Duration = Duration::from_millis(10);

/// How long to wait for an answer before asking again: whoever begins to listen may miss something.
const AGAIN: Duration = Duration::from_secs(1);

/// What kernels say to whoever begins to listen, once they have all that they need.
const WELCOME: &str = "iopub_welcome";

/// The ways on which a kernel is spoken to.
#[derive(Debug)]
pub(super) struct Channels {
    /// Where it takes cells, one after the other, and answers.
    shell: Peer,
    /// Where it takes orders in the middle of a cell.
    control: Peer,
    /// Where it tells everybody what comes of cells.
    iopub: Peer,
    writer: Writer,
    /// When one of the others was found closed. What everybody is told may still be on its way.
    closed_at: Option<Instant>,
}

/// How long that may take.
const ECHO: Duration = Duration::from_millis(500);

/// Who is told what comes of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    ByClient,
    /// Nor is it counted.
    ByNobody,
}

/// What a kernel says.
#[derive(Debug)]
pub(super) enum Heard {
    Answer(Message),
    /// An answer that is too long to be looked at.
    LongAnswer,
    News(Message),
    /// News of so many bytes, which are too many.
    LongNews(u64),
    /// It has taken an order.
    Obeyed,
    /// Something that is not for us.
    Nothing,
}

/// What a kernel says of itself.
#[derive(Debug, Deserialize)]
struct Info {
    language_info: LanguageInfo,
}

#[derive(Debug, Deserialize)]
struct LanguageInfo {
    version: String,
}

impl Channels {
    /// Waits until a kernel listens, answers, and is heard: nothing that it says from then on is lost.
    /// A kernel that answers nothing within `patience` never will.
    pub(super) async fn open(
        ports: Ports,
        key: Key,
        patience: Duration,
        version: Arc<OnceLock<String>>,
    ) -> io::Result<Self> {
        let began = Instant::now();
        let iopub = connect(ports.iopub, Socket::Subscriber).await?;
        let shell = connect(ports.shell, Socket::Dealer).await?;
        let control = connect(ports.control, Socket::Dealer).await?;
        let writer = Writer::new(key);
        let mut channels = Self { shell, control, iopub, writer, closed_at: None };
        let settled = Instant::now() + settling(began.elapsed());
        let welcome = async {
            while !matches!(channels.hear().await?, Heard::News(news) if news.kind == WELCOME) {}
            io::Result::Ok(())
        };
        timeout_at(settled, welcome).await.unwrap_or(Ok(()))?;
        timeout(patience, channels.introduce(&version)).await??;
        Ok(channels)
    }

    /// Asks until there is an answer, which has the version of the language, and something is heard
    /// that everybody hears.
    async fn introduce(&mut self, version: &OnceLock<String>) -> io::Result<()> {
        let (mut answers, mut is_heard) = (false, false);
        loop {
            self.ask()?;
            let again = Instant::now() + AGAIN;
            while let Ok(heard) = timeout_at(again, self.hear()).await {
                match heard? {
                    Heard::Answer(message) => {
                        answers = true;
                        if let Some(Info { language_info }) = message.content() {
                            version.get_or_init(|| language_info.version);
                        }
                    }
                    Heard::News(_) => is_heard = true,
                    Heard::LongAnswer | Heard::LongNews(_) | Heard::Obeyed | Heard::Nothing => {}
                }
                if answers && is_heard {
                    return Ok(());
                }
            }
        }
    }

    /// Asks for something that every kernel can answer, and returns the id of the request.
    pub(super) fn ask(&mut self) -> io::Result<String> {
        let (parts, id) = self.writer.write("kernel_info_request", &json!({}));
        self.shell.say(&parts)?;
        Ok(id)
    }

    /// Sends a cell, and returns the id of the request.
    pub(super) fn execute(&mut self, code: &str, seen: Seen) -> io::Result<String> {
        let content = json!({
            "code": code,
            "silent": seen == Seen::ByNobody,
            "store_history": seen == Seen::ByClient,
            "user_expressions": {},
            // Nobody can answer.
            "allow_stdin": false,
            // Cells are sent one by one: there are none to be dropped after an error.
            "stop_on_error": false,
        });
        let (parts, id) = self.writer.write("execute_request", &content);
        self.shell.say(&parts)?;
        Ok(id)
    }

    /// Asks for the end of a cell, and returns the id of the request.
    pub(super) fn interrupt(&mut self) -> io::Result<String> {
        let (parts, id) = self.writer.write("interrupt_request", &json!({}));
        self.control.say(&parts)?;
        Ok(id)
    }

    /// The next that is said. Nothing is lost if nobody waits any more.
    pub(super) async fn hear(&mut self) -> io::Result<Heard> {
        let (arrived, is_answer) = loop {
            if let Some(closed_at) = self.closed_at {
                break (timeout_at(closed_at + ECHO, self.iopub.hear()).await??, false);
            }
            tokio::select! {
                arrived = self.iopub.hear() => break (arrived?, false),
                arrived = self.shell.hear() => match arrived {
                    Ok(arrived) => break (arrived, true),
                    Err(_) => self.closed_at = Some(Instant::now()),
                },
                arrived = self.control.hear() => match arrived {
                    Ok(Arrived::Message(_) | Arrived::TooLong(_)) => return Ok(Heard::Obeyed),
                    Ok(Arrived::Greeting | Arrived::Ready) => return Ok(Heard::Nothing),
                    Ok(Arrived::Nonsense) | Err(_) => self.closed_at = Some(Instant::now()),
                },
            }
        };
        Ok(match arrived {
            Arrived::Greeting | Arrived::Ready => Heard::Nothing,
            Arrived::Nonsense => return Err(io::ErrorKind::InvalidData.into()),
            Arrived::TooLong(_) if is_answer => Heard::LongAnswer,
            Arrived::TooLong(length) => Heard::LongNews(length),
            Arrived::Message(parts) => match Message::read(&self.writer.key, parts) {
                None => Heard::Nothing,
                Some(message) if is_answer => Heard::Answer(message),
                Some(message) => Heard::News(message),
            },
        })
    }
}

/// How long not to ask a kernel anything that has taken so long to listen. Some listen before they
/// can answer, and whoever asks then never gets an answer: the thread that takes the request ends.
/// They have most of their start behind them, and how long that took says how fast this machine is.
fn settling(elapsed: Duration) -> Duration {
    (elapsed / 4).clamp(Duration::from_millis(5), Duration::from_secs(2))
}

/// Connects once somebody listens.
async fn connect(port: u16, socket: Socket) -> io::Result<Peer> {
    loop {
        match Peer::connect(port, socket).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => sleep(LOOK).await,
            connected => return connected,
        }
    }
}
