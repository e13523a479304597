//! Writes down what is in `environments/`, so that the program carries it along.

use std::{
    env,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

fn main() {
    let root = variable("CARGO_MANIFEST_DIR").join("../../environments");
    let root = root.canonicalize().expect("the environments are there");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut text = "const FILES: &[(&str, &[Carried])] = &[\n".to_owned();
    for environment in entries(&root).into_iter().filter(|path| path.is_dir()) {
        let name = environment.file_name().expect("it is below another").display();
        writeln!(text, "({:?}, &[", name.to_string()).expect("writing to a string succeeds");
        carry(&environment, &environment, &mut text);
        text.push_str("]),\n");
    }
    text.push_str("];\n");
    write(&variable("OUT_DIR").join("environments.rs"), &text);
}

/// A line for each file in the directory and below it.
fn carry(environment: &Path, directory: &Path, text: &mut String) {
    println!("cargo::rerun-if-changed={}", directory.display());
    for path in entries(directory) {
        if path.is_dir() {
            carry(environment, &path, text);
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.strip_prefix(environment).expect("it is below the environment");
        let mode = path.metadata().expect("the file is there").permissions().mode();
        writeln!(
            text,
            "Carried {{ path: {:?}, is_executable: {}, content: include_bytes!({:?}) }},",
            name.display().to_string(),
            mode & 0o100 != 0,
            path.display().to_string(),
        )
        .expect("writing to a string succeeds");
    }
}

/// What is in a directory, always in the same order.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().expect("the directory can be read");
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("the directory can be read").path()).collect();
    paths.sort_unstable();
    paths
}

#[expect(clippy::disallowed_methods, reason = "a build script has no crates of ours")]
fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("cargo's directory can be written");
}

#[expect(clippy::disallowed_methods, reason = "this is how cargo tells a build script anything")]
fn variable(name: &str) -> PathBuf {
    env::var_os(name).expect("cargo sets it").into()
}
