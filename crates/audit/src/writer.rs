use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map},
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use osb_api::SandboxId;
use osb_core::{Chain, Clock as _, SystemClock};
use osb_sys::fs::PathError;

use crate::{
    Entry, Keep,
    book::{self, Book},
    desk::{Desk, Item, Next},
    keep::Round,
};

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    directory: PathBuf,
    keep: Keep,
    /// Where the books of those end who live. No file is open: there may be many.
    books: HashMap<SandboxId, Book>,
    ill: Ill,
    /// Whether it is throwing away what is too old or too much.
    round: Option<Round>,
}

/// Those whose books could not be written the last time. Of the first it is said, and of the others
/// not, until there is none.
#[derive(Debug, Default)]
struct Ill(HashSet<SandboxId>);

impl Ill {
    /// Adds one, and answers whether it is the first.
    fn falls(&mut self, sandbox: SandboxId) -> bool {
        self.0.insert(sandbox) && self.0.len() == 1
    }

    /// Takes one out, and answers whether it was the last.
    fn recovers(&mut self, sandbox: SandboxId) -> bool {
        self.0.remove(&sandbox) && self.0.is_empty()
    }
}

impl Writer {
    /// How often it looks whether something is too old.
    const LOOK: Duration = Duration::from_mins(10);
    /// For how long it throws away until those have their turn who have something to be written, and
    /// for how long when nobody has any more.
    const PART: Duration = Duration::from_millis(5);
    const LAST: Duration = Duration::from_secs(1);

    pub(crate) fn new(directory: PathBuf, keep: Keep) -> Self {
        Self { directory, keep, books: HashMap::new(), ill: Ill::default(), round: None }
    }

    pub(crate) fn run<E: Entry>(&mut self, desk: &Desk<E>) {
        let mut looked: Option<Instant> = None;
        loop {
            if looked.is_none_or(|looked| looked.elapsed() >= Self::LOOK) {
                looked = Some(Instant::now());
                desk.forget(Instant::now());
                match self.keep.round(&self.directory, SystemClock.now()) {
                    Ok(round) => self.round = Some(round),
                    Err(error) => cannot_keep(&error),
                }
            }
            self.throw_away(Self::PART);
            let patience = if self.round.is_some() { Duration::ZERO } else { Self::LOOK };
            match desk.next(patience) {
                Next::Never => return self.throw_away(Self::LAST),
                Next::Nothing => {}
                Next::Turn(sandbox, items) => self.turn(desk, sandbox, &items),
            }
        }
    }

    /// Goes on to throw away what is too old or too much, for about as long as this.
    fn throw_away(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(round) = &mut self.round
            && Instant::now() < until
        {
            let open = |sandbox: SandboxId| self.books.get(&sandbox).map(Book::path);
            if round.step(|sandbox, path| open(sandbox) == Some(path)).is_continue() {
                continue;
            }
            if let Some(error) = self.round.take().and_then(|round| round.failed) {
                cannot_keep(&error);
            }
        }
    }

    fn turn<E: Entry>(&mut self, desk: &Desk<E>, sandbox: SandboxId, items: &VecDeque<Item<E>>) {
        let entries = items.iter().filter(|item| matches!(item, Item::Entry(_))).count() as u64;
        match self.write(sandbox, items) {
            Ok(()) => {
                desk.counters.written.fetch_add(entries, Relaxed);
                if self.ill.recovers(sandbox) {
                    tracing::info!("what sandboxes do is written down again");
                }
            }
            Err(error) => {
                desk.counters.failed.fetch_add(entries, Relaxed);
                if self.ill.falls(sandbox) {
                    let error = Chain(&error).to_string();
                    tracing::error!(
                        sandbox_id = %sandbox, error,
                        "cannot write down what sandboxes do: it is counted, and they go on"
                    );
                }
                // Whatever there is of it now is read before it is gone on with.
                self.books.remove(&sandbox);
                desk.give_back(sandbox, items);
            }
        }
    }

    fn write<E: Entry>(
        &mut self,
        sandbox: SandboxId,
        items: &VecDeque<Item<E>>,
    ) -> Result<(), PathError> {
        let directory = self.directory.join(sandbox.to_string());
        let is_over = items.iter().any(Item::is_last);
        let mut book = match self.books.entry(sandbox) {
            hash_map::Entry::Occupied(known) => known,
            hash_map::Entry::Vacant(_)
                if items.iter().all(Item::is_last) && !directory.exists() =>
            {
                return Ok(());
            }
            hash_map::Entry::Vacant(place) => place.insert_entry(Book::open(directory, sandbox)?),
        };
        let was_finished = book.get().is_finished();
        let now = SystemClock.now();
        book.get_mut().write(now, |page| {
            for item in items {
                match item {
                    Item::Entry(entry) => page.add((entry.at(), entry.kind()), entry)?,
                    Item::Missed(missed) => page.add((now, book::MISSED), missed)?,
                    Item::Finished => {}
                }
            }
            // What comes after the last line is followed by another.
            if (is_over && !was_finished) || (was_finished && !page.is_empty()) {
                page.add((now, book::FINISHED), ())?;
            }
            Ok(())
        })?;
        if book.get().is_finished() {
            let book = book.remove();
            let (entries, hash) = book.end();
            // Who keeps the log elsewhere can tell whether something is cut off.
            tracing::info!(sandbox_id = %sandbox, entries, %hash, "its audit book is finished");
        }
        Ok(())
    }
}

fn cannot_keep(error: &PathError) {
    let error = Chain(error).to_string();
    tracing::warn!(error, "cannot throw away old audit files");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_some_cannot_be_written_is_said_once_although_others_can() {
        let (one, other, well) = (SandboxId::random(), SandboxId::random(), SandboxId::random());
        let mut ill = Ill::default();
        assert!(ill.falls(one));
        assert!(!ill.recovers(well) && !ill.falls(one) && !ill.falls(other));
        assert!(!ill.recovers(one));
        assert!(ill.recovers(other) && !ill.recovers(other));
    }
}
