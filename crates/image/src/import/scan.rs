//! A first look at an archive, which tells what it is.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read},
};

use osb_registry::{Algorithm, Digest, Verifier};

use crate::{
    ImageError, Limits,
    archive::{Archive, ArchiveError, Entry, Kind},
    compression::{self, FileDecoder},
};

/// Documents at the top that tell what an archive is, and how long they may be.
const TELLING: [&str; 3] = ["oci-layout", "index.json", "manifest.json"];
const LARGEST: u64 = 4 << 20;
/// How many links between layers are remembered.
const MOST_LINKS: usize = 4096;

/// What an archive has at its top.
#[derive(Debug)]
pub(super) struct Scan {
    documents: HashMap<String, Vec<u8>>,
    /// Links between its files: old archives have a layer that several images share once.
    links: HashMap<String, String>,
    /// Of the archive, not compressed.
    pub(super) digest: Digest,
}

impl Scan {
    pub(super) fn of(archive: File, limits: &Limits) -> Result<Self, ImageError> {
        let input = Hashed::new(archive, limits)?;
        let mut archive = Archive::new(BufReader::with_capacity(1 << 20, input));
        let (mut documents, mut links) = (HashMap::new(), HashMap::new());
        let mut entries = 0;
        while let Some(entry) = archive.next().map_err(refused)? {
            entries += 1;
            if entries > limits.entries {
                return Err(ImageError::Refused(format!(
                    "the archive has more than {} entries, which is the limit here",
                    limits.entries
                )));
            }
            let Some(path) = path(&entry) else { continue };
            let is_telling = TELLING.contains(&path.as_str()) && entry.size <= LARGEST;
            let is_link = matches!(entry.kind, Kind::Symlink | Kind::HardLink);
            if entry.kind == Kind::File && is_telling {
                documents.insert(path, archive.content(LARGEST).map_err(refused)?);
            } else if is_link && path.split('/').count() <= 2 && links.len() < MOST_LINKS {
                links.extend(target(&path, &entry).map(|target| (path, target)));
            }
        }
        let digest = archive.into_input().into_inner().finish()?;
        Ok(Self { documents, links, digest })
    }

    pub(super) fn is_layout(&self) -> bool {
        self.documents.contains_key("oci-layout") && self.documents.contains_key("index.json")
    }

    pub(super) fn document(&self, name: &str) -> Option<&[u8]> {
        self.documents.get(name).map(Vec::as_slice)
    }

    /// The file that a path leads to.
    pub(super) fn resolve(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for _ in 0..8 {
            match self.links.get(&path) {
                Some(target) => path.clone_from(target),
                None => break,
            }
        }
        path
    }
}

/// Reads an archive, decompressed.
pub(super) fn read(archive: File) -> Result<Archive<BufReader<FileDecoder>>, ImageError> {
    let input = compression::open(archive).map_err(ImageError::Read)?;
    Ok(Archive::new(BufReader::with_capacity(1 << 20, input)))
}

/// The path of an entry without what may stand before it. Nothing that is no text is looked for.
pub(super) fn path(entry: &Entry) -> Option<String> {
    let path = std::str::from_utf8(&entry.path).ok()?;
    Some(path.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/').to_owned())
}

/// What a link leads to, from the top.
fn target(path: &str, entry: &Entry) -> Option<String> {
    let said = std::str::from_utf8(&entry.link).ok()?;
    let is_relative = entry.kind == Kind::Symlink;
    let mut parts: Vec<&str> = if is_relative { path.split('/').collect() } else { Vec::new() };
    parts.pop();
    for part in said.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

pub(super) fn refused(error: ArchiveError) -> ImageError {
    match error {
        ArchiveError::Malformed(why) => ImageError::Refused(format!("the archive: {why}")),
        ArchiveError::Io(error) if error.raw_os_error().is_none() => {
            ImageError::Refused(format!("the archive: {error}"))
        }
        ArchiveError::Io(error) => ImageError::Read(error),
    }
}

/// Hashes and counts what is read.
struct Hashed<'a> {
    input: FileDecoder,
    verifier: Verifier,
    bytes: u64,
    limits: &'a Limits,
}

impl<'a> Hashed<'a> {
    fn new(archive: File, limits: &'a Limits) -> Result<Self, ImageError> {
        let input = compression::open(archive).map_err(ImageError::Read)?;
        Ok(Self { input, verifier: Verifier::new(Algorithm::Sha256), bytes: 0, limits })
    }

    /// Reads what comes after the archive's end, too.
    fn finish(mut self) -> Result<Digest, ImageError> {
        let read = io::copy(&mut self, &mut io::sink());
        read.map_err(|error| refused(error.into()))?;
        Ok(self.verifier.finish())
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.verifier.update(buffer.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        let Limits { archive, ratio, unproven, .. } = *self.limits;
        let compressed = self.input.input().get_ref().bytes;
        if self.bytes > archive || self.bytes > unproven && self.bytes / ratio.max(1) > compressed {
            return Err(io::Error::other("it is larger than the limit here once decompressed"));
        }
        Ok(count)
    }
}
