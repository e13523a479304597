//! What a sandbox changed, as a layer of an image.
//!
//! ```text
//!  archive ──► layer ──► sandbox ──► its own files ──► archive
//!                                    (an overlay's)    (here)
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{Directory, Entry, Kind, Limits, Seen, Stack, What, tarball::Tarball};

/// How deep directories may lie.
const DEEPEST: usize = 512;
/// Where distributions keep the authorities that they trust.
const AUTHORITIES: [&str; 5] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];
/// Larger files are no such list.
const MOST_AUTHORITIES: u64 = 8 << 20;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The files of a sandbox, and what they are the change of.
#[derive(Debug)]
pub struct Diff<'a> {
    /// One layer: what was written, with the marks of the overlay.
    pub changed: &'a Stack,
    /// What it was written on.
    pub below: &'a Stack,
    /// Places whose changes are none of the image: what the runtime puts there, and mounts. Relative
    /// to the root.
    pub without: &'a [PathBuf],
    /// No file is newer than this, in seconds since 1970.
    pub newest: Option<i64>,
    /// What the runtime added to the authorities that the image trusts, as PEM. It is taken out again.
    pub authorities: Option<&'a str>,
}

/// What a change came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Diffed {
    /// Files, directories and marks.
    pub entries: u64,
    /// The content of the files.
    pub bytes: u64,
}

/// Refuses a file that is hardly there: what is in a layer is there to its last byte.
fn refuse_holes(at: &Path, size: u64, blocks: u64) -> io::Result<()> {
    let Limits { ratio, unproven, .. } = Limits::default();
    let there = blocks.saturating_mul(512);
    if size > unproven && size > there.saturating_mul(ratio) {
        let why = format!("{} has {size} bytes, of which {there} are written", at.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(())
}

impl Diff<'_> {
    /// Writes the layer. It is the same for the same changes, whatever order they were made in.
    pub fn write(&self, to: impl Write) -> io::Result<Diffed> {
        let mut writer = Writer {
            diff: self,
            tarball: Tarball::new(to),
            links: HashMap::new(),
            pending: Vec::new(),
            done: Diffed::default(),
        };
        let (changed, below) = (self.changed.root()?, self.below.root()?);
        let (own, old) = (changed.itself()?.ok_or(Errno::NOENT)?, below.itself()?);
        // It is there without an entry.
        if old.is_some_and(|old| differs(&own, &old)) {
            let (path, extended) = (PathBuf::new(), BTreeMap::new());
            writer.pending.push(Waiting { path, seen: own, extended });
            writer.flush()?;
        }
        writer.directory(&changed, Some(&below), &PathBuf::new(), 0)?;
        writer.tarball.finish()?;
        Ok(writer.done)
    }
}

struct Writer<'a, W> {
    diff: &'a Diff<'a>,
    tarball: Tarball<W>,
    /// Where each file with several names was written first.
    links: HashMap<(u64, u64), PathBuf>,
    /// Directories on the way that are written when something in them is.
    pending: Vec<Waiting>,
    done: Diffed,
}

struct Waiting {
    path: PathBuf,
    seen: Seen,
    extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<W: Write> Writer<'_, W> {
    /// Writes what is in a directory. Answers whether something in it is none of the image.
    fn directory(
        &mut self,
        changed: &Directory,
        below: Option<&Directory>,
        path: &Path,
        depth: usize,
    ) -> io::Result<bool> {
        if depth > DEEPEST {
            return Err(io::Error::other(format!("directories lie more than {DEEPEST} deep")));
        }
        let mut has_others = false;
        for (name, seen) in changed.raw_names()? {
            let at = path.join(&name);
            if self.diff.without.contains(&at) {
                has_others = true;
                continue;
            }
            let old = below.map(|below| below.look(&name)).transpose()?.flatten();
            match seen.kind {
                Kind::Directory => {
                    let deeper = changed.enter(&name)?;
                    has_others |=
                        self.enter(changed, &name, &deeper, below, seen, old, &at, depth)?;
                }
                Kind::Whiteout if old.is_some() => {
                    self.flush()?;
                    self.done.entries += 1;
                    self.tarball.remove(&at, self.time(seen.modified))?;
                }
                // Nobody listens at a socket of an image, and there are no devices in a sandbox.
                Kind::Whiteout | Kind::Socket | Kind::Device => {}
                Kind::File if self.is_authorities(&at, &seen) => {
                    self.authorities(changed, below, &name, &seen, &at)?;
                }
                Kind::File | Kind::Symlink | Kind::Fifo => self.file(changed, &name, &seen, &at)?,
            }
        }
        Ok(has_others)
    }

    #[expect(clippy::too_many_arguments, reason = "two trees are walked side by side")]
    fn enter(
        &mut self,
        around: &Directory,
        name: &OsString,
        deeper: &Directory,
        below: Option<&Directory>,
        seen: Seen,
        old: Option<Seen>,
        at: &Path,
        depth: usize,
    ) -> io::Result<bool> {
        let was_directory = old.is_some_and(|old| old.kind == Kind::Directory);
        let hides = was_directory && deeper.is_opaque()?;
        let waiting = self.pending.len();
        let extended = around.extended(name)?;
        let old_extended = match below {
            Some(below) if was_directory => below.extended(name)?,
            _ => BTreeMap::new(),
        };
        let is_same = old.is_some_and(|old| !differs(&seen, &old)) && extended == old_extended;
        self.pending.push(Waiting { path: at.to_owned(), seen, extended });
        // A new one is written when it is known that it is not there for others alone.
        if old.is_some() && (!is_same || hides) {
            self.flush()?;
        }
        if hides {
            self.done.entries += 1;
            self.tarball.hide_below(at, self.time(seen.modified))?;
        }
        let beneath = match below {
            Some(below) if was_directory && !hides => Some(below.enter(name)?),
            _ => None,
        };
        let has_others = self.directory(deeper, beneath.as_ref(), at, depth + 1)?;
        let is_waiting = self.pending.len() > waiting;
        if is_waiting && old.is_none() && !has_others {
            self.flush()?;
        }
        // What was not written by now is as it was, or is others'.
        self.pending.truncate(waiting);
        Ok(has_others && is_waiting && old.is_none())
    }

    fn file(
        &mut self,
        around: &Directory,
        name: &OsString,
        seen: &Seen,
        at: &Path,
    ) -> io::Result<()> {
        self.flush()?;
        self.done.entries += 1;
        let extended = around.extended(name)?;
        let first = if seen.names > 1 { self.links.get(&seen.identity).cloned() } else { None };
        let target;
        let what = match (seen.kind, &first) {
            (_, Some(first)) => What::Link(first),
            (Kind::Symlink, None) => {
                target = around.read_link(name)?;
                What::Symlink(&target)
            }
            (Kind::Fifo, None) => What::Fifo,
            _ => What::File { size: seen.size },
        };
        let entry = self.entry(at, what, seen, &extended);
        if let What::File { size } = what {
            let content = around.open(name)?;
            refuse_holes(at, size, content.metadata()?.blocks())?;
            self.tarball.add(&entry, content)?;
            self.done.bytes += size;
        } else {
            self.tarball.add(&entry, io::empty())?;
        }
        if seen.names > 1 && first.is_none() {
            self.links.insert(seen.identity, at.to_owned());
        }
        Ok(())
    }

    fn is_authorities(&self, at: &Path, seen: &Seen) -> bool {
        self.diff.authorities.is_some()
            && seen.size <= MOST_AUTHORITIES
            && AUTHORITIES.iter().any(|path| Path::new(path) == at)
    }

    /// Writes a list of authorities without those that the runtime added to it.
    fn authorities(
        &mut self,
        around: &Directory,
        below: Option<&Directory>,
        name: &OsString,
        seen: &Seen,
        at: &Path,
    ) -> io::Result<()> {
        let mut text = Vec::new();
        around.open(name)?.take(MOST_AUTHORITIES).read_to_end(&mut text)?;
        let text = without(&text, self.diff.authorities.unwrap_or_default());
        let old = below.map(|below| below.look(name)).transpose()?.flatten();
        if let (Some(below), Some(old)) = (below, old)
            && old.kind == Kind::File
            && old.size <= MOST_AUTHORITIES
        {
            let mut before = Vec::new();
            below.open(name)?.take(MOST_AUTHORITIES).read_to_end(&mut before)?;
            let is_same = before.trim_ascii_end() == text.trim_ascii_end();
            if is_same && (old.mode, old.user, old.group) == (seen.mode, seen.user, seen.group) {
                return Ok(());
            }
        }
        self.flush()?;
        let extended = around.extended(name)?;
        let entry = self.entry(at, What::File { size: text.len() as u64 }, seen, &extended);
        self.tarball.add(&entry, &text[..])?;
        self.done.entries += 1;
        self.done.bytes += text.len() as u64;
        Ok(())
    }

    /// Writes the directories on the way.
    fn flush(&mut self) -> io::Result<()> {
        for Waiting { path, seen, extended } in std::mem::take(&mut self.pending) {
            let entry = self.entry(&path, What::Directory, &seen, &extended);
            self.tarball.add(&entry, io::empty())?;
            self.done.entries += 1;
        }
        Ok(())
    }

    fn entry<'e>(
        &self,
        path: &'e Path,
        what: What<'e>,
        seen: &Seen,
        extended: &'e BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Entry<'e> {
        let mode = if seen.kind == Kind::Symlink { 0o777 } else { seen.mode };
        let modified = self.time(seen.modified);
        Entry { path, what, mode, user: seen.user, group: seen.group, modified, extended }
    }

    fn time(&self, modified: i64) -> i64 {
        self.diff.newest.map_or(modified, |newest| modified.min(newest))
    }
}

/// A text without each of these certificates.
fn without(text: &[u8], authorities: &str) -> Vec<u8> {
    let mut rest = String::from_utf8_lossy(text).into_owned();
    for authority in authorities.split_inclusive(END) {
        if let Some(begin) = authority.find(BEGIN).and_then(|at| authority.get(at..)) {
            rest = rest.replace(&format!("{begin}\n"), "").replace(begin, "");
        }
    }
    rest.into_bytes()
}

/// Whether a directory is more than a place for what is in it.
fn differs(one: &Seen, other: &Seen) -> bool {
    (one.kind, one.mode, one.user, one.group) != (other.kind, other.mode, other.user, other.group)
}

#[cfg(test)]
mod tests;
