use std::time::Duration;

use http::{HeaderMap, Method};
use osb_api::{
    egress::{CreateVaultRequest, PatchVaultRequest, VaultState},
    ports,
};

use crate::{
    ClientError, Lifecycle, execd,
    transport::{self, Call, Transport},
};

/// Client of the vault of one sandbox: the credentials that its requests are given.
///
/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Vault {
    transport: Transport,
    url: String,
    headers: HeaderMap,
    answer_within: Duration,
}

impl Lifecycle {
    /// A client of the sandbox's vault. The sandbox must have been made with `credentialProxy`.
    pub async fn vault(&self, id: &str) -> Result<Vault, ClientError> {
        let endpoint = self.endpoint(id, ports::EGRESS).await?;
        Ok(Vault {
            transport: self.transport.clone(),
            url: format!("{}/credential-vault", execd::base(&endpoint)),
            headers: execd::headers(&endpoint)?,
            answer_within: self.answer_within(),
        })
    }
}

impl Vault {
    /// What can be read of the vault: everything but the secrets.
    pub async fn get(&self) -> Result<VaultState, ClientError> {
        self.transport.fetch(self.call("look up a vault", Method::GET)).await
    }

    /// Makes the vault. It is in force when this returns.
    pub async fn create(&self, content: &CreateVaultRequest) -> Result<VaultState, ClientError> {
        self.transport.fetch(self.call("make a vault", Method::POST).json(content)?).await
    }

    /// Changes the vault, wholly or not at all.
    pub async fn patch(&self, changes: &PatchVaultRequest) -> Result<VaultState, ClientError> {
        self.transport.fetch(self.call("change a vault", Method::PATCH).json(changes)?).await
    }

    /// Deletes the vault with everything in it.
    pub async fn delete(&self) -> Result<(), ClientError> {
        self.transport.settle(self.call("delete a vault", Method::DELETE)).await
    }

    fn call(&self, doing: &'static str, method: Method) -> Call {
        Call {
            doing,
            method,
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: transport::empty(),
            within: self.answer_within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    #[tokio::test]
    async fn each_call_shows_the_token_of_the_endpoint() {
        let server = ScriptedServer::start(|request| {
            let host = request.headers()["host"].to_str().unwrap();
            match request.uri().path() {
                path if path.contains("/endpoints/") => reply(
                    200,
                    format!(r#"{{"endpoint":"{host}/egress","headers":{{"X-Token":"t"}}}}"#),
                ),
                _ => reply(200, r#"{"revision":1,"credentials":[],"bindings":[]}"#),
            }
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let vault = lifecycle.vault("s").await.unwrap();
        assert_eq!(vault.create(&CreateVaultRequest::default()).await.unwrap().revision, 1);
        vault.get().await.unwrap();
        vault.patch(&PatchVaultRequest::default()).await.unwrap();
        vault.delete().await.unwrap();
        let expected = ["POST", "GET", "PATCH", "DELETE"]
            .map(|method| format!("{method} /egress/credential-vault"));
        assert_eq!(server.calls()[1..], expected);
        assert!(server.seen()[1..].iter().all(|request| request.headers()["x-token"] == "t"));
    }
}
