//! The two streams that `osb` writes to: data on one, talk on the other.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Where a command writes. Data goes to `out`, so that it can be piped; everything said to a
/// person goes to `err`.
pub(crate) struct Output<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    is_watched: bool,
}

/// What a listing looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    #[default]
    Table,
    /// JSON for programs, with every field that the API has
    Json,
}

impl<'a> Output<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self { out, err, is_watched: false }
    }

    /// Standard error is a terminal, on which what was said can be said anew.
    #[must_use]
    pub(crate) fn watched(mut self, is_watched: bool) -> Self {
        self.is_watched = is_watched;
        self
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Writes data and hands it on at once.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).and_then(|()| self.out.flush()).map_err(Failure::Output)
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.data(format!("{text}\n").as_bytes())
    }

    pub(crate) fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::Output(io::Error::other(error)))?;
        self.line(&text)
    }

    /// Data that a command in a sandbox wrote to its standard error.
    pub(crate) fn error_data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.err.write_all(bytes).and_then(|()| self.err.flush()).map_err(Failure::Output)
    }

    /// Tells the person something. Whether anybody can hear it changes nothing.
    pub(crate) fn say(&mut self, text: &str) {
        drop(writeln!(self.err, "osb: {text}"));
    }
}
