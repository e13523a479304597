//! Files of sandboxes, kept.

use std::fmt::Write as _;

use http::Method;
use osb_api::lifecycle::{
    CreateSnapshotRequest, ListSnapshotsQuery, ListSnapshotsResponse, Snapshot,
};
use percent_encoding::utf8_percent_encode;

use crate::{ClientError, Lifecycle, lifecycle::ENCODED};

impl Lifecycle {
    /// Keeps the files of a sandbox. The snapshot may still be `Creating` when this returns.
    pub async fn create_snapshot(
        &self,
        sandbox: &str,
        request: &CreateSnapshotRequest,
    ) -> Result<Snapshot, ClientError> {
        let path = format!("/sandboxes/{}/snapshots", utf8_percent_encode(sandbox, ENCODED));
        let call = self.call("take a snapshot", Method::POST, &path).json(request)?;
        self.transport.fetch(call).await
    }

    pub async fn get_snapshot(&self, id: &str) -> Result<Snapshot, ClientError> {
        self.transport.fetch(self.call("look up a snapshot", Method::GET, &path(id))).await
    }

    /// One page of snapshots, newest first.
    pub async fn list_snapshots(
        &self,
        query: &ListSnapshotsQuery,
    ) -> Result<ListSnapshotsResponse, ClientError> {
        let path = format!("/snapshots?{}", list_query(query));
        self.transport.fetch(self.call("list snapshots", Method::GET, &path)).await
    }

    /// Deletes a snapshot. Sandboxes that started from it keep their files.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), ClientError> {
        self.transport.settle(self.call("delete a snapshot", Method::DELETE, &path(id))).await
    }
}

fn path(id: &str) -> String {
    format!("/snapshots/{}", utf8_percent_encode(id, ENCODED))
}

fn list_query(query: &ListSnapshotsQuery) -> String {
    let mut text = format!("page={}&pageSize={}", query.page, query.page_size);
    let filters = query.state.iter().map(|state| ("state", state));
    let filters = filters.chain(query.sandbox_id.iter().map(|id| ("sandboxId", id)));
    for (key, value) in filters.chain(query.name.iter().map(|name| ("name", name))) {
        write!(text, "&{key}={}", utf8_percent_encode(value, ENCODED))
            .expect("writing to a string succeeds");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    const SNAPSHOT: &str = r#"{"id":"s","sandboxId":"x","status":{"state":"Ready"},"createdAt":"2030-01-01T00:00:00Z","sizeBytes":5}"#;

    #[tokio::test]
    async fn each_call_has_its_path() {
        let server = ScriptedServer::start(|request| match request.method() {
            &Method::DELETE => reply(204, ""),
            _ => reply(200, SNAPSHOT),
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let request = CreateSnapshotRequest { name: Some("n".to_owned()) };
        let taken = lifecycle.create_snapshot("x", &request).await.unwrap();
        assert_eq!(taken.size_bytes, Some(5));
        assert_eq!(lifecycle.get_snapshot("s").await.unwrap(), taken);
        lifecycle.delete_snapshot("a/b").await.unwrap();
        assert_eq!(
            server.calls(),
            ["POST /v1/sandboxes/x/snapshots", "GET /v1/snapshots/s", "DELETE /v1/snapshots/a%2Fb"]
        );
    }

    #[test]
    fn filters_are_encoded() {
        let query = ListSnapshotsQuery {
            sandbox_id: Some("x".to_owned()),
            name: Some("a b".to_owned()),
            state: vec!["Ready".to_owned(), "Failed".to_owned()],
            ..ListSnapshotsQuery::default()
        };
        let expected = "page=1&pageSize=20&state=Ready&state=Failed&sandboxId=x&name=a%20b";
        assert_eq!(list_query(&query), expected);
    }
}
