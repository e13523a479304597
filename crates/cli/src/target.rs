//! Which server a client command talks to, and with which key.

use std::path::{Path, PathBuf};

use opensandbox::{ClientError, Connection, Lifecycle};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    data_dir::{self, User},
    env::{API_KEY, Environment},
    failure::Failure,
};

/// The file in a server's data directory that holds its key.
const KEY_FILE: &str = "api-key";

#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The server to talk to: host[:port], with http:// and a path if you like
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Server")]
    domain: Option<String>,
}

impl Target {
    /// A client for that server.
    ///
    /// Without a key in the environment, the key of a server on this machine is taken from its
    /// data directory, if this user may read it.
    pub(crate) fn lifecycle(&self, environment: &Environment) -> Result<Lifecycle, Failure> {
        self.connect(environment, &data_dir::candidates(User::current(), environment))
    }

    fn connect(
        &self,
        environment: &Environment,
        data_dirs: &[PathBuf],
    ) -> Result<Lifecycle, Failure> {
        let domain = self.domain.as_deref().or(environment.domain.as_deref());
        let connection = Connection::new(domain.unwrap_or(Connection::DEFAULT_DOMAIN))
            .map_err(ClientError::from)?;
        let key = match &environment.api_key {
            Some(key) => Some(key.clone()),
            // Sent to nobody but this machine: another one's server is not meant by this key.
            None if connection.is_loopback() => data_dirs.iter().find_map(|dir| read_key(dir)),
            None => None,
        };
        let connection = match key {
            Some(key) => connection
                .api_key(key.expose_secret())
                .map_err(|error| Failure::Usage(format!("{API_KEY}: {error}")))?,
            None => connection,
        };
        Ok(Lifecycle::new(connection))
    }
}

fn read_key(data_dir: &Path) -> Option<SecretString> {
    let text = osb_sys::fs::read_to_string(data_dir.join(KEY_FILE)).ok()?;
    let key = text.trim();
    (!key.is_empty()).then(|| SecretString::from(key.to_owned()))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use opensandbox::testkit::{ScriptedServer, reply};

    use super::*;

    async fn key_sent(environment: &Environment, data_dirs: &[PathBuf]) -> Option<String> {
        let server = ScriptedServer::start(|_| reply(204, "")).await;
        let target = Target { domain: Some(server.address().to_string()) };
        let lifecycle = target.connect(environment, data_dirs).unwrap();
        lifecycle.delete("x").await.unwrap();
        let request = server.seen().remove(0);
        assert_eq!(request.method(), Method::DELETE);
        let key = request.headers().get(osb_api::headers::API_KEY);
        key.map(|key| key.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn the_key_of_a_local_server_is_found() {
        let dir = tempfile::tempdir().unwrap();
        osb_sys::fs::write(dir.path().join(KEY_FILE), "from-file\n").unwrap();
        let dirs = [PathBuf::from("/nonexistent"), dir.path().to_owned()];
        let empty = Environment::default();
        assert_eq!(key_sent(&empty, &dirs).await.as_deref(), Some("from-file"));
        assert_eq!(key_sent(&empty, &[]).await, None);
        let set = Environment {
            api_key: Some(SecretString::from("from-environment".to_owned())),
            ..Environment::default()
        };
        assert_eq!(key_sent(&set, &dirs).await.as_deref(), Some("from-environment"));
    }

    #[test]
    fn https_is_refused_with_a_reason() {
        let target = Target { domain: Some("https://example.com".to_owned()) };
        let failure = target.connect(&Environment::default(), &[]).unwrap_err();
        assert!(failure.report().unwrap().contains("does not speak yet"));
    }
}
