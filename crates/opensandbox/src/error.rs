use std::time::Duration;

use http::StatusCode;

use crate::InvalidDomain;

/// Why a call failed, one variant per reaction of the caller.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configured domain cannot be used; no request was made.
    #[error(transparent)]
    Domain(#[from] InvalidDomain),
    /// Nothing was sent: nobody listens there. [`ClientError::hint`] says what to try.
    #[error("cannot connect to {address}")]
    Connect {
        address: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The peer accepted the call and then said nothing. It may still carry it out.
    #[error("{doing}: no answer for {} s", after.as_secs())]
    Silent { doing: &'static str, after: Duration },
    /// The connection broke in the middle. The call may have been carried out.
    #[error("{doing}: the connection broke")]
    Broken {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The peer refused, and said why.
    #[error("{message} ({code})")]
    Api {
        status: StatusCode,
        /// One of [`osb_api::codes`]; `osb explain CODE` has more about it.
        code: String,
        message: String,
        /// Finds this call in the server's log.
        request_id: Option<String>,
    },
    /// The peer answered something that this client does not understand.
    #[error("{doing}: the answer makes no sense: {detail}")]
    Protocol { doing: &'static str, detail: String },
    /// The sandbox was made but did not become usable.
    #[error("sandbox {id} did not become ready: {detail}")]
    NotReady { id: String, detail: String },
}

impl ClientError {
    /// What a person might do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { address, .. } => Some(connect_hint(address)),
            Self::Api { code, .. } if osb_api::codes::ALL.contains(&code.as_str()) => {
                Some(format!("`osb explain {code}` says more"))
            }
            Self::Domain(_)
            | Self::Silent { .. }
            | Self::Broken { .. }
            | Self::Api { .. }
            | Self::Protocol { .. }
            | Self::NotReady { .. } => None,
        }
    }

    /// Whether the peer said that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { status: StatusCode::NOT_FOUND, .. })
    }

    /// Whether the other side does not offer the call at all.
    pub fn is_not_supported(&self) -> bool {
        matches!(self, Self::Api { status: StatusCode::NOT_IMPLEMENTED, .. })
    }

    pub(crate) fn protocol(doing: &'static str, detail: &impl ToString) -> Self {
        Self::Protocol { doing, detail: detail.to_string() }
    }
}

fn connect_hint(address: &str) -> String {
    if crate::connection::is_loopback(address) {
        "is the server running? `osb server` starts one".to_owned()
    } else {
        format!("is a server listening on {address}? OPEN_SANDBOX_DOMAIN names the one to use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> ClientError {
        ClientError::Connect { address: address.to_owned(), source: "refused".into() }
    }

    #[test]
    fn a_refused_connection_says_how_to_start_a_server() {
        assert!(refused("127.0.0.1:8080").hint().unwrap().contains("osb server"));
        assert!(refused("sandbox.example:80").hint().unwrap().contains("OPEN_SANDBOX_DOMAIN"));
    }

    #[test]
    fn only_codes_with_a_page_are_worth_explaining() {
        let api = |code: &str| ClientError::Api {
            status: StatusCode::BAD_REQUEST,
            code: code.to_owned(),
            message: "no".to_owned(),
            request_id: None,
        };
        assert!(api(osb_api::codes::TOO_BUSY).hint().is_some());
        assert!(api("SOMEBODY::ELSES").hint().is_none());
    }
}
