//! Checks what neither the compiler nor clippy checks.

mod errors;
mod files;
mod graph;
mod sentences;
mod text;

use std::{fmt, process::ExitCode};

use anyhow::Result;

use crate::checkout;

/// Something that must be mended before the change can land.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Finding {
    fn in_file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let files = checkout::tracked()?;
    let graph = graph::Graph::read()?;

    let mut findings = files::check(&files);
    findings.extend(text::check(&files));
    findings.extend(errors::check(osb_api::codes::ALL, &files));
    findings.extend(sentences::check(&files));
    findings.extend(graph.check());
    findings.sort();

    for finding in &findings {
        println!("{finding}");
    }
    println!("{}", files::Sizes::of(&files));
    if !findings.is_empty() {
        println!("tidy: {} to mend", findings.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("tidy: {} files, nothing to mend", files.len());
    Ok(ExitCode::SUCCESS)
}
