//! Layouts of the OCI, written without the code that is tested.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use osb_registry::{Digest, media};
use osb_sys::fs;
use serde_json::{Value, json};

use crate::{run, text};

pub(crate) struct Layout {
    pub(crate) directory: PathBuf,
}

impl Layout {
    pub(crate) fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { directory: directory.to_owned() }
    }

    fn blob(&self, media_type: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        fs::write(self.directory.join("blobs/sha256").join(digest.hex()), content).unwrap();
        json!({"mediaType": media_type, "digest": digest, "size": content.len()})
    }

    /// Writes an image of these archives, lowest first, compressed in turn by all that there is.
    pub(crate) fn write(&self, tag: &str, layers: &[PathBuf]) {
        let mut diff_ids = Vec::new();
        let mut descriptors = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let content = fs::read(layer).unwrap();
            diff_ids.push(Digest::of(&content));
            descriptors.push(if number % 2 == 0 {
                self.blob(media::OCI_LAYER_GZIP, &gzip(&content))
            } else {
                self.blob(media::OCI_LAYER, &content)
            });
        }
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.blob(media::OCI_CONFIG, config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media::OCI_MANIFEST, "config": config,
            "layers": descriptors,
        });
        let mut manifest = self.blob(media::OCI_MANIFEST, manifest.to_string().as_bytes());
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
        fs::write(self.directory.join("index.json"), index).unwrap();
    }
}

/// Writes an archive of these layers as `docker save` would.
pub(crate) fn saved(directory: &Path, name: &str, layers: &[PathBuf]) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let (mut diff_ids, mut files) = (Vec::new(), Vec::new());
    for (number, layer) in layers.iter().enumerate() {
        let content = fs::read(layer).unwrap();
        diff_ids.push(Digest::of(&content));
        files.push(format!("{number}.tar"));
        fs::write(directory.join(format!("{number}.tar")), content).unwrap();
    }
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": files}]);
    fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
    let archive = directory.with_extension("tar");
    let (from, to) = (text(directory), text(&archive));
    run("tar", &["--create", "--file", to, "--directory", from, "."]);
    archive
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
