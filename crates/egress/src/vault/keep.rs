//! Vaults on disk, sealed: one file per sandbox, which says nothing without the key.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};
use secrecy::zeroize::Zeroizing;

/// The first byte of every file.
const VERSION: u8 = 1;

/// A directory of sealed vaults.
pub struct Keep {
    directory: PathBuf,
    key: LessSafeKey,
}

/// Why a vault is not kept, or cannot be read again.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    File(#[from] PathError),
    #[error("the vault cannot be sealed")]
    Seal,
    #[error("the kept vault was sealed with another key, or is damaged")]
    Open,
}

impl Keep {
    /// The length of a key.
    pub const KEY: usize = 32;

    /// Keeps vaults in a directory, which is made if it is not there.
    pub fn new(directory: PathBuf, key: &[u8; Self::KEY]) -> Result<Self, KeepError> {
        fs::create_private_dir_all(&directory)?;
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| KeepError::Seal)?;
        Ok(Self { directory, key: LessSafeKey::new(key) })
    }

    /// Removes whatever was kept there.
    pub fn clear(directory: &Path) -> Result<(), KeepError> {
        for name in fs::names(directory)? {
            fs::remove_file(directory.join(name))?;
        }
        Ok(())
    }

    pub(super) fn write(
        &self,
        id: SandboxId,
        mut content: Zeroizing<Vec<u8>>,
    ) -> Result<(), KeepError> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| KeepError::Seal)?;
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::from(&nonce), bound_to(id), &mut content)
            .map_err(|_| KeepError::Seal)?;
        let sealed = [&[VERSION], &nonce[..], &content, tag.as_ref()].concat();
        Ok(fs::write_whole(self.at(id), &sealed, 0o600)?)
    }

    /// What was kept for this sandbox, if anything was.
    pub(super) fn read(&self, id: SandboxId) -> Result<Option<Zeroizing<Vec<u8>>>, KeepError> {
        let mut sealed = match fs::read(self.at(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => Zeroizing::new(result?),
        };
        let (head, sealed) = sealed.split_at_mut_checked(1 + NONCE_LEN).ok_or(KeepError::Open)?;
        let (version, nonce) = head.split_first().ok_or(KeepError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| KeepError::Open)?;
        if *version != VERSION {
            return Err(KeepError::Open);
        }
        let opened = self.key.open_in_place(nonce, bound_to(id), sealed);
        Ok(Some(Zeroizing::new(opened.map_err(|_| KeepError::Open)?.to_vec())))
    }

    /// Absence is success.
    pub(super) fn remove(&self, id: SandboxId) -> Result<(), KeepError> {
        Ok(fs::remove_file(self.at(id))?)
    }

    /// Removes whatever does not belong to one of these sandboxes, such as what was being written
    /// when a server was killed.
    pub(super) fn sweep(&self, belongs: impl Fn(SandboxId) -> bool) -> Result<(), KeepError> {
        for name in fs::names(&self.directory)? {
            if !name.parse().is_ok_and(&belongs) {
                fs::remove_file(self.directory.join(name))?;
            }
        }
        Ok(())
    }

    fn at(&self, id: SandboxId) -> PathBuf {
        self.directory.join(id.to_string())
    }
}

/// A file of one sandbox is of no use in the place of another's.
fn bound_to(id: SandboxId) -> Aad<String> {
    Aad::from(format!("vault of {id}"))
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keep").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_read_with_the_same_key_for_the_same_sandbox_alone() {
        let directory = tempfile::tempdir().unwrap();
        let keep = |key| Keep::new(directory.path().join("vaults"), &[key; 32]).unwrap();
        let (id, other) = (SandboxId::random(), SandboxId::random());
        let content = Zeroizing::new(b"hunter2".to_vec());
        assert!(keep(1).read(id).unwrap().is_none());
        keep(1).write(id, content.clone()).unwrap();
        assert_eq!(keep(1).read(id).unwrap(), Some(content));
        let file = directory.path().join("vaults").join(id.to_string());
        let mut bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        assert!(matches!(keep(2).read(id), Err(KeepError::Open)));
        fs::write(directory.path().join("vaults").join(other.to_string()), &bytes).unwrap();
        assert!(matches!(keep(1).read(other), Err(KeepError::Open)));
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(matches!(keep(1).read(id), Err(KeepError::Open)));
        fs::write(&file, b"").unwrap();
        assert!(matches!(keep(1).read(id), Err(KeepError::Open)));
        keep(1).remove(id).unwrap();
        keep(1).remove(id).unwrap();
        assert!(keep(1).read(id).unwrap().is_none());
        fs::write(file.with_extension("partial"), b"x").unwrap();
        keep(1).sweep(|known| known == other).unwrap();
        assert_eq!(fs::names(directory.path().join("vaults")).unwrap(), [other.to_string()]);
    }
}
