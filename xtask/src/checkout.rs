//! The checkout this program was built from, and the tools that a developer has.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// One of the developer's own programs, found as their shell would find it.
#[expect(
    clippy::disallowed_methods,
    reason = "git and cargo are the developer's: their PATH and environment decide"
)]
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// What a tool printed; its failure is an error that carries its complaint.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", complaint.trim());
    Ok(output.stdout)
}

/// A file that belongs to the project.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

impl Tracked {
    #[cfg(test)]
    pub(crate) fn new(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), content: content.into() }
    }

    /// The content, if it is text.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.content).ok().filter(|text| !text.contains('\0'))
    }

    pub(crate) fn has_extension(&self, wanted: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|e| e.to_str());
        extension.is_some_and(|extension| wanted.contains(&extension))
    }
}

/// Every file that is tracked, or would be by `git add`: tidy also speaks before the commit.
pub(crate) fn tracked() -> Result<Vec<Tracked>> {
    let list = output(tool("git").args([
        // A build may run as another user than the one who cloned.
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let list = String::from_utf8(list).context("git lists a file whose name is not text")?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let place: PathBuf = root().join(path);
        // A link is read by nobody here, and a file removed but not yet committed is gone.
        if place.is_symlink() || !place.is_file() {
            continue;
        }
        files.push(Tracked { path: path.to_owned(), content: osb_sys::fs::read(&place)? });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}
