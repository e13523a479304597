//! Variables that are known before any stage is.

use std::collections::{BTreeMap, BTreeSet};

use osb_registry::Platform;

use super::Wanted;
use crate::{
    dockerfile::{Dockerfile, Instruction},
    expand,
    problem::{Fault, Problem, Warning},
};

/// What steps may be given without a word in the Dockerfile: how to reach the network. It is no part
/// of what they are.
pub(crate) const PROXIES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];
/// What says when the image was made.
pub(crate) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The values of `ARG`s before the first `FROM`, and of those that are always there.
pub(super) fn values(
    file: &Dockerfile,
    wanted: &Wanted,
) -> Result<BTreeMap<String, String>, Problem> {
    let mut values = BTreeMap::new();
    for (prefix, platform) in [("TARGET", &wanted.platform), ("BUILD", &wanted.host)] {
        let Platform { os, architecture, variant, os_version: _ } = platform;
        for (name, value) in [
            ("PLATFORM", platform.to_string()),
            ("OS", os.clone()),
            ("ARCH", architecture.clone()),
            ("VARIANT", variant.clone().unwrap_or_default()),
        ] {
            values.insert(format!("{prefix}{name}"), value);
        }
    }
    let stage = wanted.target.clone().unwrap_or_else(|| {
        let last = file.stages.last().and_then(|stage| stage.name.clone());
        last.unwrap_or_else(|| "default".to_owned())
    });
    values.insert("TARGETSTAGE".to_owned(), stage);
    for (place, declared) in &file.globals {
        for arg in declared {
            let value = match (wanted.args.get(&arg.name), &arg.default) {
                (Some(given), _) => given.clone(),
                (None, Some(default)) => expand::word(default, file.directives.escape, &values)
                    .map_err(|fault| Problem::new(&file.name, place.first, &place.text, &fault))?,
                (None, None) => continue,
            };
            values.insert(arg.name.clone(), value);
        }
    }
    Ok(values)
}

/// When the image is to say that it was made, if that was given as a variable.
pub(super) fn epoch(file: &Dockerfile, wanted: &Wanted) -> Result<Option<i64>, Problem> {
    let Some(text) = wanted.args.get(EPOCH) else { return Ok(None) };
    let seconds = text.parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    seconds.map(Some).ok_or_else(|| {
        let fault = Fault::new(format!("{EPOCH}={text} is no number of seconds since 1970"));
        Problem::new(&file.name, 1, "", &fault)
    })
}

/// Values that were given for variables of which the Dockerfile says nothing.
pub(super) fn unknown(file: &Dockerfile, wanted: &Wanted) -> Vec<Warning> {
    let in_stages = file.stages.iter().flat_map(|stage| &stage.steps).filter_map(|said| {
        if let Instruction::Arg(declared) = &said.what { Some(declared) } else { None }
    });
    let all = file.globals.iter().map(|(_, declared)| declared).chain(in_stages);
    let known: BTreeSet<&str> = all.flatten().map(|arg| arg.name.as_str()).collect();
    let is_unknown = |name: &&String| {
        !known.contains(name.as_str()) && !PROXIES.contains(&name.as_str()) && *name != EPOCH
    };
    let warn = |name: &String| Warning {
        line: 1,
        what: format!("a value for {name} was given, and there is no ARG {name}"),
    };
    wanted.args.keys().filter(is_unknown).map(warn).collect()
}
