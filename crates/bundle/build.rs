//! Builds execd as a static program, in a target directory of its own: cargo holds a lock on the
//! one that this script runs for.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What execd is made of, from the root of the workspace.
const SOURCES: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "crates/api/Cargo.toml",
    "crates/api/src",
    "crates/core/Cargo.toml",
    "crates/core/src",
    "crates/execd/Cargo.toml",
    "crates/execd/src",
    "crates/sys/Cargo.toml",
    "crates/sys/src",
];

/// Names a static execd that is built already, as `make build` does to compile what execd and the
/// server share only once.
const READY: &str = "OSB_EXECD";

/// Static, so that it runs in any image, and at a fixed address, so that no page of it is private
/// to a sandbox because of relocations. Random numbers without a device, which images may lack.
const RUSTFLAGS: &str = concat!(
    "-C target-feature=+crt-static -C relocation-model=static -C force-unwind-tables=no ",
    r#"-C strip=symbols --cfg getrandom_backend="linux_getrandom""#
);

/// What the build of the workspace sets for its own compiler, `cargo clippy` included.
const OF_THE_OUTER_BUILD: &[&str] = &[
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CLIPPY_ARGS",
    "RUSTC_WORKSPACE_WRAPPER",
];

fn main() {
    let root = variable("CARGO_MANIFEST_DIR").join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-env-changed={READY}");
    let out = variable("OUT_DIR");
    if let Some(ready) = optional(READY) {
        println!("cargo::rerun-if-changed={}", ready.display());
        return keep(&ready, &out);
    }
    let target_dir = target_dir(&out).join("execd-build");
    let triple = variable("TARGET");
    build(&root, &target_dir, &triple);
    keep(&target_dir.join(&triple).join("release/execd"), &out);
}

fn keep(built: &Path, out: &Path) {
    if let Err(error) = fs::copy(built, out.join("execd-static")) {
        panic!("cannot copy {}: {error}", built.display());
    }
}

fn build(root: &Path, target_dir: &Path, triple: &Path) {
    #[expect(clippy::disallowed_methods, reason = "the workspace's own crates are not built yet")]
    let mut cargo = Command::new(variable("CARGO"));
    for name in OF_THE_OUTER_BUILD {
        cargo.env_remove(name);
    }
    // With a triple, the flags are for execd alone and not for macros and build scripts.
    cargo
        .env("RUSTFLAGS", RUSTFLAGS)
        .args(["build", "--release", "--package", "osb-execd", "--bin", "execd"])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target")
        .arg(triple)
        .arg("--target-dir")
        .arg(target_dir);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building execd failed: {status}"),
        Err(error) => panic!("cannot run cargo: {error}"),
    }
}

/// The target directory of the workspace, so that all of its profiles share one execd.
fn target_dir(out: &Path) -> PathBuf {
    // `OUT_DIR` is `<target>/<profile>/build/<package>/out`, with or without a triple in it.
    out.ancestors().nth(4).unwrap_or(out).to_owned()
}

fn variable(name: &str) -> PathBuf {
    match optional(name) {
        Some(value) => value,
        None => panic!("cargo did not set {name}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is how cargo speaks to build scripts")]
fn optional(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from)
}
