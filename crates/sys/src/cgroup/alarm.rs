//! Hearing that a group has run out of memory, without looking again and again.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    fs::{self, PathError},
    ready,
};

/// Rings when a group may have run out of memory. It costs a descriptor and nothing else.
#[derive(Debug)]
pub struct Alarm(Bell);

#[derive(Debug)]
enum Bell {
    /// A counter that the kernel adds to (version 1).
    Event(AsyncFd<OwnedFd>),
    /// A file that the kernel marks as changed (version 2).
    File { marked: AsyncFd<OwnedFd>, file: File },
}

impl Alarm {
    pub(super) fn by_event(group: &Path) -> Result<Self, PathError> {
        let named = |error: io::Error| PathError::new("listen to", group, error);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|error| named(error.into()))?;
        let control = fs::open(group.join("memory.oom_control"))?;
        let order = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        fs::write(group.join("cgroup.event_control"), order)?;
        let event = ready::register(event, Interest::READABLE).map_err(named)?;
        Ok(Self(Bell::Event(event)))
    }

    pub(super) fn by_file(group: &Path) -> Result<Self, PathError> {
        let named = |error: io::Error| PathError::new("listen to", group, error);
        let file = fs::open(group.join("memory.events"))?;
        // What is registered is the same open file, so that reading here is what takes its mark.
        let marked = file.try_clone().map_err(named)?;
        let marked = ready::register(marked.into(), Interest::PRIORITY).map_err(named)?;
        let alarm = Self(Bell::File { marked, file });
        alarm.take_mark().map_err(named)?;
        Ok(alarm)
    }

    /// Waits until it rings. Under version 1 that is just before the kernel ends a process.
    pub async fn rings(&self) -> io::Result<()> {
        match &self.0 {
            Bell::Event(event) => {
                event.readable().await?.clear_ready();
                let mut count = [0; 8];
                match rustix::io::read(event, &mut count) {
                    Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            Bell::File { marked, .. } => {
                marked.ready(Interest::PRIORITY).await?.clear_ready();
                self.take_mark()
            }
        }
    }

    fn take_mark(&self) -> io::Result<()> {
        if let Bell::File { file, .. } = &self.0 {
            file.read_at(&mut [0; 512], 0)?;
        }
        Ok(())
    }
}
