//! Files that a command is told to read, of which `-` is standard input.

use std::{
    io::{self, Read as _},
    path::Path,
};

use crate::failure::Failure;

/// Reads the file, and makes of its text what `parse` does.
pub(crate) fn read<T>(
    file: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let (text, name) = if file == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|source| Failure::Machine {
            doing: "cannot read standard input",
            source: source.into(),
        })?;
        (text, "standard input")
    } else {
        (osb_sys::fs::read_to_string(Path::new(file))?, file)
    };
    parse(&text).map_err(|problem| Failure::Content { name: name.to_owned(), problem })
}
