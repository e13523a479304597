//! Holding a sandbox still for a moment.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use osb_sys::fs;

use super::Place;

/// How long its processes may take to stop: one that waits for a disk stops after that.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait at most before looking again.
const LONGEST_LOOK: Duration = Duration::from_millis(5);
/// How long to wait, at first, before what was told to stop goes on for a moment.
const FIRST_STIR: Duration = Duration::from_millis(10);
/// Long enough for a new process to become another program.
const MOMENT: Duration = Duration::from_micros(200);
/// In `sandboxes/<id>`: says that it is stopped, but not paused.
const MARK: &str = "still";

/// A sandbox in which nothing moves for as long as this lives.
#[derive(Debug)]
pub(crate) struct Still<'a> {
    place: &'a Place,
    /// Whether it moves again afterwards.
    paused: bool,
}

impl Place {
    /// Whether somebody has stopped the sandbox who is to let it go on.
    pub(crate) fn is_paused(&self) -> bool {
        // Looked at twice, for it may have been stopped for a moment that is over by now.
        self.group.is_frozen() && !self.directory.join(MARK).exists() && self.group.is_frozen()
    }

    /// Stops everything in the sandbox, and waits until it has stopped. The caller sees to it that
    /// nobody pauses or resumes it meanwhile.
    pub(crate) fn hold_still(&self) -> io::Result<Still<'_>> {
        let still = Still { place: self, paused: self.is_paused() };
        if !still.paused {
            // First, so that no crash leaves a sandbox stopped without a reason.
            fs::write(self.directory.join(MARK), "").map_err(io::Error::other)?;
            self.group.freeze().map_err(io::Error::other)?;
        }
        self.come_to_rest()?;
        Ok(still)
    }

    /// Waits until everything in a sandbox that was told to stop has stopped.
    pub(crate) fn come_to_rest(&self) -> io::Result<()> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(50);
        let mut stir = FIRST_STIR;
        while !self.group.is_still() {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the processes of the sandbox do not stop: one may wait for a disk",
                ));
            }
            // Version 1 of control groups tells nobody when.
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_LOOK);
            if begun.elapsed() > stir {
                // A process that has made another by vfork waits for it and does not stop, and the
                // other is stopped before it has become another program: both go on for a moment.
                // Ever more seldom: each of a thousand busy processes stops in its next turn on
                // a processor, which are few, and all of them must have had theirs.
                stir *= 2;
                self.group.thaw().map_err(io::Error::other)?;
                thread::sleep(MOMENT);
                self.group.freeze().map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Lets a sandbox go on that a crash left still.
    pub(crate) fn stir(&self) -> Result<(), fs::PathError> {
        let mark = self.directory.join(MARK);
        if mark.exists() {
            match self.group.thaw() {
                // The host has been started anew since, and nothing is there to go on.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
            fs::remove_file(mark)?;
        }
        Ok(())
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        if !self.paused
            && let Err(error) = self.place.stir()
        {
            tracing::error!(sandbox_id = %self.place.id, %error, "cannot let the sandbox go on");
        }
    }
}
