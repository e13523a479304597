//! Unpacks an archive as the layer of an image, and says how long that took.
//!
//! `cargo run --release -p osb-image --example unpack -- LAYER.tar DIRECTORY`

#![expect(clippy::print_stdout, reason = "what it is for is what it prints")]

use std::{path::PathBuf, time::Instant};

use osb_image::{Configuration, Images, LayerList, Settings};
use osb_registry::{Algorithm, Manifest, Verifier, media};
use osb_sys::{fs, rootless::Rights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(layer), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("give a layer and a directory for the store".into());
    };
    let owners = Rights::current()?.ids_of_layers();
    let images = Images::open(directory, owners, Settings::default())?;
    let intake = images.intake();
    let mut draft = intake.draft()?;
    draft.fill(fs::open(&layer)?, u64::MAX)?;
    let blob = draft.finish(media::OCI_LAYER)?;
    let diff_id = match layer.extension().and_then(std::ffi::OsStr::to_str) {
        Some("gz") => {
            let mut verifier = Verifier::new(Algorithm::Sha256);
            let file = std::io::BufReader::new(fs::open(&layer)?);
            std::io::copy(&mut flate2::bufread::MultiGzDecoder::new(file), &mut verifier)?;
            verifier.finish()
        }
        _ => blob.digest.clone(),
    };
    let rootfs = LayerList { kind: "layers".to_owned(), diff_ids: vec![diff_id] };
    let config = serde_json::to_vec(&Configuration { rootfs, ..Configuration::default() })?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: None,
        artifact_type: None,
        config: intake.put(media::OCI_CONFIG, &config)?,
        layers: vec![blob],
        annotations: std::collections::BTreeMap::new(),
    };
    let manifest = intake.put(media::OCI_MANIFEST, &serde_json::to_vec(&manifest)?)?;
    let begun = Instant::now();
    let image = intake.unpack(&manifest.digest, |_| ())?;
    println!("{:.0} ms {:?}", begun.elapsed().as_secs_f64() * 1000.0, image.rootfs.layers);
    Ok(())
}
