//! What happened in and around sandboxes.

use http::Method;
use osb_api::diagnostics::{Diagnostics, EventsQuery, LogsQuery};
use percent_encoding::utf8_percent_encode;

use crate::{ClientError, Lifecycle, lifecycle::ENCODED};

impl Lifecycle {
    /// What a sandbox printed. Without a scope, that is all of it.
    pub async fn logs(&self, id: &str, query: &LogsQuery) -> Result<Diagnostics, ClientError> {
        let LogsQuery { scope, tail, since, container } = query;
        let pairs = [
            ("tail", tail.map(|tail| tail.to_string())),
            ("since", since.clone()),
            ("container", container.clone()),
        ];
        let path = path(id, "logs", scope.as_deref(), pairs);
        self.transport.fetch(self.call("read what a sandbox printed", Method::GET, &path)).await
    }

    /// What happened to a sandbox. Without a scope, that is all of it.
    pub async fn events(&self, id: &str, query: &EventsQuery) -> Result<Diagnostics, ClientError> {
        let EventsQuery { scope, limit } = query;
        let pairs = [("limit", limit.map(|limit| limit.to_string()))];
        let path = path(id, "events", scope.as_deref(), pairs);
        self.transport.fetch(self.call("read what happened to a sandbox", Method::GET, &path)).await
    }
}

fn path<const N: usize>(
    id: &str,
    what: &str,
    scope: Option<&str>,
    pairs: [(&str, Option<String>); N],
) -> String {
    let mut path = format!(
        "/sandboxes/{}/diagnostics/{what}?scope={}",
        utf8_percent_encode(id, ENCODED),
        utf8_percent_encode(scope.unwrap_or("all"), ENCODED)
    );
    for (name, value) in pairs {
        if let Some(value) = value {
            path.extend(["&", name, "="].into_iter().chain(utf8_percent_encode(&value, ENCODED)));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_what_is_wanted() {
        let pairs = [("tail", Some("5".to_owned())), ("since", None)];
        let path = path("a/b", "logs", None, pairs);
        assert_eq!(path, "/sandboxes/a%2Fb/diagnostics/logs?scope=all&tail=5");
    }
}
