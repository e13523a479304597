//! `--volume` and `--tmpfs`: storage for a new sandbox, as people type it.

use std::str::FromStr;

use opensandbox::api::lifecycle::{HostVolume, PvcVolume, TmpfsVolume, Volume};
use osb_core::{Memory, is_volume_name};

/// `SOURCE:PATH[:ro]`, where a source with a slash in front is a path of the server's host and any
/// other the name of a volume that the server keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    source: String,
    path: String,
    read_only: bool,
}

/// `PATH:SIZE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scratch {
    path: String,
    size: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidVolume {
    #[error(
        "it should look like SOURCE:/PATH, or SOURCE:/PATH:ro to keep it from being written; a \
         source that begins with a slash is a path of the host, any other the name of a volume"
    )]
    Mount,
    #[error(
        "{0:?} is neither a path of the server's host, which begins with a slash, nor the name of a \
         volume, which has small letters, digits and, between them, dashes"
    )]
    Source(String),
    #[error("it should look like PATH:SIZE, such as /scratch:64Mi")]
    Scratch,
}

impl FromStr for Mount {
    type Err = InvalidVolume;

    fn from_str(text: &str) -> Result<Self, InvalidVolume> {
        let mut parts = text.split(':');
        let (source, path) = (parts.next(), parts.next());
        let read_only = match (parts.next(), parts.next()) {
            (None, _) | (Some("rw"), None) => false,
            (Some("ro"), None) => true,
            _ => return Err(InvalidVolume::Mount),
        };
        match (source, path) {
            (Some(source), Some(path)) if !source.is_empty() && path.starts_with('/') => {
                if !source.starts_with('/') && !is_volume_name(source) {
                    return Err(InvalidVolume::Source(source.to_owned()));
                }
                Ok(Self { source: source.to_owned(), path: path.to_owned(), read_only })
            }
            _ => Err(InvalidVolume::Mount),
        }
    }
}

impl FromStr for Scratch {
    type Err = InvalidVolume;

    fn from_str(text: &str) -> Result<Self, InvalidVolume> {
        let (path, size) = text.split_once(':').ok_or(InvalidVolume::Scratch)?;
        if !path.starts_with('/') || size.parse::<Memory>().is_err() {
            return Err(InvalidVolume::Scratch);
        }
        Ok(Self { path: path.to_owned(), size: size.to_owned() })
    }
}

/// The volumes of a request, named by their number.
pub(crate) fn to_request(mounts: &[Mount], scratches: &[Scratch]) -> Option<Vec<Volume>> {
    let empty = |mount_path: &str, read_only| Volume {
        name: String::new(),
        host: None,
        pvc: None,
        ossfs: None,
        tmpfs: None,
        mount_path: mount_path.to_owned(),
        read_only,
        sub_path: None,
    };
    let mounts = mounts.iter().map(|mount| {
        let volume = empty(&mount.path, mount.read_only);
        if mount.source.starts_with('/') {
            Volume { host: Some(HostVolume { path: mount.source.clone() }), ..volume }
        } else {
            let pvc = PvcVolume {
                claim_name: mount.source.clone(),
                create_if_not_exists: true,
                delete_on_sandbox_termination: false,
                storage_class: None,
                storage: None,
                access_modes: None,
            };
            Volume { pvc: Some(pvc), ..volume }
        }
    });
    let scratches = scratches.iter().map(|scratch| {
        let tmpfs = Some(TmpfsVolume { size: scratch.size.clone() });
        Volume { tmpfs, ..empty(&scratch.path, false) }
    });
    let named = mounts.chain(scratches).zip(1..);
    let volumes: Vec<_> = named
        .map(|(volume, number)| Volume { name: format!("volume-{number}"), ..volume })
        .collect();
    (!volumes.is_empty()).then_some(volumes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_a_slash_is_a_path_and_others_are_names() {
        let mounts = ["/srv/a:/data:ro", "models:/models"].map(|text| text.parse().unwrap());
        let volumes = to_request(&mounts, &["/scratch:64Mi".parse().unwrap()]).unwrap();
        let [host, kept, memory] = volumes.as_slice() else { panic!("{volumes:?}") };
        assert_eq!(host.host.as_ref().unwrap().path, "/srv/a");
        assert_eq!((host.mount_path.as_str(), host.read_only), ("/data", true));
        assert_eq!(kept.pvc.as_ref().unwrap().claim_name, "models");
        assert_eq!((kept.name.as_str(), kept.read_only), ("volume-2", false));
        assert_eq!(memory.tmpfs.as_ref().unwrap().size, "64Mi");
        assert_eq!(to_request(&[], &[]), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a", "a:b", ":/x", "a:/x:rx", "a:/x:ro:", "/a:"] {
            assert_eq!(text.parse::<Mount>(), Err(InvalidVolume::Mount), "{text:?}");
        }
        for source in ["rel/dir", "./dir", "~/dir", "Models"] {
            let refused = format!("{source}:/x").parse::<Mount>();
            assert_eq!(refused, Err(InvalidVolume::Source(source.to_owned())));
        }
        for text in ["/x", "x:1Mi", "/x:", "/x:much"] {
            assert_eq!(text.parse::<Scratch>(), Err(InvalidVolume::Scratch), "{text:?}");
        }
    }
}
