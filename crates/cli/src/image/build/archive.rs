use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::Metadata,
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use opensandbox::api::images::BuildRequest;
use osb_build::Ignore;
use osb_image::{Entry, Tarball, What};
use osb_sys::fs::{self, PathError};

/// What the server is sent: what is to be built, and the files for it.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) request: BuildRequest,
    pub(crate) files: Files,
}

/// The files of a build.
#[derive(Debug)]
pub(crate) enum Files {
    None,
    /// Those of a directory.
    Directory(Directory),
    /// Those that came with the program.
    Carried(&'static [Carried]),
}

/// A directory but for what is ignored.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    pub(crate) ignore: Ignore,
    /// What is sent although it is ignored, since the build is described by it.
    pub(crate) always: Vec<String>,
    /// What is not sent although it is not ignored, since it describes other builds.
    pub(crate) never: Vec<String>,
}

/// A file that came with the program.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) path: &'static str,
    pub(crate) is_executable: bool,
    pub(crate) content: &'static [u8],
}

impl Archive {
    /// Writes it. A file is read while it is written, and nothing is held whole.
    pub(crate) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut packing = Packing { tarball: Tarball::new(to) };
        let request = serde_json::to_vec(&self.request)?;
        let size = request.len() as u64;
        packing.put(Path::new("build.json"), What::File { size }, 0o600, 0, &request[..])?;
        packing.put(Path::new("context"), What::Directory, 0o755, 0, io::empty())?;
        match &self.files {
            Files::None => {}
            Files::Directory(directory) => {
                packing.below(directory, Path::new(""), &mut Vec::new())?;
            }
            Files::Carried(files) => {
                for file in *files {
                    let path = Path::new("context").join(file.path);
                    let size = file.content.len() as u64;
                    let mode = if file.is_executable { 0o755 } else { 0o644 };
                    packing.put(&path, What::File { size }, mode, 0, file.content)?;
                }
            }
        }
        packing.tarball.finish()?;
        Ok(())
    }
}

struct Packing<'a> {
    tarball: Tarball<&'a mut dyn Write>,
}

impl Packing<'_> {
    /// Packs what is in the directory at `path`. Directories in `around` are packed before the first
    /// thing in them is: they are ignored but for that.
    fn below(
        &mut self,
        directory: &Directory,
        path: &Path,
        around: &mut Vec<(PathBuf, Metadata)>,
    ) -> io::Result<()> {
        for name in names(&directory.root.join(path))? {
            let path = path.join(name);
            let real = directory.root.join(&path);
            let about = real.symlink_metadata().map_err(|error| named("look at", &real, error))?;
            let text = path.to_string_lossy();
            if directory.never.iter().any(|never| *never == text) {
                continue;
            }
            let is_out = directory.ignore.excludes(&text)
                && !directory.always.iter().any(|always| *always == text);
            if about.is_dir() {
                if is_out && !directory.may_hold(&text) {
                    continue;
                }
                around.push((path.clone(), about));
                let known = around.len();
                if !is_out {
                    self.around(around)?;
                }
                self.below(directory, &path, around)?;
                // What was packed is not in it any more.
                around.truncate(known.saturating_sub(1).min(around.len()));
            } else if !is_out {
                self.around(around)?;
                self.one(&path, &real, &about)?;
            }
        }
        Ok(())
    }

    fn around(&mut self, around: &mut Vec<(PathBuf, Metadata)>) -> io::Result<()> {
        for (path, about) in around.drain(..) {
            let path = Path::new("context").join(path);
            self.put(&path, What::Directory, about.mode(), about.mtime(), io::empty())?;
        }
        Ok(())
    }

    fn one(&mut self, path: &Path, real: &Path, about: &Metadata) -> io::Result<()> {
        let path = Path::new("context").join(path);
        let (mode, at) = (about.mode(), about.mtime());
        let kind = about.file_type();
        if kind.is_file() {
            let file = fs::open(real).map_err(io::Error::other)?;
            self.put(&path, What::File { size: about.len() }, mode, at, file)
        } else if kind.is_symlink() {
            let to = real.read_link().map_err(|error| named("read", real, error))?;
            self.put(&path, What::Symlink(to.as_os_str().as_bytes()), mode, at, io::empty())
        } else if kind.is_fifo() {
            self.put(&path, What::Fifo, mode, at, io::empty())
        } else {
            // Sockets and devices have no content.
            Ok(())
        }
    }

    fn put(
        &mut self,
        path: &Path,
        what: What<'_>,
        mode: u32,
        modified: i64,
        content: impl Read,
    ) -> io::Result<()> {
        let extended = &BTreeMap::new();
        let mode = mode & 0o7777;
        let entry = Entry { path, what, mode, user: 0, group: 0, modified, extended };
        self.tarball.add(&entry, content)
    }
}

impl Directory {
    /// Whether something in a directory that is ignored may be sent after all.
    fn may_hold(&self, path: &str) -> bool {
        let is_above =
            |always: &String| always.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        self.ignore.may_take_back() || self.always.iter().any(is_above)
    }
}

/// The names in a directory, always in the same order.
fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let wrong = |error| named("list", directory, error);
    let entries = directory.read_dir().map_err(wrong)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    names.sort_unstable();
    Ok(names)
}

fn named(doing: &'static str, path: &Path, error: io::Error) -> io::Error {
    io::Error::other(PathError::new(doing, path, error))
}
