//! Volumes that a server keeps under names. An extension: not every server has these calls.

use http::Method;
use osb_api::lifecycle::{ListVolumesQuery, ListVolumesResponse};
use percent_encoding::utf8_percent_encode;

use crate::{ClientError, Lifecycle, lifecycle::ENCODED};

impl Lifecycle {
    /// One page of kept volumes, in the order of their names.
    pub async fn list_volumes(
        &self,
        query: &ListVolumesQuery,
    ) -> Result<ListVolumesResponse, ClientError> {
        let path = format!("/volumes?page={}&pageSize={}", query.page, query.page_size);
        self.transport.fetch(self.call("list volumes", Method::GET, &path)).await
    }

    /// Deletes a kept volume with everything in it. One that a sandbox uses stays.
    pub async fn delete_volume(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/volumes/{}", utf8_percent_encode(name, ENCODED));
        self.transport.settle(self.call("delete a volume", Method::DELETE, &path)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    const PAGE: &str = r#"{"items":[{"name":"a","usedBy":["x"],"deleteOnSandboxTermination":false,"createdAt":"2030-01-01T00:00:00Z"}],"pagination":{"page":1,"pageSize":20,"totalItems":1,"totalPages":1,"hasNextPage":false}}"#;

    #[tokio::test]
    async fn each_call_has_its_path() {
        let server = ScriptedServer::start(|request| match request.method() {
            &Method::DELETE => reply(204, ""),
            _ => reply(200, PAGE),
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let page = lifecycle.list_volumes(&ListVolumesQuery::default()).await.unwrap();
        assert_eq!((page.items[0].name.as_str(), page.items[0].size_bytes), ("a", None));
        lifecycle.delete_volume("a/b").await.unwrap();
        assert_eq!(
            server.calls(),
            ["GET /v1/volumes?page=1&pageSize=20", "DELETE /v1/volumes/a%2Fb"]
        );
    }
}
