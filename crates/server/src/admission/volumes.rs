use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use osb_api::{codes, lifecycle};
use osb_core::{Memory, Volume, VolumeSource, is_volume_name};

use crate::error::ApiError;

/// The most volumes of one sandbox.
const MAX_VOLUMES: usize = 16;
/// The longest path, of the host or of the sandbox.
const MAX_PATH: usize = 1024;
/// The longest name of a volume within its sandbox: that of a DNS label.
const MAX_NAME: usize = 63;
/// Places that are the sandbox's own, with all below them.
const RESERVED: [&str; 4] = ["/dev", "/proc", "/sys", "/opt/opensandbox"];
/// The one place below them that a volume in memory may take.
const SHARED_MEMORY: &str = "/dev/shm";

/// What the request's volumes come to, in its order. Whether they can be had, the runtime finds
/// out: it resolves every path, and knows what of the host its operator allowed.
pub(super) fn admit(volumes: Vec<lifecycle::Volume>) -> Result<Vec<Volume>, ApiError> {
    if volumes.len() > MAX_VOLUMES {
        return Err(ApiError::invalid(format!("a sandbox has at most {MAX_VOLUMES} volumes")));
    }
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    let mut admitted = Vec::new();
    for volume in volumes {
        let name = volume.name.clone();
        if name.len() > MAX_NAME || !is_volume_name(&name) {
            return Err(ApiError::invalid_as(
                codes::VOLUME_INVALID_NAME,
                format!(
                    "volumes[].name must be at most {MAX_NAME} small letters, digits and, between \
                     them, dashes, and {:?} is not",
                    excerpt(&name)
                ),
            ));
        }
        let volume = one(volume)?;
        if !places.insert(volume.at.clone()) {
            return Err(ApiError::invalid_as(
                codes::VOLUME_INVALID_MOUNT_PATH,
                format!("two volumes have the mountPath {}", volume.at.display()),
            ));
        }
        admitted.push(volume);
        if let Some(twice) = names.replace(name) {
            return Err(ApiError::invalid_as(
                codes::VOLUME_DUPLICATE_NAME,
                format!("two volumes have the name {twice:?}"),
            ));
        }
    }
    Ok(admitted)
}

fn one(volume: lifecycle::Volume) -> Result<Volume, ApiError> {
    let lifecycle::Volume { name, host, pvc, ossfs, tmpfs, mount_path, read_only, sub_path } =
        volume;
    let source = match (host, pvc, ossfs, tmpfs) {
        (Some(host), None, None, None) => VolumeSource::Host(host_path(&host.path)?),
        (None, Some(claim), None, None) => claimed(claim)?,
        (None, None, None, Some(memory)) => {
            let size = memory.size.parse::<Memory>();
            let size = size.map_err(|error| ApiError::invalid(format!("tmpfs.size: {error}")))?;
            VolumeSource::Tmpfs { size }
        }
        (None, None, Some(_), None) => {
            return Err(ApiError::invalid_as(
                codes::VOLUME_UNSUPPORTED_BACKEND,
                "ossfs volumes are not supported: mount the bucket on the host and use host",
            ));
        }
        _ => {
            return Err(ApiError::invalid_as(
                codes::VOLUME_INVALID_BACKEND,
                format!("volume {name:?} must have exactly one of host, pvc, ossfs and tmpfs"),
            ));
        }
    };
    let is_memory = matches!(source, VolumeSource::Tmpfs { .. });
    let sub_path = sub_path.as_deref().map(sub_path_of).transpose()?.unwrap_or_default();
    if is_memory && (read_only || !sub_path.as_os_str().is_empty()) {
        return Err(ApiError::invalid_as(
            codes::VOLUME_INVALID_BACKEND,
            format!("volume {name:?} is new and empty memory: leave out readOnly and subPath"),
        ));
    }
    Ok(Volume { source, sub_path, at: place(&mount_path, is_memory)?, read_only })
}

fn claimed(claim: lifecycle::PvcVolume) -> Result<VolumeSource, ApiError> {
    if !is_volume_name(&claim.claim_name) {
        return Err(ApiError::invalid_as(
            codes::VOLUME_INVALID_PVC_NAME,
            format!(
                "pvc.claimName must be at most 253 small letters, digits and, between them, \
                 dashes, and {:?} is not",
                excerpt(&claim.claim_name)
            ),
        ));
    }
    // A wish for room that a cluster's storage may grant; here there is as much as the disk has.
    if let Some(storage) = &claim.storage {
        let size = storage.parse::<Memory>();
        size.map_err(|error| ApiError::invalid(format!("pvc.storage: {error}")))?;
    }
    Ok(VolumeSource::Named {
        name: claim.claim_name,
        create: claim.create_if_not_exists,
        ephemeral: claim.delete_on_sandbox_termination,
    })
}

fn host_path(text: &str) -> Result<PathBuf, ApiError> {
    absolute(text).ok_or_else(|| {
        ApiError::invalid_as(
            codes::VOLUME_INVALID_HOST_PATH,
            format!("host.path must be {ABSOLUTE}, and {:?} is not", excerpt(text)),
        )
    })
}

fn place(text: &str, is_memory: bool) -> Result<PathBuf, ApiError> {
    let invalid = |message: String| ApiError::invalid_as(codes::VOLUME_INVALID_MOUNT_PATH, message);
    let path = absolute(text).ok_or_else(|| {
        invalid(format!("mountPath must be {ABSOLUTE}, and {:?} is not", excerpt(text)))
    })?;
    let reserved = RESERVED.iter().find(|reserved| path.starts_with(reserved));
    match reserved {
        Some(_) if is_memory && path == Path::new(SHARED_MEMORY) => Ok(path),
        Some(reserved) => Err(invalid(format!("no volume can be mounted at or below {reserved}"))),
        None => Ok(path),
    }
}

fn sub_path_of(text: &str) -> Result<PathBuf, ApiError> {
    if text.is_empty() {
        return Ok(PathBuf::new());
    }
    absolute(&format!("/{text}")).and_then(|path| Some(path.strip_prefix("/").ok()?.into())).ok_or_else(
        || {
            ApiError::invalid_as(
                codes::VOLUME_INVALID_SUB_PATH,
                format!(
                    "subPath must be a relative path of at most {MAX_PATH} bytes without empty, `.` \
                     and `..` parts, and {:?} is not",
                    excerpt(text)
                ),
            )
        },
    )
}

const ABSOLUTE: &str =
    "an absolute path, not the root, of at most 1024 bytes without empty, `.` and `..` parts";

/// The path if it is [`ABSOLUTE`]; one slash at its end is forgiven.
fn absolute(text: &str) -> Option<PathBuf> {
    let parts = text.strip_prefix('/')?;
    let parts = parts.strip_suffix('/').unwrap_or(parts);
    let is_plain = text.len() <= MAX_PATH
        && !text.chars().any(char::is_control)
        && parts.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255);
    is_plain.then(|| Path::new("/").join(parts))
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(volumes: Value) -> Result<Vec<Volume>, ApiError> {
        admit(serde_json::from_value(volumes).expect("volumes"))
    }

    fn kept(name: &str, at: &str) -> Value {
        json!({"name": name, "pvc": {"claimName": "c"}, "mountPath": at})
    }

    #[track_caller]
    fn refused(volume: &Value, code: &str) {
        let shown = volume.to_string();
        match check(json!([volume])) {
            Ok(_) => panic!("{shown} was accepted"),
            Err(error) => assert!(format!("{error:?}").contains(code), "{shown}: {error:?}"),
        }
    }

    #[test]
    fn each_kind_of_volume_is_understood() {
        let volumes = check(json!([
            {"name": "a", "host": {"path": "/srv/x/"}, "mountPath": "/data/", "readOnly": true},
            {"name": "b", "pvc": {"claimName": "models", "deleteOnSandboxTermination": true,
                                  "storage": "10Gi"}, "mountPath": "/m", "subPath": "v1/x"},
            {"name": "c", "tmpfs": {"size": "64Mi"}, "mountPath": "/dev/shm"},
        ]))
        .expect("volumes");
        assert_eq!(volumes[0].source, VolumeSource::Host("/srv/x".into()));
        assert_eq!((volumes[0].at.to_str(), volumes[0].read_only), (Some("/data"), true));
        let models =
            VolumeSource::Named { name: "models".to_owned(), create: true, ephemeral: true };
        assert_eq!((&volumes[1].source, volumes[1].sub_path.to_str()), (&models, Some("v1/x")));
        let size = Memory::from_bytes(64 << 20);
        assert_eq!(volumes[2].source, VolumeSource::Tmpfs { size });
    }

    #[test]
    fn a_place_is_plain_and_free() {
        for at in [
            "",
            "/",
            "//",
            "data",
            "/a//b",
            "/a/../b",
            "/a/.",
            "/a\0b",
            "/a\nb",
            "/proc",
            "/sys/x",
            "/dev",
            "/dev/shm",
            "/dev/shm/x",
            "/opt/opensandbox",
            &format!("/{}", "x".repeat(256)),
        ] {
            refused(&kept("a", at), codes::VOLUME_INVALID_MOUNT_PATH);
        }
        for at in ["/a", "/processes", "/opt", "/etc/x", "/..a"] {
            assert!(check(json!([kept("a", at)])).is_ok(), "{at}");
        }
        let same = check(json!([kept("a", "/x"), kept("b", "/x/")])).unwrap_err();
        assert!(format!("{same:?}").contains(codes::VOLUME_INVALID_MOUNT_PATH));
        assert!(check(json!([kept("a", "/x"), kept("b", "/x/y")])).is_ok());
    }

    #[test]
    fn names_are_labels_and_differ() {
        for name in ["", "A", "a_b", "-a", "a.b", &"x".repeat(64)] {
            refused(&kept(name, "/x"), codes::VOLUME_INVALID_NAME);
        }
        let twice = check(json!([kept("a", "/x"), kept("a", "/y")])).unwrap_err();
        assert!(format!("{twice:?}").contains(codes::VOLUME_DUPLICATE_NAME));
        let many: Vec<Value> = (0..17).map(|n| kept(&format!("v{n}"), &format!("/v{n}"))).collect();
        assert!(check(Value::from(many)).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_code() {
        let with = |more: Value| {
            let mut volume = json!({"name": "a", "mountPath": "/x"});
            let more = more.as_object().expect("an object").clone();
            volume.as_object_mut().expect("an object").extend(more);
            volume
        };
        let ossfs = json!({"bucket": "b", "endpoint": "e", "accessKeyId": "i",
                           "accessKeySecret": "s"});
        for (more, code) in [
            (json!({}), codes::VOLUME_INVALID_BACKEND),
            (
                json!({"host": {"path": "/x"}, "pvc": {"claimName": "c"}}),
                codes::VOLUME_INVALID_BACKEND,
            ),
            (json!({"ossfs": ossfs}), codes::VOLUME_UNSUPPORTED_BACKEND),
            (json!({"pvc": {"claimName": "a/b"}}), codes::VOLUME_INVALID_PVC_NAME),
            (json!({"pvc": {"claimName": ".."}}), codes::VOLUME_INVALID_PVC_NAME),
            (json!({"pvc": {"claimName": "c", "storage": "x"}}), codes::INVALID_PARAMETER),
            (json!({"host": {"path": "C:\\data"}}), codes::VOLUME_INVALID_HOST_PATH),
            (json!({"host": {"path": "/srv/../etc"}}), codes::VOLUME_INVALID_HOST_PATH),
            (json!({"host": {"path": "/"}}), codes::VOLUME_INVALID_HOST_PATH),
            (json!({"tmpfs": {"size": "0"}}), codes::INVALID_PARAMETER),
            (json!({"tmpfs": {"size": "1Mi"}, "readOnly": true}), codes::VOLUME_INVALID_BACKEND),
            (json!({"tmpfs": {"size": "1Mi"}, "subPath": "a"}), codes::VOLUME_INVALID_BACKEND),
        ] {
            refused(&with(more), code);
        }
        for sub_path in ["/a", "..", "a/../b", "a//b", "./a", "a/.."] {
            let more = json!({"pvc": {"claimName": "c"}, "subPath": sub_path});
            refused(&with(more), codes::VOLUME_INVALID_SUB_PATH);
        }
    }
}
