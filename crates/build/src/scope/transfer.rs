//! `COPY` and `ADD`, with their variables replaced.

use super::{Scope, absolute, command::file_name};
use crate::{
    chmod::Chmod,
    dockerfile::Transfer,
    expand,
    glob::Glob,
    ignore::Ignore,
    plan::{self, Source},
    problem::Fault,
};

/// Files that go into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: Source,
    pub(crate) contents: Vec<Content>,
    /// From the root, without a slash at the end.
    pub(crate) destination: String,
    /// Whether it was written with a slash at the end.
    pub(crate) into_directory: bool,
    pub(crate) owner: Option<String>,
    pub(crate) mode: Option<Chmod>,
    /// As it was written, for the key.
    pub(crate) rights: Option<String>,
    pub(crate) exclude: Ignore,
    /// As they were written, for the key.
    pub(crate) excluded: Vec<String>,
    /// Whether nothing of the image is looked at.
    pub(crate) link: bool,
    /// Whether directories on the way to a source are kept.
    pub(crate) parents: bool,
    pub(crate) unpack: Unpack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpack {
    Nothing,
    Archives,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A path or pattern in the source, without a slash at the beginning. With `parents`, what is
    /// kept of it begins after the first part.
    Path { base: String, pattern: String },
    /// A file that stands in the Dockerfile.
    Inline { name: String, text: String },
    /// A file from elsewhere.
    Fetched { url: String, name: String, checksum: Option<String>, unpack: bool },
}

impl Content {
    /// What is looked for.
    pub(crate) fn pattern(&self) -> Option<&str> {
        match self {
            Self::Path { pattern, .. } => Some(pattern),
            Self::Inline { .. } | Self::Fetched { .. } => None,
        }
    }
}

impl Scope<'_> {
    pub(super) fn transfer(&self, transfer: &Transfer, default: Unpack) -> Result<Moved, Fault> {
        let from = match &transfer.from {
            Some(from) => plan::source(&self.plan.file, self.stage, from)?,
            None => Source::Context,
        };
        let destination = self.word(&transfer.destination)?;
        if destination.is_empty() {
            return Err(Fault::new("the destination is empty once its variables are replaced"));
        }
        let into_directory =
            destination.ends_with('/') || destination == "." || destination.ends_with("/.");
        let word = |text: &Option<String>| text.as_deref().map(|text| self.word(text)).transpose();
        let owner = word(&transfer.chown)?.filter(|owner| !owner.is_empty());
        let rights = word(&transfer.chmod)?;
        let mode = rights.as_deref().map(Chmod::parse).transpose()?;
        let excluded = transfer.exclude.iter().map(|text| self.word(text));
        let excluded: Vec<String> = excluded.collect::<Result<_, _>>()?;
        let unpack = match transfer.unpack {
            Some(true) => Unpack::Archives,
            Some(false) => Unpack::Nothing,
            None => default,
        };
        let mut contents = Vec::new();
        for source in &transfer.sources {
            contents.push(self.content(&self.word(source)?, transfer, default)?);
        }
        for text in &transfer.inline {
            let name = file_name(&text.name)?.to_owned();
            let written = text.text();
            let text = if text.expands { expand::document(&written, self)? } else { written };
            contents.push(Content::Inline { name, text });
        }
        if transfer.link
            && let Some(owner) = &owner
            && owner.split(':').any(|part| part.parse::<u32>().is_err())
        {
            return Err(Fault::new(format!(
                "--chown={owner} has a name, which --link lets nobody look up: write numbers"
            )));
        }
        Ok(Moved {
            from,
            contents,
            destination: absolute(self.workdir(), &destination)?,
            into_directory,
            owner,
            mode,
            rights,
            exclude: Ignore::of(&excluded)?,
            excluded,
            link: transfer.link,
            parents: transfer.parents,
            unpack,
        })
    }

    fn content(
        &self,
        source: &str,
        transfer: &Transfer,
        default: Unpack,
    ) -> Result<Content, Fault> {
        let is_url = source.starts_with("http://") || source.starts_with("https://");
        if default == Unpack::Nothing && (is_url || is_git(source)) {
            return Err(Fault::new(format!("COPY takes no URLs: write ADD {source}")));
        }
        if is_git(source) && default == Unpack::Archives {
            return Err(Fault::new(format!(
                "ADD does not fetch from git: write RUN git clone {source}"
            )));
        }
        if is_url {
            let checksum = transfer.checksum.as_deref().map(|text| self.word(text)).transpose()?;
            if checksum.is_some() && transfer.sources.len() > 1 {
                return Err(Fault::new("--checksum is about one file: write an ADD for each"));
            }
            if let Some(checksum) = &checksum
                && osb_registry::Digest::parse(checksum).is_err()
            {
                return Err(Fault::new(format!(
                    "--checksum={checksum} is no checksum: write sha256: and 64 digits"
                )));
            }
            let name = url_name(source)?;
            let unpack = transfer.unpack == Some(true);
            return Ok(Content::Fetched { url: source.to_owned(), name, checksum, unpack });
        }
        if transfer.checksum.is_some() {
            return Err(Fault::new("--checksum is for what is fetched from a URL"));
        }
        let (base, pattern) = match (transfer.parents, source.split_once("/./")) {
            (true, Some((base, pattern))) => (base, pattern),
            _ => ("", source),
        };
        let clean = |path: &str| absolute("/", path).map(|path| path.trim_matches('/').to_owned());
        let (base, pattern) = (clean(base)?, clean(pattern)?);
        if transfer.parents && Glob::is_wild(&base) {
            return Err(Fault::new("what comes before /./ cannot be a pattern"));
        }
        Ok(Content::Path { base, pattern })
    }
}

fn is_git(source: &str) -> bool {
    let path = source.split(['#', '?']).next().unwrap_or_default();
    let is_url = path.starts_with("http://") || path.starts_with("https://");
    source.starts_with("git@")
        || source.starts_with("git://")
        || source.starts_with("ssh://")
        || (is_url && path.rsplit_once('.').is_some_and(|(_, end)| end == "git"))
}

/// What a file is called that is fetched from here.
fn url_name(url: &str) -> Result<String, Fault> {
    let path = url.split(['#', '?']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let name = path.split_once('/').map_or("", |(_, path)| path.rsplit('/').next().unwrap_or(""));
    if name.is_empty() {
        return Err(Fault::new(format!(
            "{url} does not say what the file is called: let it end with a name"
        )));
    }
    file_name(name).map(str::to_owned)
}
