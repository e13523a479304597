//! Writes `specs/` from the wire types and the operations of each API.

mod api;
mod diagnostics;
mod egress;
mod execd;
mod images;
mod lifecycle;
mod operation;
mod strict;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::checkout;
use api::Api;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if a document is not what the code says.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut stale = Vec::new();
    for (path, wanted) in documents()? {
        let place = checkout::root().join(&path);
        if osb_sys::fs::read_to_string(&place).is_ok_and(|found| found == wanted) {
            continue;
        }
        if !options.check {
            osb_sys::fs::create_dir_all(checkout::root().join("specs"))?;
            osb_sys::fs::write(&place, wanted)?;
            println!("wrote {path}");
        }
        stale.push(path);
    }
    if options.check && !stale.is_empty() {
        println!("not what the code says: {}; run `cargo xtask spec`", stale.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn all() -> [Api; 4] {
    [lifecycle::api(), execd::api(), egress::api(), diagnostics::api()]
}

/// Every file that is written, with its content.
fn documents() -> Result<Vec<(String, String)>> {
    let mut documents = Vec::new();
    for api in all() {
        documents.push((format!("specs/{}.yaml", api.name()), yaml(&api)?));
    }
    // What the server says of itself: crates/server carries this file.
    documents.push(("specs/lifecycle.json".to_owned(), json(&lifecycle::api())?));
    Ok(documents)
}

fn json(api: &Api) -> Result<String> {
    let body = serde_json::to_string_pretty(&api.document())
        .with_context(|| format!("cannot write the {} API as JSON", api.name()))?;
    Ok(without_links(&body) + "\n")
}

/// Descriptions come from the code's documentation, whose links lead nowhere here.
fn without_links(document: &str) -> String {
    document.replace("[`", "`").replace("`]", "`")
}

fn yaml(api: &Api) -> Result<String> {
    let body = serde_saphyr::to_string(&api.document())
        .with_context(|| format!("cannot write the {} API as YAML", api.name()))?;
    let body = without_links(&body);
    let mut document =
        "# Written by `cargo xtask spec`. Change the code, not this file.\n".to_owned();
    for line in body.lines() {
        document.push_str(line.trim_end());
        document.push('\n');
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn documents_are_the_same_every_time() {
        assert_eq!(documents().unwrap(), documents().unwrap());
    }

    #[test]
    fn every_reference_has_its_schema() {
        for api in all() {
            let document = serde_json::to_value(api.document()).unwrap();
            let known: BTreeSet<String> = document["components"]["schemas"]
                .as_object()
                .unwrap()
                .keys()
                .map(|name| format!("#/components/schemas/{name}"))
                .collect();
            let mut open = vec![&document];
            while let Some(value) = open.pop() {
                if let Some(reference) = value.get("$ref").and_then(|r| r.as_str()) {
                    assert!(known.contains(reference), "{}: {reference}", api.name());
                }
                match value {
                    serde_json::Value::Array(items) => open.extend(items),
                    serde_json::Value::Object(fields) => open.extend(fields.values()),
                    serde_json::Value::Null
                    | serde_json::Value::Bool(_)
                    | serde_json::Value::Number(_)
                    | serde_json::Value::String(_) => {}
                }
            }
        }
    }

    #[test]
    fn no_two_operations_share_a_name() {
        for api in all() {
            let document = serde_json::to_value(api.document()).unwrap();
            let mut seen = BTreeSet::new();
            for (path, item) in document["paths"].as_object().unwrap() {
                for operation in item.as_object().unwrap().values() {
                    let id = operation["operationId"].as_str().unwrap().to_owned();
                    assert!(seen.insert(id.clone()), "{id} at {path} of {}", api.name());
                }
            }
        }
    }
}
