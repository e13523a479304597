//! Where vaults are, the key that seals those that outlive the server, and the secret by which it
//! vouches for hosts.

use std::path::Path;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use osb_api::SandboxId;
use osb_egress::{
    Root,
    vault::{Keep, KeepError, VaultSettings, Vaults},
};
use osb_sys::fs::PathError;
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};

use crate::key;

/// In the data directory: the key, if the environment has none.
const KEY_FILE: &str = "vault-key";
/// In the data directory: what the authorities follow from that sandboxes with a vault trust.
const ROOT_FILE: &str = "egress-root";
/// In the data directory: a sealed file per sandbox.
const DIRECTORY: &str = "vaults";

/// Why there are no vaults.
#[derive(Debug, thiserror::Error)]
pub enum VaultsError {
    #[error(transparent)]
    Key(#[from] PathError),
    #[error("the key for vaults must be 32 bytes in base64, as `openssl rand -base64 32` gives")]
    BadKey,
    #[error(
        "the file {ROOT_FILE} in the data directory is damaged: without it no sandbox trusts the server"
    )]
    BadRoot,
    #[error("cannot open the vaults that were kept")]
    Keep(#[from] KeepError),
}

/// Opens the vaults of these sandboxes. If they are not to be kept, what was kept earlier goes.
pub(crate) fn open(
    settings: VaultSettings,
    key: Option<&SecretString>,
    data_dir: &Path,
    sandboxes: impl IntoIterator<Item = SandboxId>,
) -> Result<Vaults, VaultsError> {
    let directory = data_dir.join(DIRECTORY);
    if !settings.persist {
        Keep::clear(&directory)?;
        return Ok(Vaults::new(settings.sources));
    }
    let key = match key {
        Some(key) => decode(key)?,
        None => decode(&key::from_file(&data_dir.join(KEY_FILE))?)?,
    };
    Ok(Vaults::kept(settings.sources, Keep::new(directory, &key)?, sandboxes)?)
}

/// The secret by which the server vouches for hosts, made if it is not there. Sandboxes trust what
/// follows from it for as long as they live.
pub(crate) fn root(data_dir: &Path) -> Result<Root, VaultsError> {
    let secret =
        decode(&key::from_file(&data_dir.join(ROOT_FILE))?).map_err(|_| VaultsError::BadRoot)?;
    Ok(Root::new(*secret))
}

fn decode(key: &SecretString) -> Result<Zeroizing<[u8; Keep::KEY]>, VaultsError> {
    let text = key.expose_secret().trim();
    let bytes = STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text));
    let bytes = Zeroizing::new(bytes.map_err(|_| VaultsError::BadKey)?);
    let key = <[u8; Keep::KEY]>::try_from(bytes.as_slice()).map_err(|_| VaultsError::BadKey)?;
    Ok(Zeroizing::new(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use osb_api::egress::CreateVaultRequest;
    use osb_egress::vault::Scope;

    use super::*;

    #[test]
    fn vaults_are_kept_only_where_the_operator_wants_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let id = SandboxId::random();
        let start = |persist, key: Option<&str>| {
            let settings = VaultSettings { persist, ..VaultSettings::default() };
            open(settings, key.map(SecretString::from).as_ref(), dir.path(), [id])
        };
        let fill = |vaults: &Vaults| {
            let (request, vault) = (CreateVaultRequest::default(), vaults.of(id));
            vault.create(request, Scope::Hosts, |_| true).expect("a vault");
        };
        fill(&start(false, None).expect("vaults"));
        assert!(!dir.path().join(KEY_FILE).exists());
        let kept = start(true, None).expect("vaults");
        assert!(kept.of(id).state().is_err());
        fill(&kept);
        assert!(start(true, None).expect("vaults").of(id).state().is_ok());
        let mode = dir.path().join(KEY_FILE).metadata().expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // With another key what was kept cannot be read, and the server starts without it.
        let other = STANDARD.encode([7; 32]);
        assert!(start(true, Some(&other)).expect("vaults").of(id).state().is_err());
        assert!(start(true, None).expect("vaults").of(id).state().is_ok());
        assert!(start(false, None).expect("vaults").of(id).state().is_err());
        assert!(start(true, None).expect("vaults").of(id).state().is_err());
        assert!(matches!(start(true, Some("short")), Err(VaultsError::BadKey)));
    }
}
