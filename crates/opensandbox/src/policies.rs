//! What sandboxes may reach.

use http::{Method, StatusCode};
use osb_api::lifecycle::{NetworkPolicy, NetworkPolicyStatus, NetworkRule};

use crate::{ClientError, Lifecycle, lifecycle::path, transport::Call};

/// What servers answer that do not tell what sandboxes without a policy reach.
const UNTOLD: [StatusCode; 3] =
    [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];

impl Lifecycle {
    /// What a sandbox may reach.
    pub async fn policy(&self, id: &str) -> Result<NetworkPolicyStatus, ClientError> {
        let call = self.policy_call("look up what a sandbox may reach", Method::GET, id);
        self.transport.fetch(call).await
    }

    /// What sandboxes without a policy may reach, if the server tells: not every one does.
    pub async fn no_policy(&self) -> Result<Option<NetworkPolicyStatus>, ClientError> {
        let doing = "look up what sandboxes may reach";
        let call = self.call(doing, Method::GET, "/networkpolicy");
        match self.transport.fetch(call).await {
            Err(ClientError::Api { status, .. }) if UNTOLD.contains(&status) => Ok(None),
            told => told.map(Some),
        }
    }

    /// Replaces the whole policy. It is in force when this returns.
    pub async fn replace_policy(
        &self,
        id: &str,
        policy: &NetworkPolicy,
    ) -> Result<NetworkPolicyStatus, ClientError> {
        let call = self.policy_call("change what a sandbox may reach", Method::PUT, id);
        self.transport.fetch(call.json(policy)?).await
    }

    /// Puts rules in front of the others, and drops those with the same targets.
    pub async fn merge_rules(
        &self,
        id: &str,
        rules: &[NetworkRule],
    ) -> Result<NetworkPolicyStatus, ClientError> {
        let call = self.policy_call("change what a sandbox may reach", Method::PATCH, id);
        self.transport.fetch(call.json(&rules)?).await
    }

    /// Puts the rules of `policy` in front of the others, which all stay, and takes its default if it
    /// has one. An extension: not every server does.
    pub async fn add_rules(
        &self,
        id: &str,
        policy: &NetworkPolicy,
    ) -> Result<NetworkPolicyStatus, ClientError> {
        let call = self.policy_call("change what a sandbox may reach", Method::PATCH, id);
        self.transport.fetch(call.json(policy)?).await
    }

    /// Drops the rules with these targets.
    pub async fn delete_rules(
        &self,
        id: &str,
        targets: &[String],
    ) -> Result<NetworkPolicyStatus, ClientError> {
        let call = self.policy_call("change what a sandbox may reach", Method::DELETE, id);
        self.transport.fetch(call.json(&targets)?).await
    }

    fn policy_call(&self, doing: &'static str, method: Method, id: &str) -> Call {
        self.call(doing, method, &path(id, "/networkpolicy"))
    }
}

#[cfg(test)]
mod tests {
    use osb_api::lifecycle::NetworkAction;

    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    const STATUS: &str = r#"{"status":"ok","mode":"enforcing","enforcementMode":"dns+nft","policy":{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example","ports":[443]}]}}"#;

    #[tokio::test]
    async fn each_call_has_its_method() {
        let server = ScriptedServer::start(|_| reply(200, STATUS)).await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        let status = lifecycle.policy("s").await.unwrap();
        assert_eq!(status.policy.egress[0].ports, Some(vec![443]));
        lifecycle.replace_policy("s", &status.policy).await.unwrap();
        let rule = NetworkRule::new(NetworkAction::Deny, "b.example");
        lifecycle.merge_rules("s", &[rule]).await.unwrap();
        lifecycle.delete_rules("s", &["b.example".to_owned()]).await.unwrap();
        lifecycle.add_rules("s", &status.policy).await.unwrap();
        let expected = ["GET", "PUT", "PATCH", "DELETE", "PATCH"]
            .map(|method| format!("{method} /v1/sandboxes/s/networkpolicy"));
        assert_eq!(server.calls(), expected);
        assert_eq!(lifecycle.no_policy().await.unwrap(), Some(status));
        assert_eq!(server.calls().last().unwrap(), "GET /v1/networkpolicy");
    }

    #[tokio::test]
    async fn not_every_server_tells_what_it_is_without_a_policy() {
        for (status, is_told) in [(404, true), (501, true), (401, false)] {
            let body = r#"{"code":"C","message":"m"}"#;
            let server = ScriptedServer::start(move |_| reply(status, body)).await;
            let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
            assert_eq!(lifecycle.no_policy().await.is_ok_and(|told| told.is_none()), is_told);
        }
    }
}
