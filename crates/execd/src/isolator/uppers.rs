//! Layers that outlive their session.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use osb_sys::step::{Failure, Step};

use super::{
    protocol::{Mode, Open, PLACES},
    serve::has_ended,
    view,
};

/// The layers that are kept. They live as long as the isolator, and that is as long as the sandbox.
#[derive(Debug, Default)]
pub(super) struct Uppers {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// What it lies over.
    source: PathBuf,
    at: PathBuf,
    /// The last session that has it.
    session: Option<OwnedFd>,
}

impl Uppers {
    /// Where the layers that `open` wants kept are mounted, in order. Those that are new are made.
    pub(super) fn of(&mut self, open: &Open, owner: &str) -> Result<Vec<PathBuf>, Failure> {
        let places = open.places.iter().filter(|place| place.mode == Mode::KeptLayer);
        places.map(|place| self.one(&place.source, owner)).collect()
    }

    fn one(&mut self, source: &Path, owner: &str) -> Result<PathBuf, Failure> {
        let step = format!("keep the layer of {}", source.display());
        if let Some(kept) = self.kept.iter().find(|kept| kept.source == source) {
            return if kept.session.as_ref().is_none_or(has_ended) {
                Ok(kept.at.clone())
            } else {
                Err(std::io::Error::other("another session is using it")).step(&step)
            };
        }
        if self.kept.len() >= PLACES {
            return Err(std::io::Error::other("there are too many already")).step(&step);
        }
        let at = view::stage(owner)?;
        self.kept.push(Kept { source: source.to_owned(), at: at.clone(), session: None });
        Ok(at)
    }

    /// Whether the layer that is mounted there is kept.
    pub(super) fn are_at(&self, place: &Path) -> bool {
        self.kept.iter().any(|kept| kept.at == place)
    }

    /// Notes that `session` has the layers at `places` now.
    pub(super) fn give(&mut self, places: &[PathBuf], session: &OwnedFd) -> std::io::Result<()> {
        for kept in &mut self.kept {
            if places.contains(&kept.at) {
                kept.session = Some(session.try_clone()?);
            }
        }
        Ok(())
    }
}
