//! Tar archives that are the same for the same files, wherever they are written.
//!
//! Names of users, times of reading and all that differs from machine to machine is not in them. The
//! format is ustar, with the records of pax where a value does not fit.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use crate::Limits;

const BLOCK: usize = 512;
/// The largest number in seven and in eleven octal digits.
const MOST_ID: u64 = 0o7_777_777;
const MOST_SIZE: u64 = 0o77_777_777_777;
/// How names begin that say in a layer what is gone.
pub const WHITEOUT: &str = ".wh.";
/// What says that nothing shines through a directory.
pub const OPAQUE: &str = ".wh..wh..opq";

/// Writes a layer, entry by entry. Whoever calls it sees to the order.
#[derive(Debug)]
pub struct Tarball<W> {
    to: W,
    /// How much more content there may be.
    left: u64,
}

/// An entry without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// From the root of the image, without a slash at the beginning or the end. Empty for the root.
    pub path: &'a Path,
    pub what: What<'a>,
    /// The lower twelve bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    /// In seconds since 1970.
    pub modified: i64,
    pub extended: &'a BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    File {
        size: u64,
    },
    Directory,
    Symlink(&'a [u8]),
    /// Another name of a file that is in the archive already.
    Link(&'a Path),
    Fifo,
}

impl<W: Write> Tarball<W> {
    pub fn new(to: W) -> Self {
        Self { to, left: Limits::default().layer }
    }

    /// Adds an entry. A file has exactly as much content as it says.
    pub fn add(&mut self, entry: &Entry<'_>, content: impl Read) -> io::Result<()> {
        if is_mark(entry.path) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} has a name that means in images that something is gone",
                    entry.path.display()
                ),
            ));
        }
        self.put(entry, content)
    }

    /// Says that what layers below have at `path` is gone.
    pub fn remove(&mut self, path: &Path, modified: i64) -> io::Result<()> {
        let mut name = std::ffi::OsString::from(WHITEOUT);
        name.push(path.file_name().unwrap_or_default());
        self.mark(&path.with_file_name(name), modified)
    }

    /// Says that nothing of what layers below have in the directory at `path` is there.
    pub fn hide_below(&mut self, path: &Path, modified: i64) -> io::Result<()> {
        self.mark(&path.join(OPAQUE), modified)
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn mark(&mut self, path: &Path, modified: i64) -> io::Result<()> {
        let (what, extended) = (What::File { size: 0 }, &BTreeMap::new());
        let entry = Entry { path, what, mode: 0o600, user: 0, group: 0, modified, extended };
        self.put(&entry, io::empty())
    }

    fn put(&mut self, entry: &Entry<'_>, mut content: impl Read) -> io::Result<()> {
        let (kind, size, link) = match entry.what {
            What::File { size } => (b'0', size, &b""[..]),
            What::Link(to) => (b'1', 0, to.as_os_str().as_bytes()),
            What::Symlink(to) => (b'2', 0, to),
            What::Directory => (b'5', 0, &b""[..]),
            What::Fifo => (b'6', 0, &b""[..]),
        };
        let mut path = entry.path.as_os_str().as_bytes().to_vec();
        match entry.what {
            What::Directory if path.is_empty() => path.extend(b"./"),
            What::Directory => path.push(b'/'),
            What::File { .. } | What::Symlink(_) | What::Link(_) | What::Fifo => {}
        }
        let mut records = BTreeMap::new();
        let (user, group) = (u64::from(entry.user), u64::from(entry.group));
        let modified = u64::try_from(entry.modified).ok().filter(|at| *at <= MOST_SIZE);
        let needs = |value: u64, most| (value > most).then(|| value.to_string().into_bytes());
        let long = |text: &[u8]| (text.len() > 100 || !text.is_ascii()).then(|| text.to_vec());
        let told = [
            ("path", long(&path)),
            ("linkpath", long(link)),
            ("size", needs(size, MOST_SIZE)),
            ("uid", needs(user, MOST_ID)),
            ("gid", needs(group, MOST_ID)),
            ("mtime", modified.is_none().then(|| entry.modified.to_string().into_bytes())),
        ];
        for (key, value) in told {
            if let Some(value) = value {
                records.insert(key.as_bytes().to_vec(), value);
            }
        }
        for (name, value) in entry.extended {
            records.insert([b"SCHILY.xattr.", name.as_slice()].concat(), value.clone());
        }
        let mode = u64::from(entry.mode & 0o7777);
        if !records.is_empty() {
            let told: Vec<u8> =
                records.iter().flat_map(|(key, value)| record(key, value)).collect();
            let head = Head { mode: 0o644, user: 0, group: 0, modified: 0 };
            self.to.write_all(&header(b"pax", b'x', told.len() as u64, b"", head))?;
            self.to.write_all(&told)?;
            self.pad(told.len() as u64)?;
        }
        let head = Head { mode, user, group, modified: modified.unwrap_or_default() };
        self.left = self.left.checked_sub(size).ok_or_else(|| {
            let most = Limits::default().layer;
            let why = format!("a layer has at most {most} bytes, and this one has more");
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        self.to.write_all(&header(&path, kind, size, link, head))?;
        let written = io::copy(&mut content.by_ref().take(size), &mut self.to)?;
        if written != size || content.read(&mut [0])? != 0 {
            return Err(io::Error::other(format!(
                "{} changed while it was read",
                entry.path.display()
            )));
        }
        self.pad(size)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let padding = usize::try_from(size.wrapping_neg() % BLOCK as u64).unwrap_or_default();
        self.to.write_all([0; BLOCK].get(..padding).unwrap_or_default())
    }
}

/// Whether a name on the way would say in a layer that something is gone.
pub fn is_mark(path: &Path) -> bool {
    path.iter().any(|name| name.as_bytes().starts_with(WHITEOUT.as_bytes()))
}

#[derive(Clone, Copy)]
struct Head {
    mode: u64,
    user: u64,
    group: u64,
    modified: u64,
}

fn header(path: &[u8], kind: u8, size: u64, link: &[u8], head: Head) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(place) = block.get_mut(at..at + text.len()) {
            place.copy_from_slice(text);
        }
    };
    // What does not fit is in a record before it; this is for those who do not read records.
    put(0, path.get(..100).unwrap_or(path));
    put(100, octal(head.mode, 7).as_bytes());
    put(108, octal(head.user.min(MOST_ID), 7).as_bytes());
    put(116, octal(head.group.min(MOST_ID), 7).as_bytes());
    put(124, octal(size.min(MOST_SIZE), 11).as_bytes());
    put(136, octal(head.modified, 11).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.get(..100).unwrap_or(link));
    put(257, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    if let Some(place) = block.get_mut(148..155) {
        place.copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    block
}

fn octal(number: u64, digits: usize) -> String {
    format!("{number:0digits$o}")
}

/// `length key=value\n`, where the length counts itself.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length = length.to_string().len() + rest;
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::archive::Kind;

    fn none() -> &'static BTreeMap<Vec<u8>, Vec<u8>> {
        static NONE: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        &NONE
    }

    fn entry<'a>(path: &'a Path, what: What<'a>) -> Entry<'a> {
        Entry { path, what, mode: 0o640, user: 7, group: 8, modified: 9, extended: none() }
    }

    /// What the reader of archives finds, with the content of each entry.
    fn read(archive: &[u8]) -> Vec<(crate::archive::Entry, Vec<u8>)> {
        let mut archive = crate::archive::Archive::new(archive);
        let mut found = Vec::new();
        while let Some(entry) = archive.next().unwrap() {
            found.push((entry, archive.content(u64::MAX).unwrap()));
        }
        found
    }

    #[test]
    fn others_read_what_is_written() {
        let mut tarball = Tarball::new(Vec::new());
        let long = format!("{}/file", "d".repeat(120));
        tarball.add(&entry(Path::new("dir"), What::Directory), io::empty()).unwrap();
        let file = entry(Path::new(&long), What::File { size: 5 });
        tarball.add(&file, &b"hello"[..]).unwrap();
        let link = entry(Path::new("a"), What::Symlink("höher".as_bytes()));
        tarball.add(&link, io::empty()).unwrap();
        tarball.add(&entry(Path::new("b"), What::Link(Path::new(&long))), io::empty()).unwrap();
        tarball.remove(Path::new("dir/gone"), 3).unwrap();
        tarball.hide_below(Path::new("dir"), 3).unwrap();
        let found = read(&tarball.finish().unwrap());
        let names: Vec<_> = found.iter().map(|(entry, _)| entry.path.as_slice()).collect();
        let marks: [&[u8]; 2] = [b"dir/.wh.gone", b"dir/.wh..wh..opq"];
        assert_eq!(names, [b"dir/", long.as_bytes(), b"a", b"b", marks[0], marks[1]]);
        let kinds = [Kind::Directory, Kind::File, Kind::Symlink, Kind::HardLink];
        for ((entry, _), kind) in found.iter().zip(kinds) {
            assert_eq!(entry.kind, kind);
        }
        assert_eq!(found[1].1, b"hello");
        assert_eq!(
            (&found[2].0.link[..], &found[3].0.link[..]),
            ("höher".as_bytes(), long.as_bytes())
        );
        let first = &found[0].0;
        assert_eq!((first.mode, first.user, first.group), (0o640, Some(7), Some(8)));
        assert_eq!(first.modified.seconds, 9);
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        let mut tarball = Tarball::new(Vec::new());
        for path in [".wh.x", "a/.wh..wh..opq", ".wh.a/b"] {
            let error = tarball.add(&entry(Path::new(path), What::Fifo), io::empty()).unwrap_err();
            assert!(error.to_string().contains("is gone"), "{error}");
        }
    }

    #[test]
    fn a_file_that_grows_or_shrinks_meanwhile_is_noticed() {
        for (size, content) in [(4, &b"hello"[..]), (6, b"hello")] {
            let file = entry(Path::new("x"), What::File { size });
            let error = Tarball::new(Vec::new()).add(&file, content).unwrap_err();
            assert!(error.to_string().contains("changed"), "{error}");
        }
    }

    #[test]
    fn attributes_and_odd_numbers_are_told_in_records() {
        let extended = [(b"user.a".to_vec(), b"\0x\n=".to_vec())].into();
        let path = Path::new("x");
        let odd = Entry {
            user: u32::MAX - 1,
            modified: -5,
            extended: &extended,
            ..entry(path, What::File { size: 0 })
        };
        let mut tarball = Tarball::new(Vec::new());
        tarball.add(&odd, io::empty()).unwrap();
        let found = read(&tarball.finish().unwrap());
        let [(entry, _)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(entry.extended, [(b"user.a".to_vec(), b"\0x\n=".to_vec())]);
        assert_eq!((entry.user, entry.modified.seconds), (Some(u32::MAX - 1), -5));
    }

    proptest! {
        #[test]
        fn records_say_their_own_length(value in proptest::collection::vec(any::<u8>(), 0..1200)) {
            let record = record(b"key", &value);
            let text = record.split(|byte| *byte == b' ').next().unwrap();
            let length: usize = str::from_utf8(text).unwrap().parse().unwrap();
            prop_assert_eq!(length, record.len());
        }
    }
}
