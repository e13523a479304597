//! What execd says about itself, where somebody listens.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use osb_core::{Clock, SystemClock};
use osb_sys::fs::PathError;

use crate::outlet::Outlet;

/// The most that a file of messages grows to. The one before is kept beside it.
const MOST: u64 = 8 << 20;

/// How much somebody wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Nothing,
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    /// By the numbers that published deployments use.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0..=2 => Self::Nothing,
            3 => Self::Error,
            4 => Self::Warn,
            5 | 6 => Self::Info,
            7.. => Self::Debug,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
        }
    }
}

/// Writes messages without ever waiting; those that find no room are lost.
#[derive(Debug)]
pub(crate) struct Log {
    level: Level,
    outlet: Option<Outlet>,
}

impl Log {
    pub(crate) fn new(level: Level, outlet: Option<Outlet>) -> Self {
        Self { level, outlet }
    }

    pub(crate) fn wants(&self, level: Level) -> bool {
        level <= self.level && self.outlet.is_some()
    }

    pub(crate) fn write(&self, level: Level, message: fmt::Arguments<'_>) {
        if let Some(outlet) = &self.outlet
            && level <= self.level
        {
            let line = format!("{:.3} {} {message}\n", SystemClock.now(), level.name());
            outlet.try_write(line.into_bytes());
        }
    }
}

/// A file of messages that does not grow for ever.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LogFile {
    pub(crate) fn open(path: PathBuf) -> Result<Self, PathError> {
        let opened = open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size, file) = opened.map_err(|source| PathError::new("open", &path, source))?;
        Ok(Self { path, file, size })
    }

    fn start_anew(&mut self) -> io::Result<()> {
        let mut before = self.path.clone().into_os_string();
        before.push(".old");
        rustix::fs::rename(&self.path, before)?;
        self.file = open(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size >= MOST {
            self.start_anew()?;
        }
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_messages_starts_anew_when_it_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = LogFile::open(path.clone()).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..9 {
            log.write_all(&line).unwrap();
        }
        let size = |path: &Path| path.metadata().unwrap().len();
        assert_eq!(size(&path), 1 << 20);
        assert_eq!(size(&directory.path().join("log.old")), 8 << 20);
    }

    #[test]
    fn the_numbers_are_those_of_published_deployments() {
        let levels = [0, 2, 3, 4, 5, 6, 7, 255].map(Level::from_number);
        let (nothing, info, debug) = (Level::Nothing, Level::Info, Level::Debug);
        let expected = [nothing, nothing, Level::Error, Level::Warn, info, info, debug, debug];
        assert_eq!(levels, expected);
    }
}
