use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use osb_sys::{identity::Identity, scope};

use crate::{accounts, blocking::blocking, daemon::Daemon, error::ApiError};

/// The largest user and group; the kernel gives the next number a meaning of its own.
const LAST_ID: u32 = u32::MAX - 1;

/// Whose rights a request has over files, and how its paths are meant.
///
/// Below `/v1/filesystem/{uid}/{gid}` they are those of that user and group, with the groups that
/// the sandbox's own files give the user; elsewhere those of the daemon, and what is made is the
/// user's that programs run as.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    daemon: Arc<Daemon>,
    /// Who is named.
    identity: Option<Arc<Identity>>,
}

impl Scope {
    /// The absolute path that a caller means.
    pub(super) fn path(&self, given: &str) -> Result<PathBuf, ApiError> {
        if given.is_empty() || given.contains('\0') {
            return Err(ApiError::invalid(format!("{given:?} is not a path")));
        }
        // Without a slash or a dot at its end, which would mean what a link points to.
        Ok(self.daemon.environment.path(given).components().collect())
    }

    /// Runs file operations with the rights of the scope, where they may take long without holding
    /// up anything else.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (identity, daemon) = (self.identity.clone(), Arc::clone(&self.daemon));
        blocking(move || {
            let (acting, done) = match (&identity, daemon.environment.user()) {
                (None, None) => return work(),
                (None, Some(owner)) => (owner, scope::owning(owner, work)),
                (Some(identity), _) => (&**identity, scope::within(identity, work)),
            };
            let Identity { uid, gid, .. } = acting;
            done.unwrap_or_else(|error| {
                Err(ApiError::refused(format!("cannot act as user {uid}, group {gid}: {error}")))
            })
        })
        .await
    }

    pub(super) fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }
}

impl FromRequestParts<Arc<Daemon>> for Scope {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        daemon: &Arc<Daemon>,
    ) -> Result<Self, Self::Rejection> {
        let parameters = RawPathParams::from_request_parts(parts, daemon)
            .await
            .map_err(|error| ApiError::invalid(error.to_string()))?;
        let one = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let identity = match (one("uid"), one("gid")) {
            (Some(uid), Some(gid)) => {
                let (uid, gid) = (id("user", uid)?, id("group", gid)?);
                let identity = blocking(move || Ok(accounts::identity(uid, Some(gid))));
                Some(Arc::new(identity.await?))
            }
            _ => None,
        };
        Ok(Self { daemon: Arc::clone(daemon), identity })
    }
}

fn id(kind: &str, text: &str) -> Result<u32, ApiError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let id = digits.then(|| text.parse().ok()).flatten().filter(|&id| id <= LAST_ID);
    id.ok_or_else(|| {
        ApiError::invalid(format!("the {kind} {text:?} is not a number from 0 to {LAST_ID}"))
    })
}

/// Whether a path ends in `..`, so that it has no name of its own.
pub(super) fn is_nameless(path: &Path) -> bool {
    !matches!(path.components().next_back(), Some(Component::Normal(_)))
}
