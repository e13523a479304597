//! What a new sandbox is like: the flags that `run` and `sandbox create` share.

use opensandbox::{
    ClientError, Lifecycle, Sandbox,
    api::{
        egress::CreateVaultRequest,
        lifecycle::{CreateSandboxRequest, CredentialProxy, NetworkPolicy, NetworkPolicyStatus},
    },
};
use osb_core::{Cpu, Memory};

use crate::{
    failure::Failure,
    input,
    mounts::{self, Mount, Scratch},
    network::{self, Reach},
    output::Output,
    pair::{self, Pair},
    vault,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Spec {
    /// The image whose files the sandbox starts with; `host` shows this server's own programs
    #[arg(short, long, value_name = "IMAGE", default_value = "host", help_heading = "Sandbox")]
    image: String,
    /// A snapshot whose files the sandbox starts with, in place of an image
    #[arg(long, value_name = "ID", conflicts_with = "image", help_heading = "Sandbox")]
    snapshot: Option<String>,
    /// Set an environment variable for everything in the sandbox; may be repeated
    #[arg(short, long = "env", value_name = "KEY=VALUE", help_heading = "Sandbox")]
    env: Vec<Pair>,
    /// Label the sandbox; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE", help_heading = "Sandbox")]
    metadata: Vec<Pair>,
    /// Processor limit, such as 2, 0.5 or 500m
    #[arg(long, value_name = "CORES", default_value = "1", value_parser = amount::<Cpu>, help_heading = "Sandbox")]
    cpu: String,
    /// Memory limit, such as 512Mi or 2Gi
    #[arg(long, value_name = "BYTES", default_value = "2Gi", value_parser = amount::<Memory>, help_heading = "Sandbox")]
    memory: String,
    /// Limit on what the sandbox writes, such as 512Mi or 10Gi; without one, the server's
    #[arg(long, value_name = "BYTES", value_parser = amount::<Memory>, help_heading = "Sandbox")]
    disk: Option<String>,
    /// Show a directory of the server's host (/SOURCE) or a volume that the server keeps (NAME) at
    /// a path of the sandbox; may be repeated
    #[arg(short, long = "volume", value_name = "SOURCE:PATH[:ro]", help_heading = "Sandbox")]
    volume: Vec<Mount>,
    /// Put memory at a path of the sandbox, such as /scratch:64Mi; may be repeated
    #[arg(long, value_name = "PATH:SIZE", help_heading = "Sandbox")]
    tmpfs: Vec<Scratch>,
    #[command(flatten)]
    reach: Reach,
    /// Give the sandbox's requests the credentials in this file, in JSON, as `osb vault create`
    /// reads it, `-` for standard input; goes with what the sandbox may reach
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    vault: Option<String>,
}

/// What the files say that flags name.
#[derive(Debug)]
pub(crate) struct Content {
    policy: Option<NetworkPolicy>,
    vault: Option<CreateVaultRequest>,
}

impl Spec {
    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Content, Failure> {
        if self.vault.is_some() && !self.reach.is_limited() {
            return Err(Failure::Usage(
                "--vault goes with what the sandbox may reach: add --allow HOST for every host \
                 that is to get a credential, or --policy FILE"
                    .to_owned(),
            ));
        }
        let policy = self.reach.policy_file();
        Ok(Content {
            policy: policy.map(|file| input::read(file, network::parse)).transpose()?,
            vault: self
                .vault
                .as_deref()
                .map(|file| input::read(file, vault::content::create))
                .transpose()?,
        })
    }

    /// What sandboxes of the server reach without a policy, if the flags leave something to it.
    pub(crate) async fn surroundings(
        &self,
        lifecycle: &Lifecycle,
    ) -> Result<Option<NetworkPolicyStatus>, ClientError> {
        if self.reach.leaves_to_the_server() { lifecycle.no_policy().await } else { Ok(None) }
    }

    /// Says where the flags do not hold.
    pub(crate) fn warn(&self, around: Option<&NetworkPolicyStatus>, output: &mut Output<'_>) {
        let operator = around.map(|around| around.operator.as_slice());
        if let Some(note) = self.reach.outranked(operator.unwrap_or_default()) {
            output.say(&note);
        }
    }

    /// The request for such a sandbox, with the given seconds to live.
    pub(crate) fn request(
        &self,
        content: &Content,
        around: Option<&NetworkPolicyStatus>,
        timeout: Option<i64>,
    ) -> CreateSandboxRequest {
        let env = pair::to_map(&self.env);
        let metadata = pair::to_map(&self.metadata);
        let limits = [
            ("cpu", Some(&self.cpu)),
            ("memory", Some(&self.memory)),
            ("disk", self.disk.as_ref()),
        ];
        let limits =
            limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
        let request = Sandbox::request(&self.image);
        CreateSandboxRequest {
            timeout,
            env: (!env.is_empty())
                .then(|| env.into_iter().map(|(key, value)| (key, Some(value))).collect()),
            metadata: (!metadata.is_empty()).then_some(metadata),
            resource_limits: Some(limits.collect()),
            image: request.image.filter(|_| self.snapshot.is_none()),
            snapshot_id: self.snapshot.clone(),
            network_policy: content.policy.clone().or_else(|| self.reach.policy(around)),
            credential_proxy: content.vault.as_ref().map(|_| CredentialProxy { enabled: true }),
            volumes: mounts::to_request(&self.volume, &self.tmpfs),
            ..request
        }
    }

    /// Puts into a new sandbox what a request for one does not say: its credentials.
    pub(crate) async fn furnish(content: &Content, sandbox: &Sandbox) -> Result<(), ClientError> {
        if let Some(vault) = &content.vault {
            sandbox.lifecycle().vault(sandbox.id()).await?.create(vault).await?;
        }
        Ok(())
    }
}

/// Checks the text here, where the person still sees what they typed, and sends it as it is.
pub(crate) fn amount<T>(text: &str) -> Result<String, T::Err>
where
    T: std::str::FromStr,
{
    text.parse::<T>().map(|_| text.to_owned())
}
