use std::{error::Error as _, io};

use opensandbox::ClientError;
use osb_api::codes;
use osb_sys::fs::PathError;

use crate::ending;

/// Why a command of `osb` did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server or the sandbox did not do its part.
    #[error(transparent)]
    Sdk(#[from] ClientError),
    /// The command line was read, but asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A file on this side.
    #[error(transparent)]
    File(#[from] PathError),
    /// A file that can be read but not used.
    #[error("{name}: {problem}")]
    Content { name: String, problem: String },
    /// Standard output is gone.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// This machine cannot be a server; the text lists what was looked at.
    #[error("this machine lacks something that sandboxes need\n{0}")]
    Unfit(String),
    /// The machine that this runs on.
    #[error("{doing}")]
    Machine {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Failure {
    /// What to tell the person, cause by cause, and what to try; nothing if nobody listens.
    pub(crate) fn report(&self) -> Option<String> {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return None,
            Self::Sdk(_)
            | Self::Usage(_)
            | Self::File(_)
            | Self::Content { .. }
            | Self::Output(_)
            | Self::Unfit(_)
            | Self::Machine { .. } => {}
        }
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let next = error.to_string();
            // Some libraries repeat their cause in their own words.
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str("\nhint: ");
            text.push_str(&hint);
        }
        Some(text)
    }

    /// What the process exits with.
    pub(crate) fn exit_code(&self, role: Role) -> u8 {
        match (self, role) {
            (Self::Output(error), _) if error.kind() == io::ErrorKind::BrokenPipe => BROKEN_PIPE,
            (_, Role::StandIn) => ending::OWN_FAILURE,
            (Self::Usage(_), Role::Tool) => 2,
            (_, Role::Tool) => 1,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Sdk(ClientError::Api { code, .. })
                if [codes::MISSING_API_KEY, codes::INVALID_API_KEY].contains(&code.as_str()) =>
            {
                Some(KEY.to_owned())
            }
            Self::Sdk(error) => error.hint(),
            Self::Machine { source, .. } => is_taken(&**source).then(|| TAKEN.to_owned()),
            Self::Usage(_)
            | Self::File(_)
            | Self::Content { .. }
            | Self::Output(_)
            | Self::Unfit(_) => None,
        }
    }
}

const KEY: &str = "the server says where its key is when it starts: set OPEN_SANDBOX_API_KEY to the \
                   key, or OSB_DATA_DIR to the server's data directory if it is on this machine";

const TAKEN: &str = "another program listens there, maybe a server: end it, or choose another \
                     address with --listen";

/// Whether an address that is in use is among the causes.
fn is_taken(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whose exit code the process's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its own.
    Tool,
    /// That of a command in a sandbox, so that its own failures need a code apart.
    StandIn,
}

/// What a shell reports for a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = 128 + 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_news() {
        let failure = Failure::Output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.report(), failure.exit_code(Role::Tool)), (None, 141));
    }

    #[test]
    fn an_address_that_is_taken_has_a_way_out() {
        let report = |kind: io::ErrorKind| {
            let source = io::Error::from(kind).into();
            Failure::Machine { doing: "cannot start", source }.report().unwrap()
        };
        assert!(report(io::ErrorKind::AddrInUse).ends_with(TAKEN));
        assert!(!report(io::ErrorKind::NotFound).contains("hint"));
    }

    #[test]
    fn whoever_has_no_key_hears_where_one_comes_from() {
        for code in [codes::MISSING_API_KEY, codes::INVALID_API_KEY] {
            let failure = Failure::Sdk(ClientError::Api {
                status: http::StatusCode::UNAUTHORIZED,
                code: code.to_owned(),
                message: "no".to_owned(),
                request_id: None,
            });
            let report = failure.report().unwrap();
            assert!(report.contains("OPEN_SANDBOX_API_KEY") && report.contains("OSB_DATA_DIR"));
        }
    }

    #[test]
    fn a_report_has_the_chain_and_the_hint() {
        let failure = Failure::Sdk(opensandbox::ClientError::Connect {
            address: "127.0.0.1:8080".to_owned(),
            source: "connection refused".into(),
        });
        assert_eq!(
            failure.report().unwrap(),
            "cannot connect to 127.0.0.1:8080: connection refused\n\
             hint: is the server running? `osb server` starts one"
        );
    }
}
