//! Settings that change while the server runs.

use std::{fmt, path::PathBuf};

use osb_sys::fs::PathError;

use crate::{
    admission::Limits,
    app::{App, Current},
    config::Config,
    key,
    tls::Tls,
};

/// Changes settings while the server runs. Copies are the same.
#[derive(Clone)]
pub struct Reload {
    app: App,
    tls: Option<Tls>,
    data_dir: PathBuf,
}

impl Reload {
    pub(crate) fn new(app: App, tls: Option<Tls>, data_dir: PathBuf) -> Self {
        Self { app, tls, data_dir }
    }

    /// Puts in force what can change: the key, the certificate, the longest life of a sandbox and
    /// what the operator says that sandboxes reach. If it fails, everything is as it was.
    pub async fn apply(&self, config: Config) -> Result<(), PathError> {
        let (next, _) = key::resolve(&config.key, &self.data_dir)?;
        // A server that asks for a key always does, and one that does not is made for loopback.
        let key = match (&self.app.current().key, next) {
            (Some(_), Some(next)) => Some(next),
            (now, _) => now.clone(),
        };
        let limits = Limits { max_timeout_seconds: config.max_sandbox_timeout_seconds };
        self.app.replace(Current { key, limits });
        if let (Some(tls), Some(identity)) = (&self.tls, config.tls) {
            tls.replace(identity);
        }
        self.app.reconciler.set_operator(config.egress).await;
        Ok(())
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").finish_non_exhaustive()
    }
}
