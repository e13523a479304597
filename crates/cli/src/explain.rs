//! `osb explain`: the pages of `docs/errors`, carried along.

use crate::{failure::Failure, output::Output, table::Table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The code, such as `DOCKER::SANDBOX_NOT_FOUND`; without one, all codes are listed
    code: Option<String>,
}

pub(crate) fn main(args: &Args, output: &mut Output<'_>) -> Result<u8, Failure> {
    let Some(code) = &args.code else {
        let mut table = Table::new(["CODE", "MEANING"]);
        for page in PAGES {
            table.row([page.code.to_owned(), page.meaning().to_owned()]);
        }
        output.line(&table.render())?;
        return Ok(0);
    };
    let page = find(code).ok_or_else(|| {
        Failure::Usage(format!("{code:?} is no error code; `osb explain` lists them all"))
    })?;
    output.line(page.text.trim_end())?;
    Ok(0)
}

#[derive(Debug)]
struct Page {
    code: &'static str,
    text: &'static str,
}

impl Page {
    /// The sentence below the heading.
    fn meaning(&self) -> &'static str {
        let bold = self.text.lines().find_map(|line| line.strip_prefix("**")?.strip_suffix("**"));
        bold.unwrap_or_default()
    }
}

macro_rules! pages {
    ($($code:literal => $file:literal,)*) => {
        &[$(Page {
            code: $code,
            text: include_str!(concat!("../../../docs/errors/", $file, ".md")),
        }),*]
    };
}

/// A page per code; in file names `--` stands for `::`.
const PAGES: &[Page] = {
    pages! {
        "MISSING_API_KEY" => "MISSING_API_KEY",
        "INVALID_API_KEY" => "INVALID_API_KEY",
        "MISSING_OR_INVALID_SECURE_ACCESS" => "MISSING_OR_INVALID_SECURE_ACCESS",
        "ENDPOINT::SIGNATURE_EXPIRED" => "ENDPOINT--SIGNATURE_EXPIRED",
        "ENDPOINT::SIGNATURE_INVALID" => "ENDPOINT--SIGNATURE_INVALID",
        "GENERAL::NOT_FOUND" => "GENERAL--NOT_FOUND",
        "GENERAL::METHOD_NOT_ALLOWED" => "GENERAL--METHOD_NOT_ALLOWED",
        "GENERAL::BODY_TOO_LARGE" => "GENERAL--BODY_TOO_LARGE",
        "SANDBOX::INTERNAL_ERROR" => "SANDBOX--INTERNAL_ERROR",
        "SANDBOX::INVALID_PARAMETER" => "SANDBOX--INVALID_PARAMETER",
        "SANDBOX::INVALID_METADATA_LABEL" => "SANDBOX--INVALID_METADATA_LABEL",
        "INVALID_METADATA_FORMAT" => "INVALID_METADATA_FORMAT",
        "SANDBOX::IMAGE_NOT_FOUND" => "SANDBOX--IMAGE_NOT_FOUND",
        "SANDBOX::IMAGE_ACCESS_DENIED" => "SANDBOX--IMAGE_ACCESS_DENIED",
        "SANDBOX::REGISTRY_NOT_ALLOWED" => "SANDBOX--REGISTRY_NOT_ALLOWED",
        "SANDBOX::IMAGE_REFUSED" => "SANDBOX--IMAGE_REFUSED",
        "DOCKER::SANDBOX_IMAGE_PULL_FAILED" => "DOCKER--SANDBOX_IMAGE_PULL_FAILED",
        "SANDBOX::IMAGE_PUSH_FAILED" => "SANDBOX--IMAGE_PUSH_FAILED",
        "SANDBOX::IMAGE_IN_USE" => "SANDBOX--IMAGE_IN_USE",
        "IMAGE::BUILD_INVALID" => "IMAGE--BUILD_INVALID",
        "IMAGE::BUILD_FAILED" => "IMAGE--BUILD_FAILED",
        "DOCKER::SANDBOX_NOT_FOUND" => "DOCKER--SANDBOX_NOT_FOUND",
        "DOCKER::SANDBOX_START_FAILED" => "DOCKER--SANDBOX_START_FAILED",
        "DOCKER::SANDBOX_DELETE_FAILED" => "DOCKER--SANDBOX_DELETE_FAILED",
        "DOCKER::SANDBOX_NOT_RUNNING" => "DOCKER--SANDBOX_NOT_RUNNING",
        "DOCKER::SANDBOX_NOT_PAUSED" => "DOCKER--SANDBOX_NOT_PAUSED",
        "DOCKER::INVALID_EXPIRATION" => "DOCKER--INVALID_EXPIRATION",
        "DOCKER::INVALID_PORT" => "DOCKER--INVALID_PORT",
        "SANDBOX::API_NOT_SUPPORTED" => "SANDBOX--API_NOT_SUPPORTED",
        "SNAPSHOT::NOT_IMPLEMENTED" => "SNAPSHOT--NOT_IMPLEMENTED",
        "SNAPSHOT::NOT_FOUND" => "SNAPSHOT--NOT_FOUND",
        "SNAPSHOT::NOT_READY" => "SNAPSHOT--NOT_READY",
        "SNAPSHOT::INVALID_STATE" => "SNAPSHOT--INVALID_STATE",
        "SNAPSHOT::INVALID_SOURCE_STATE" => "SNAPSHOT--INVALID_SOURCE_STATE",
        "SNAPSHOT::RUNTIME_CREATE_CONFLICT" => "SNAPSHOT--RUNTIME_CREATE_CONFLICT",
        "SNAPSHOT::RUNTIME_CREATE_FAILED" => "SNAPSHOT--RUNTIME_CREATE_FAILED",
        "SNAPSHOT::DELETE_FAILED" => "SNAPSHOT--DELETE_FAILED",
        "SANDBOX::TOO_BUSY" => "SANDBOX--TOO_BUSY",
        "BACKEND_CONNECTION_FAILED" => "BACKEND_CONNECTION_FAILED",
        "BACKEND_RESPONSE_FAILED" => "BACKEND_RESPONSE_FAILED",
        "BACKEND_TIMEOUT" => "BACKEND_TIMEOUT",
        "EGRESS::UNAUTHORIZED" => "EGRESS--UNAUTHORIZED",
        "EGRESS::TOO_MANY_RULES" => "EGRESS--TOO_MANY_RULES",
        "VAULT::NOT_FOUND" => "VAULT--NOT_FOUND",
        "VAULT::ALREADY_EXISTS" => "VAULT--ALREADY_EXISTS",
        "VAULT::REVISION_MISMATCH" => "VAULT--REVISION_MISMATCH",
        "VAULT::INVALID" => "VAULT--INVALID",
        "VAULT::NOT_READY" => "VAULT--NOT_READY",
        "VAULT::TLS_REQUIRED" => "VAULT--TLS_REQUIRED",
        "VAULT::FORBIDDEN" => "VAULT--FORBIDDEN",
        "INVALID_REQUEST_BODY" => "INVALID_REQUEST_BODY",
        "MISSING_QUERY" => "MISSING_QUERY",
        "RUNTIME_ERROR" => "RUNTIME_ERROR",
        "INVALID_FILE" => "INVALID_FILE",
        "INVALID_FILE_CONTENT" => "INVALID_FILE_CONTENT",
        "INVALID_FILE_METADATA" => "INVALID_FILE_METADATA",
        "FILE_NOT_FOUND" => "FILE_NOT_FOUND",
        "UNKNOWN" => "UNKNOWN",
        "CONTEXT_NOT_FOUND" => "CONTEXT_NOT_FOUND",
        "LANGUAGE_NOT_AVAILABLE" => "LANGUAGE_NOT_AVAILABLE",
        "ALREADY_CONNECTED" => "ALREADY_CONNECTED",
        "NOT_SUPPORTED" => "NOT_SUPPORTED",
        "SERVICE_UNAVAILABLE" => "SERVICE_UNAVAILABLE",
        "UNAUTHORIZED" => "UNAUTHORIZED",
        "DOCKER::INVALID_ENTRYPOINT" => "DOCKER--INVALID_ENTRYPOINT",
        "DOCKER::SANDBOX_PAUSE_FAILED" => "DOCKER--SANDBOX_PAUSE_FAILED",
        "DOCKER::SANDBOX_RESUME_FAILED" => "DOCKER--SANDBOX_RESUME_FAILED",
        "INVALID_METADATA_LABEL" => "INVALID_METADATA_LABEL",
        "SANDBOX::UNSUPPORTED_POOL_REF" => "SANDBOX--UNSUPPORTED_POOL_REF",
        "KUBERNETES::POOL_NOT_SUPPORTED" => "KUBERNETES--POOL_NOT_SUPPORTED",
        "FSB::API_NOT_SUPPORTED" => "FSB--API_NOT_SUPPORTED",
        "FSB::TEMPLATE_NOT_FOUND" => "FSB--TEMPLATE_NOT_FOUND",
        "FSB::TEMPLATE_CONFLICT" => "FSB--TEMPLATE_CONFLICT",
        "DIAGNOSTICS_SCOPE_UNSUPPORTED" => "DIAGNOSTICS_SCOPE_UNSUPPORTED",
        "VOLUME::INVALID_NAME" => "VOLUME--INVALID_NAME",
        "VOLUME::DUPLICATE_NAME" => "VOLUME--DUPLICATE_NAME",
        "VOLUME::INVALID_BACKEND" => "VOLUME--INVALID_BACKEND",
        "VOLUME::INVALID_MOUNT_PATH" => "VOLUME--INVALID_MOUNT_PATH",
        "VOLUME::INVALID_SUB_PATH" => "VOLUME--INVALID_SUB_PATH",
        "VOLUME::INVALID_HOST_PATH" => "VOLUME--INVALID_HOST_PATH",
        "VOLUME::HOST_PATH_NOT_ALLOWED" => "VOLUME--HOST_PATH_NOT_ALLOWED",
        "VOLUME::HOST_PATH_NOT_FOUND" => "VOLUME--HOST_PATH_NOT_FOUND",
        "VOLUME::HOST_PATH_CREATE_FAILED" => "VOLUME--HOST_PATH_CREATE_FAILED",
        "VOLUME::INVALID_PVC_NAME" => "VOLUME--INVALID_PVC_NAME",
        "VOLUME::PVC_NOT_FOUND" => "VOLUME--PVC_NOT_FOUND",
        "VOLUME::UNSUPPORTED_BACKEND" => "VOLUME--UNSUPPORTED_BACKEND",
        "VOLUME::IN_USE" => "VOLUME--IN_USE",
    }
};

/// The page of the code, also in lower case and without what stands before `::`, if that is
/// enough to tell.
fn find(text: &str) -> Option<&'static Page> {
    let wanted = text.to_ascii_uppercase().replace("--", "::");
    if let Some(page) = PAGES.iter().find(|page| page.code == wanted) {
        return Some(page);
    }
    let mut ending = PAGES
        .iter()
        .filter(|page| page.code.rsplit_once("::").is_some_and(|(_, last)| last == wanted));
    match (ending.next(), ending.next()) {
        (Some(page), None) => Some(page),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use osb_api::codes;

    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let codes: BTreeSet<_> = codes::ALL.iter().copied().collect();
        let pages: BTreeSet<_> = PAGES.iter().map(|page| page.code).collect();
        assert_eq!(pages, codes);
        for page in PAGES {
            assert!(page.text.starts_with(&format!("# {}\n", page.code)), "{}", page.code);
            assert!(!page.meaning().is_empty(), "{}", page.code);
            assert!(page.text.contains("## What happened"), "{}", page.code);
            assert!(page.text.contains("## What to try"), "{}", page.code);
        }
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let files: BTreeSet<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected: BTreeSet<_> =
            codes.iter().map(|code| format!("{}.md", code.replace("::", "--"))).collect();
        assert_eq!(files, expected);
    }

    #[test]
    fn codes_are_found_as_people_type_them() {
        for text in ["DOCKER::SANDBOX_NOT_FOUND", "docker::sandbox_not_found", "SANDBOX_NOT_FOUND"]
        {
            assert_eq!(find(text).unwrap().code, codes::SANDBOX_NOT_FOUND, "{text}");
        }
        assert!(find("NOT_FOUND").is_none(), "several codes end like this");
        assert!(find("").is_none());
    }

    #[test]
    fn a_page_is_printed() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let args = Args { code: Some("SANDBOX::TOO_BUSY".to_owned()) };
        assert_eq!(main(&args, &mut output).unwrap(), 0);
        assert!(String::from_utf8(out).unwrap().starts_with("# SANDBOX::TOO_BUSY\n"));
        assert!(err.is_empty());
    }
}
