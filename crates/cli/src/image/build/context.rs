use std::{
    ffi::OsStr,
    io::{self, Read},
    path::{Path, PathBuf},
};

use osb_build::Ignore;
use osb_sys::fs::{self, PathError};

use super::archive::{Directory, Files};
use crate::failure::Failure;

/// The most that is read of a file that says how to build.
const MOST_BYTES: u64 = 2 << 20;

/// What is built, and by which Dockerfile.
#[derive(Debug)]
pub(super) struct Context {
    /// Where the Dockerfile is in the directory; or else what it is called, and what it says.
    pub(super) dockerfile: Option<String>,
    pub(super) content: Option<String>,
    pub(super) files: Files,
}

impl Context {
    /// Finds what the words of the command line name.
    pub(super) fn find(directory: &str, file: Option<&str>) -> Result<Self, Failure> {
        if directory == "-" {
            if file.is_some() {
                let text = "a Dockerfile from standard input has no directory: leave -f out";
                return Err(Failure::Usage(text.to_owned()));
            }
            let content = Some(standard_input()?);
            return Ok(Self { dockerfile: None, content, files: Files::None });
        }
        if directory.contains("://") || directory.starts_with("git@") {
            return Err(Failure::Usage(format!(
                "{directory} is no directory: fetch it first, and build what was fetched"
            )));
        }
        let root = real(Path::new(directory))?;
        if !root.is_dir() {
            return Err(Failure::Usage(format!("{directory} is no directory")));
        }
        match file {
            Some("-") => {
                let content = Some(standard_input()?);
                Self::with(root, None, None, content)
            }
            Some(file) => Self::by(root, Path::new(file)),
            None => {
                let file = root.join("Dockerfile");
                if file.symlink_metadata().is_err() {
                    return Err(Failure::Usage(format!(
                        "there is no Dockerfile in {directory}: name it with -f FILE"
                    )));
                }
                Self::by(root, &file)
            }
        }
    }

    /// By a Dockerfile that is in the directory or elsewhere.
    fn by(root: PathBuf, file: &Path) -> Result<Self, Failure> {
        let real = real(file)?;
        let inside = real.strip_prefix(&root).ok().and_then(Path::to_str).map(ToOwned::to_owned);
        if inside.is_some() {
            return Self::with(root, Some(file), inside, None);
        }
        let content = text(&file.display().to_string(), fs::open(&real)?)?;
        let name = file.file_name().and_then(OsStr::to_str).map(ToOwned::to_owned);
        Self::with(root, Some(file), name, Some(content))
    }

    fn with(
        root: PathBuf,
        file: Option<&Path>,
        dockerfile: Option<String>,
        content: Option<String>,
    ) -> Result<Self, Failure> {
        let beside = file.map(|file| {
            let mut name = file.as_os_str().to_owned();
            name.push(".dockerignore");
            PathBuf::from(name)
        });
        let (mut always, mut never) = (Vec::new(), Vec::new());
        let own = beside.as_deref().map(ignore).transpose()?.flatten();
        let name = dockerfile.as_deref().unwrap_or("Dockerfile");
        if content.is_none() {
            always.push(name.to_owned());
            always.push(format!("{name}.dockerignore"));
            always.push(".dockerignore".to_owned());
        } else {
            never.push(format!("{name}.dockerignore"));
            // The server would go by it.
            if own.is_some() {
                never.push(".dockerignore".to_owned());
            } else {
                always.push(".dockerignore".to_owned());
            }
        }
        let ignore = match own {
            Some(own) => own,
            None => ignore(&root.join(".dockerignore"))?.unwrap_or_default(),
        };
        let files = Files::Directory(Directory { root, ignore, always, never });
        Ok(Self { dockerfile, content, files })
    }
}

fn real(path: &Path) -> Result<PathBuf, PathError> {
    path.canonicalize().map_err(|error| PathError::new("find", path, error))
}

/// What a file says to ignore, if it is there.
fn ignore(path: &Path) -> Result<Option<Ignore>, Failure> {
    let file = match fs::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = text(&path.display().to_string(), file)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parsed = Ignore::parse(&name, text.as_bytes());
    parsed.map(Some).map_err(|problem| Failure::Content {
        name: path.display().to_string(),
        problem: problem.to_string(),
    })
}

fn standard_input() -> Result<String, Failure> {
    text("standard input", io::stdin().lock())
}

/// A text of a size that makes sense.
fn text(name: &str, from: impl Read) -> Result<String, Failure> {
    let wrong = |problem: String| Failure::Content { name: name.to_owned(), problem };
    let mut text = String::new();
    let read = from.take(MOST_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(text)
}
