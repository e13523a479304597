//! The directory that is built.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use osb_image::{Follow, Kind, Stack};

use crate::{Ignore, Problem, problem::Fault};

/// The most that is read of a file that says how to build.
const MOST_BYTES: u64 = 2 << 20;

/// The files that a build may copy from. Somebody else has put them there.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) stack: Arc<Stack>,
    pub(crate) ignore: Arc<Ignore>,
}

#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The file that says what to ignore is wrong.
    #[error(transparent)]
    Problem(#[from] Problem),
    #[error("there is no {0} in the directory that is built")]
    Missing(String),
    #[error("cannot read {path} in the directory that is built")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Context {
    /// Opens a directory. What the file beside the Dockerfile that is called like it, or else the one
    /// in `directory`, says to ignore is not part of it.
    pub fn open(directory: &Path, dockerfile: &str) -> Result<Self, ContextError> {
        let name = || directory.display().to_string();
        let stack = Stack::plain(directory).map_err(|error| ContextError::Read {
            path: name(),
            source: io::Error::other(error),
        })?;
        let mut ignore = Ignore::default();
        for name in [format!("{dockerfile}.dockerignore"), ".dockerignore".to_owned()] {
            if let Some(content) = read(&stack, &name)? {
                ignore = Ignore::parse(&name, &content)?;
                break;
            }
        }
        Ok(Self { stack: Arc::new(stack), ignore: Arc::new(ignore) })
    }

    /// The content of a Dockerfile in the directory, be it ignored or not.
    pub fn dockerfile(&self, path: &str) -> Result<Vec<u8>, ContextError> {
        let missing = || ContextError::Missing(path.to_owned());
        read(&self.stack, path)?.ok_or_else(missing)
    }
}

/// A small file, if it is there.
fn read(stack: &Stack, path: &str) -> Result<Option<Vec<u8>>, ContextError> {
    let wrong = |source| ContextError::Read { path: path.to_owned(), source };
    let found = match stack.find(Path::new(path), Follow::Last) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        found => found.map_err(wrong)?,
    };
    let Some(seen) = found.seen else { return Ok(None) };
    let (Some(directory), Some(name)) = (found.directory(), found.path.file_name()) else {
        return Ok(None);
    };
    if seen.kind != Kind::File || seen.size > MOST_BYTES {
        let what = format!("it is no file of at most {MOST_BYTES} bytes");
        return Err(wrong(io::Error::other(Fault::new(what))));
    }
    let mut content = Vec::new();
    let file = directory.open(name).map_err(wrong)?;
    file.take(MOST_BYTES).read_to_end(&mut content).map_err(wrong)?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use osb_sys::fs;

    use super::*;

    #[test]
    fn the_nearer_file_says_what_to_ignore() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        fs::create_dir_all(root.path().join("sub")).unwrap();
        write(".dockerignore", "a");
        write("sub/Dockerfile", "FROM x\n");
        let context = Context::open(root.path(), "sub/Dockerfile").unwrap();
        assert!(context.ignore.excludes("a") && !context.ignore.excludes("b"));
        write("sub/Dockerfile.dockerignore", "b");
        let context = Context::open(root.path(), "sub/Dockerfile").unwrap();
        assert!(context.ignore.excludes("b") && !context.ignore.excludes("a"));
        assert_eq!(context.dockerfile("sub/Dockerfile").unwrap(), b"FROM x\n");
    }

    #[test]
    fn nothing_outside_is_read() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("in");
        fs::create_dir_all(&inside).unwrap();
        fs::write(root.path().join("Dockerfile"), "FROM outside").unwrap();
        fs::symlink("../Dockerfile", inside.join("Dockerfile")).unwrap();
        fs::symlink("/dev/zero", inside.join("endless")).unwrap();
        let context = Context::open(&inside, "Dockerfile").unwrap();
        for path in ["Dockerfile", "../Dockerfile", "endless", "missing", "/etc/passwd"] {
            assert!(context.dockerfile(path).is_err(), "{path}");
        }
    }
}
