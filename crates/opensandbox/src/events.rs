use futures_core::Stream;
use futures_util::stream;
use http::StatusCode;
use osb_api::{
    ErrorBody,
    execd::{Event, EventKind, Failure},
};

use crate::{ClientError, frames::Frames, transport::Chunks};

/// The largest event that is read. execd splits long lines far below this.
const LARGEST_EVENT: usize = 8 << 20;

/// The events of one command, as they happen.
#[derive(Debug)]
pub struct Events {
    chunks: Chunks,
    frames: Frames,
    id: Option<String>,
    concluded: bool,
    ended: bool,
}

impl Events {
    pub(crate) fn new(chunks: Chunks) -> Self {
        let frames = Frames::new(LARGEST_EVENT);
        Self { chunks, frames, id: None, concluded: false, ended: false }
    }

    /// The id of the command, once the first event has been read.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The next event, or nothing after the last. Signs of life and kinds of events that this
    /// version does not know are skipped. Dropping this future loses no event.
    ///
    /// A stream that ends before it said how the command ended is an error.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(frame) = self.frames.pop() {
                if let Some(event) = self.read(&frame)? {
                    return Ok(Some(event));
                }
            }
            if self.ended {
                return if self.concluded { Ok(None) } else { Err(broken_off()) };
            }
            let taken = if let Some(chunk) = self.chunks.next().await? {
                self.frames.push(&chunk)
            } else {
                self.ended = true;
                self.frames.finish()
            };
            taken.map_err(|error| ClientError::protocol(DOING, &error))?;
        }
    }

    /// The rest of the events.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, ClientError>> + Send {
        stream::try_unfold(self, async |mut events| {
            Ok(events.next().await?.map(|event| (event, events)))
        })
    }

    fn read(&mut self, frame: &[u8]) -> Result<Option<Event>, ClientError> {
        let event: Event = match serde_json::from_slice(frame) {
            Ok(event) => event,
            // Some daemons break off a stream with the body of an error answer.
            Err(error) => {
                return Err(serde_json::from_slice(frame).map_or_else(
                    |_| ClientError::protocol(DOING, &error),
                    |ErrorBody { code, message }| ClientError::Api {
                        status: StatusCode::INTERNAL_SERVER_ERROR,
                        code,
                        message,
                        request_id: None,
                    },
                ));
            }
        };
        match event.kind {
            EventKind::Ping | EventKind::Unknown => return Ok(None),
            EventKind::Init => self.id.clone_from(&event.text),
            EventKind::Error | EventKind::ExecutionComplete => self.concluded = true,
            EventKind::Status
            | EventKind::Stdout
            | EventKind::Stderr
            | EventKind::Result
            | EventKind::ExecutionCount => {}
        }
        Ok(Some(event))
    }
}

const DOING: &str = "run a command";

fn broken_off() -> ClientError {
    ClientError::Broken {
        doing: DOING,
        source: "the stream ended before the command's end was reported".into(),
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal: its own, a time limit's or an interrupt's. The text says which, if execd did.
    Killed(String),
    /// It never ran, for this reason.
    NotStarted(String),
}

impl Outcome {
    /// What the event says about the end, if it is one of the two that do.
    pub fn of(event: &Event) -> Option<Self> {
        match (event.kind, &event.error) {
            (EventKind::ExecutionComplete, _) => Some(Self::Exited(0)),
            (EventKind::Error, Some(failure)) => Some(Self::of_failure(failure)),
            (EventKind::Error, None) => Some(Self::NotStarted("it failed".to_owned())),
            _ => None,
        }
    }

    /// The exit code, if there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(*code),
            Self::Killed(_) | Self::NotStarted(_) => None,
        }
    }

    /// The protocol has no field for exit codes: they travel as the text of an error.
    fn of_failure(failure: &Failure) -> Self {
        match failure.evalue.trim().parse::<i32>() {
            Ok(code) if code >= 0 => Self::Exited(code),
            Ok(_) => Self::Killed(failure.traceback.join("\n")),
            Err(_) => Self::NotStarted(failure.evalue.clone()),
        }
    }
}

/// The bytes that an event of a command's output stands for.
///
/// Lines travel without their end, and an empty line as its end alone.
pub fn output_line(text: &str) -> String {
    if text == "\n" { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osb_api::execd::RunCommand;

    use super::*;
    use crate::{
        Execd, Lifecycle,
        testkit::{ScriptedServer, Then, reply, stream_reply},
    };

    /// A server that leads to itself and streams these pieces.
    async fn streaming(pieces: &'static [&'static str], then: Then) -> (ScriptedServer, Execd) {
        let server = ScriptedServer::start(move |request| {
            if request.uri().path() == "/command" {
                return stream_reply(pieces.iter().copied(), then);
            }
            let host = request.headers()["host"].to_str().unwrap();
            reply(200, format!(r#"{{"endpoint":"{host}"}}"#))
        })
        .await;
        // Short only where silence is the point: elsewhere a busy machine may be slow to answer.
        let connection = match then {
            Then::End => server.connection(),
            Then::Hang => server.connection().dead_after(Duration::from_millis(50)),
        };
        let execd = Lifecycle::new(connection).execd("x").await.unwrap();
        (server, execd)
    }

    async fn events(execd: &Execd) -> (Vec<Event>, Option<ClientError>) {
        let mut events = execd.run(&RunCommand::default()).await.unwrap();
        let mut seen = Vec::new();
        loop {
            match events.next().await {
                Ok(Some(event)) => seen.push(event),
                Ok(None) => return (seen, None),
                Err(error) => return (seen, Some(error)),
            }
        }
    }

    #[tokio::test]
    async fn events_arrive_in_order_without_signs_of_life() {
        let (_server, execd) = streaming(
            &[
                "{\"type\":\"init\",\"text\":\"9f\",\"timestamp\":1}\n\n{\"type\":\"ping\",",
                "\"timestamp\":2}\n\n{\"type\":\"later\",\"timestamp\":3}\n\n",
                "{\"type\":\"stdout\",\"text\":\"a\",\"timestamp\":4}\n",
                "\n{\"type\":\"execution_complete\",\"timestamp\":5}\n\n",
            ],
            Then::End,
        )
        .await;
        let (events, error) = events(&execd).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            events,
            [Event::init("9f", 1), Event::stdout("a", 4), {
                let mut complete = Event::complete(0, 5);
                complete.execution_time = None;
                complete
            }]
        );
        assert_eq!(Outcome::of(&events[2]), Some(Outcome::Exited(0)));
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_an_error() {
        let (_server, execd) =
            streaming(&["{\"type\":\"init\",\"text\":\"9f\",\"timestamp\":1}\n\n"], Then::End)
                .await;
        let (events, error) = events(&execd).await;
        assert_eq!(events.len(), 1);
        assert!(matches!(error, Some(ClientError::Broken { .. })), "{error:?}");
    }

    #[tokio::test]
    async fn a_silent_peer_counts_as_dead() {
        let (_server, execd) =
            streaming(&["{\"type\":\"init\",\"text\":\"9f\",\"timestamp\":1}\n\n"], Then::Hang)
                .await;
        let (_, error) = events(&execd).await;
        assert!(matches!(error, Some(ClientError::Silent { .. })), "{error:?}");
    }

    #[tokio::test]
    async fn an_error_body_in_the_stream_is_a_refusal() {
        let (_server, execd) =
            streaming(&["{\"code\":\"RUNTIME_ERROR\",\"message\":\"no\"}"], Then::End).await;
        let (_, error) = events(&execd).await;
        assert!(matches!(error, Some(ClientError::Api { .. })), "{error:?}");
    }

    #[test]
    fn the_exit_code_is_the_text_of_the_error() {
        let outcome = |evalue: &str| {
            let failure = Failure {
                ename: "CommandExecError".to_owned(),
                evalue: evalue.to_owned(),
                traceback: vec!["signal: killed".to_owned()],
            };
            Outcome::of(&Event::error(failure, 0)).unwrap()
        };
        assert_eq!(outcome("7"), Outcome::Exited(7));
        assert_eq!(outcome("-1"), Outcome::Killed("signal: killed".to_owned()));
        assert_eq!(outcome("no such file"), Outcome::NotStarted("no such file".to_owned()));
    }

    #[test]
    fn an_empty_line_travels_as_its_end() {
        assert_eq!(output_line("a"), "a\n");
        assert_eq!(output_line("\n"), "\n");
    }
}
