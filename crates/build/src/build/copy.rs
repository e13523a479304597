//! `COPY`, `ADD` and `WORKDIR`.

use std::{
    fs::File,
    io::{BufWriter, Write},
    sync::Arc,
};

use osb_image::{Kind, Packing, Parcel, Stack};
use osb_registry::{Algorithm, Digest, Verifier};
use osb_sys::sparse;

use super::{Trouble, stage::Going};
use crate::{
    CacheKey, Ignore, Source, Tree, WorkError,
    accounts::Accounts,
    asker::{self, Asker},
    key::Key,
    problem::Fault,
    scope::{Content, Moved, Unpack},
    transfer::{self, Files, Layering, Owners, Picked, TransferError},
};

/// What a fetched file is like, as Docker makes it.
const FETCHED: u32 = 0o600;
const INLINE: u32 = 0o644;
/// How much of a layer is written at once.
const AT_ONCE: usize = 256 << 10;

/// Files that were found, and what they are.
pub(super) struct Prepared {
    pub(super) key: CacheKey,
    files: Origin,
    sources: Vec<Sourced>,
}

/// Where files are taken from.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) stack: Arc<Stack>,
    pub(super) ignore: Arc<Ignore>,
    pub(super) owners: Owners,
    pub(super) name: &'static str,
}

impl Origin {
    pub(super) fn files<'a>(&'a self, asker: &'a Asker) -> Files<'a> {
        let Self { stack, ignore, owners, name } = self;
        Files { stack, ignore, owners: *owners, name, asker }
    }
}

enum Sourced {
    Picked(Vec<Picked>),
    Inline {
        name: String,
        text: String,
    },
    Fetched {
        name: String,
        file: Option<File>,
        url: String,
        checksum: Option<String>,
        unpack: bool,
    },
}

impl From<TransferError> for Trouble {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Fault(fault) => Self::Fault(fault),
            TransferError::Read { .. } | TransferError::Write(_) => {
                Self::Work(WorkError::failed("cannot copy files", error))
            }
        }
    }
}

impl Going<'_> {
    /// Where a step takes files from, and the key of all of it unless it is the context.
    pub(super) async fn origin(
        &self,
        source: &Source,
    ) -> Result<(Origin, Option<CacheKey>), Trouble> {
        let context = self.builder.build.context;
        if *source == Source::Context {
            let (stack, ignore) = (context.stack.clone(), context.ignore.clone());
            let name = "the directory that is built";
            return Ok((Origin { stack, ignore, owners: Owners::Root, name }, None));
        }
        let opened = self.builder.open(self.number, source, &self.planned.platform).await?;
        let name = match source {
            Source::Stage(_) => "that stage",
            Source::Context | Source::Image(_) => "that image",
        };
        let (stack, ignore) = (opened.stack, Arc::default());
        Ok((Origin { stack, ignore, owners: Owners::Kept, name }, Some(opened.key)))
    }

    /// Finds what is to be copied.
    pub(super) async fn prepare_copy(&self, moved: &Moved) -> Result<Prepared, Trouble> {
        let (files, whole) = self.origin(&moved.from).await?;
        let mut key = Key::new("copy")
            .with(self.key.as_digest().as_str())
            .with(&moved.destination)
            .with_number(u64::from(moved.into_directory))
            .with_some(moved.owner.as_ref())
            .with_some(moved.rights.as_ref())
            .with_all(moved.excluded.iter())
            .with_number(u64::from(moved.link))
            .with_number(u64::from(moved.parents))
            .with_number(u64::from(moved.unpack == Unpack::Archives))
            .with_some(whole.as_ref().map(|key| key.as_digest().as_str()));
        let mut sources = Vec::new();
        for content in &moved.contents {
            match content {
                Content::Path { base, pattern } => {
                    key = key.with("path").with(base).with(pattern);
                    let (files, moved) = (files.clone(), moved.clone());
                    let (base, pattern) = (base.clone(), pattern.clone());
                    let needs_digest = whole.is_none();
                    let found = blocking(move |asker| {
                        let files = files.files(asker);
                        let picked = if moved.parents {
                            files.pick_below(&base, &pattern)?
                        } else {
                            files.pick(&pattern)?
                        };
                        let digest = needs_digest
                            .then(|| transfer::digest(&files, &picked, &moved.exclude))
                            .transpose()?;
                        Ok((picked, digest))
                    });
                    let (picked, digest) = found.await?;
                    key = key.with_some(digest.as_ref().map(|key| key.as_digest().as_str()));
                    sources.push(Sourced::Picked(picked));
                }
                Content::Inline { name, text } => {
                    key = key.with("inline").with(name).with(text);
                    sources.push(Sourced::Inline { name: name.clone(), text: text.clone() });
                }
                Content::Fetched { url, name, checksum, unpack } => {
                    key = key.with("fetched").with(name).with_number(u64::from(*unpack));
                    let mut file = None;
                    let digest = if let Some(checksum) = checksum {
                        checksum.clone()
                    } else {
                        // What it is can only be known by looking.
                        let fetched = self.builder.build.workshop.fetch(url).await?;
                        let (digest, fetched) = digest_of(fetched, Algorithm::Sha256).await?;
                        file = Some(fetched);
                        digest.to_string()
                    };
                    key = key.with(digest);
                    let (name, url) = (name.clone(), url.clone());
                    let (checksum, unpack) = (checksum.clone(), *unpack);
                    sources.push(Sourced::Fetched { name, file, url, checksum, unpack });
                }
            }
        }
        let is_nothing =
            |source: &Sourced| matches!(source, Sourced::Picked(picked) if picked.is_empty());
        if sources.iter().all(is_nothing) {
            let patterns: Vec<&str> = moved.contents.iter().filter_map(Content::pattern).collect();
            let patterns = patterns.join(" ");
            return Err(Fault::new(format!("{patterns} is not in {}", files.name)).into());
        }
        Ok(Prepared { key: key.finish(), files, sources })
    }

    /// Makes the layer, and puts it on top.
    pub(super) async fn copy(&self, moved: &Moved, prepared: Prepared) -> Result<Tree, Trouble> {
        let Prepared { files, mut sources, .. } = prepared;
        let workshop = self.builder.build.workshop;
        for source in &mut sources {
            let Sourced::Fetched { file, url, checksum: Some(checksum), .. } = source else {
                continue;
            };
            let wanted = Digest::parse(checksum)
                .map_err(|error| Fault::new(format!("--checksum={checksum}: {error}")))?;
            let fetched = workshop.fetch(url).await?;
            let (digest, fetched) = digest_of(fetched, wanted.algorithm()).await?;
            if digest != wanted {
                return Err(Fault::new(format!(
                    "what {url} is has the checksum {digest}, and not the one that is asked for"
                ))
                .into());
            }
            *file = Some(fetched);
        }
        let tree = workshop.open(&self.tree).await?;
        let (moved, newest) = (moved.clone(), self.builder.build.plan.wanted.epoch);
        let to = workshop.scratch()?;
        let written = blocking(move |asker| {
            let owner = match &moved.owner {
                Some(owner) => Some(accounts(&tree)?.owner(owner)?),
                None => None,
            };
            let mut layering = Layering::new(watched(asker, &to), &tree, newest);
            layering = layering.dressed(owner, moved.mode.clone(), moved.link);
            put(&mut layering, &moved, &files.files(asker), sources)?;
            let written = layering.finish()?;
            Ok((written, to))
        });
        let (written, layer) = written.await?;
        if written.entries == 0 {
            return Ok(self.tree.clone());
        }
        Ok(workshop.lay(&self.tree, layer).await?)
    }

    /// Makes a directory, unless it is there.
    pub(super) async fn make_directory(&self, path: &str) -> Result<Tree, Trouble> {
        let workshop = self.builder.build.workshop;
        let tree = workshop.open(&self.tree).await?;
        let (path, user) = (path.to_owned(), self.scope.user().map(str::to_owned));
        let newest = self.builder.build.plan.wanted.epoch;
        let to = workshop.scratch()?;
        let written = blocking(move |asker| {
            let owner = match &user {
                Some(user) => Some(accounts(&tree)?.owner(user)?),
                None => None,
            };
            let written =
                transfer::empty_directory(&tree, &path, owner, newest, watched(asker, &to))?;
            Ok((written, to))
        });
        let (written, layer) = written.await?;
        if written.entries == 0 {
            return Ok(self.tree.clone());
        }
        Ok(workshop.lay(&self.tree, layer).await?)
    }
}

fn put(
    layering: &mut Layering<'_, impl Write>,
    moved: &Moved,
    files: &Files<'_>,
    sources: Vec<Sourced>,
) -> Result<(), TransferError> {
    let into_directory = moved.into_directory || moved.parents;
    let target = layering.target(&moved.destination, into_directory)?;
    let mut count = 0;
    let mut check = |how_many: usize| {
        count += how_many;
        if count > 1 && !target.is_directory() {
            return Err(Fault::new(format!(
                "several files go to {}, which has to be a directory then: write {0}/",
                moved.destination
            )));
        }
        Ok(())
    };
    for source in sources {
        match source {
            Sourced::Picked(picked) => {
                let is_file = |picked: &&Picked| picked.seen.kind != Kind::Directory;
                check(picked.iter().filter(is_file).count())?;
                for picked in &picked {
                    let is_plain = picked.seen.kind == Kind::File && !moved.parents;
                    if is_plain && moved.unpack == Unpack::Archives {
                        let name = picked.name.to_string_lossy();
                        if let Some(archive) = archive(&name, files.open(picked)?)? {
                            layering.unpack(&name, archive, &target.as_directory())?;
                            continue;
                        }
                    }
                    layering.put(files, picked, &moved.exclude, &target)?;
                }
            }
            Sourced::Inline { name, text } => {
                check(1)?;
                let size = text.len() as u64;
                layering.put_file(&name, text.as_bytes(), size, INLINE, &target)?;
            }
            Sourced::Fetched { name, file, unpack, .. } => {
                let Some(mut file) = file else { continue };
                if unpack && let Some(archive) = archive(&name, clone(&file)?)? {
                    layering.unpack(&name, archive, &target.as_directory())?;
                    continue;
                }
                check(1)?;
                let read = |source| TransferError::Read { path: name.clone().into(), source };
                let size = file.metadata().map_err(read)?.len();
                std::io::Seek::rewind(&mut file).map_err(read)?;
                layering.put_file(&name, file, size, FETCHED, &target)?;
            }
        }
    }
    Ok(())
}

/// The file, if it is an archive.
fn archive(name: &str, mut file: File) -> Result<Option<File>, TransferError> {
    let read = |source| TransferError::Read { path: name.into(), source };
    match Parcel::detect(&mut file).map_err(read)? {
        Packing::Archive => Ok(Some(file)),
        Packing::None => Ok(None),
        Packing::Unknown(how) => Err(Fault::new(format!(
            "{name} is compressed with {how}, which ADD does not unpack here: compress it with gzip or \
             zstd, or COPY it and unpack it in a RUN"
        ))
        .into()),
    }
}

fn clone(file: &File) -> Result<File, TransferError> {
    file.try_clone().map_err(TransferError::Write)
}

pub(super) fn accounts(tree: &Stack) -> Result<Accounts, TransferError> {
    Accounts::read(tree)
        .map_err(|source| TransferError::Read { path: "/etc/passwd".into(), source })
}

/// What a file hashes to.
async fn digest_of(mut file: File, algorithm: Algorithm) -> Result<(Digest, File), Trouble> {
    blocking(move |asker| {
        let mut verifier = asker.watch(Verifier::new(algorithm));
        std::io::Seek::rewind(&mut file).map_err(TransferError::Write)?;
        std::io::copy(&mut file, &mut verifier).map_err(TransferError::Write)?;
        std::io::Seek::rewind(&mut file).map_err(TransferError::Write)?;
        Ok((verifier.into_inner().finish(), file))
    })
    .await
}

/// A layer that is written for as long as somebody waits for it, with the holes that its files have.
pub(super) fn watched<'a>(asker: &Asker, to: &'a File) -> BufWriter<impl Write + use<'a>> {
    BufWriter::with_capacity(AT_ONCE, asker.watch(sparse::Writer::new(to)))
}

/// Does what waits for a disk where nobody waits for it, and only while somebody wants it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Asker) -> Result<T, TransferError> + Send + 'static,
) -> Result<T, Trouble> {
    let done = asker::blocking(work).await;
    Ok(done.map_err(|error| WorkError::failed("cannot copy files", error))??)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap, io, io::Read as _, os::unix::fs::MetadataExt as _, path::Path,
    };

    use osb_image::{Entry, Tarball, What};

    use super::*;

    #[test]
    fn a_layer_with_holes_takes_no_room_for_them() {
        const SIZE: u64 = 64 << 20;
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut tarball = Tarball::new(watched(&Asker::default(), &file));
        let (path, what, extended) = (Path::new("a"), What::File { size: SIZE }, &BTreeMap::new());
        let entry = Entry { path, what, mode: 0o644, user: 0, group: 0, modified: 0, extended };
        tarball.add(&entry, io::repeat(0).take(SIZE)).unwrap();
        tarball.finish().unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), SIZE + 3 * 512);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    }
}
