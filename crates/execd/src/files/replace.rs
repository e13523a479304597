use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use axum::{body::Body, response::Response};
use http::Uri;
use memchr::memmem::Finder;
use osb_api::execd::{Replaced, Replacement as Wanted};
use osb_sys::fs::PathError;

use super::{ownership::Owner, replacement::Replacement, scope::Scope};
use crate::{
    error::ApiError,
    reply,
    request::{self, Parameters},
};

/// How much of a file is looked at at once.
const WINDOW: usize = 256 << 10;

/// `POST /files/replace`: every occurrence of a text in each file by another text. A file changes
/// at once or not at all.
pub(super) async fn replace(scope: Scope, uri: Uri, body: Body) -> Result<Response, ApiError> {
    let verbose = match Parameters::of(&uri)?.one("verbose") {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(_) => return Err(ApiError::invalid("`verbose` must be `true` or `false`")),
    };
    let wanted: Option<BTreeMap<String, Wanted>> = request::json(body).await?;
    let wanted = wanted.unwrap_or_default().into_iter().map(|(given, wanted)| {
        if wanted.old.is_empty() {
            return Err(ApiError::invalid(format!("the text to replace in {given:?} is empty")));
        }
        let path = scope.path(&given)?;
        Ok((given, path, wanted))
    });
    let wanted = wanted.collect::<Result<Vec<_>, ApiError>>()?;
    let counts = scope.run(move || {
        let counts = wanted.into_iter().map(|(given, path, wanted)| {
            let replaced_count = replace_in(&path, wanted.old.as_bytes(), wanted.new.as_bytes())?;
            Ok((given, Replaced { replaced_count }))
        });
        counts.collect::<Result<BTreeMap<_, _>, ApiError>>()
    });
    let counts = counts.await?;
    Ok(if verbose { reply::json(&counts) } else { reply::empty() })
}

fn replace_in(path: &Path, old: &[u8], new: &[u8]) -> Result<u64, ApiError> {
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|source| PathError::new("open", path, source))?;
    let replacement = Replacement::create(path, None, Owner::default())?;
    let count = substitute(file, &*replacement.file(), old, new, WINDOW)
        .map_err(|source| PathError::new("replace text in", path, source))?;
    // A file without the text stays as it is, its times included.
    if count > 0 {
        replacement.commit()?;
    }
    Ok(count)
}

/// Copies `source` with every `old` made `new`, looking at `size` bytes at once, and says how many
/// there were.
fn substitute(
    mut source: impl Read,
    mut target: impl Write,
    old: &[u8],
    new: &[u8],
    size: usize,
) -> io::Result<u64> {
    let finder = Finder::new(old);
    let (mut window, mut count) = (Vec::with_capacity(size + old.len()), 0);
    let mut out = Vec::new();
    loop {
        let read = source.by_ref().take(size as u64).read_to_end(&mut window)?;
        let mut rest = window.as_slice();
        while let Some((before, after)) = finder.find(rest).and_then(|at| rest.split_at_checked(at))
        {
            out.extend_from_slice(before);
            out.extend_from_slice(new);
            rest = after.get(old.len()..).unwrap_or_default();
            count += 1;
            flush(&mut out, &mut target)?;
        }
        // The end of the window may be the beginning of an occurrence.
        let kept = if read == 0 { 0 } else { rest.len().min(old.len() - 1) };
        let (done, carry) = rest.split_at(rest.len() - kept);
        out.extend_from_slice(done);
        flush(&mut out, &mut target)?;
        if read == 0 {
            target.write_all(&out)?;
            return Ok(count);
        }
        let carry = window.len() - carry.len();
        window.drain(..carry);
    }
}

/// Writes what has come together, once it is much.
fn flush(out: &mut Vec<u8>, target: &mut impl Write) -> io::Result<()> {
    if out.len() >= WINDOW {
        target.write_all(out)?;
        out.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_replaces_as_if_the_file_were_one_string(
            text in "[ab]{0,40}", old in "[ab]{1,4}", new in "[abc]{0,3}", size in 1..9_usize,
        ) {
            let mut out = Vec::new();
            let (old_bytes, new_bytes) = (old.as_bytes(), new.as_bytes());
            let count = substitute(text.as_bytes(), &mut out, old_bytes, new_bytes, size).unwrap();
            prop_assert_eq!(count, text.matches(&old).count() as u64);
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace(&old, &new));
        }
    }

    #[test]
    fn occurrences_across_windows_are_found() {
        let old = "needle";
        for shift in 0..=old.len() {
            let text = "x".repeat(WINDOW - shift) + old + &"y".repeat(WINDOW * 2 - 3) + old;
            let mut out = Vec::new();
            let count =
                substitute(text.as_bytes(), &mut out, old.as_bytes(), b"pin", WINDOW).unwrap();
            assert_eq!(count, 2);
            assert!(out == text.replace(old, "pin").into_bytes());
        }
    }
}
