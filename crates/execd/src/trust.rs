//! Making the programs of a sandbox trust authorities that their image does not know.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
};

use osb_sys::fs;

use crate::env;

/// Where they are for those who look for them by name.
const DIRECTORY: &str = "/opt/opensandbox";
const OWN: &str = "/opt/opensandbox/mitmproxy-ca-cert.pem";
/// With those of the image.
const ALL: &str = "/opt/opensandbox/merged-ca-certificates.pem";
/// Where distributions keep those they trust; the first that is there counts.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Larger ones are no such file.
const MOST_BYTES: u64 = 8 << 20;

/// Installs `authorities`, which are PEM, in the files of the sandbox, and says so in `variables`.
/// What cannot be written, as in an image that is read-only, is left: the rest serves most.
pub(crate) fn install(authorities: &str, variables: &mut BTreeMap<OsString, OsString>) {
    let known = SYSTEM.iter().find_map(|path| Some((path, read(Path::new(path)).ok()?)));
    let new = unknown(authorities, known.as_ref().map_or(&[], |(_, text)| text));
    let mut all = known.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(new.as_bytes());
    let written = fs::create_dir_all(DIRECTORY)
        .and_then(|()| fs::write(OWN, authorities))
        .and_then(|()| fs::write(ALL, &all));
    if written.is_ok() {
        for (names, file) in [(env::TRUSTS_ONLY.as_slice(), ALL), (&env::TRUSTS_TOO, OWN)] {
            for name in names {
                variables.entry(name.into()).or_insert_with(|| file.into());
            }
        }
    }
    // For those who look at no variable.
    if let Some((path, text)) = known.filter(|_| !new.is_empty()) {
        let begins = if text.ends_with(b"\n") { "" } else { "\n" };
        append(Path::new(path), &format!("{begins}{new}")).ok();
    }
}

/// Those that a file does not have yet, which it may, as in a sandbox that starts from a snapshot.
fn unknown(authorities: &str, file: &[u8]) -> String {
    let file = String::from_utf8_lossy(file);
    let each = authorities.split_inclusive("-----END CERTIFICATE-----\n");
    each.filter(|authority| !file.contains(authority.trim())).collect()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_already_is_not_written_again() {
        let authority =
            |text| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let (one, other) = (authority("one"), authority("other"));
        let both = format!("{one}{other}");
        assert_eq!(unknown(&both, b""), both);
        assert_eq!(unknown(&both, [b"# \xff\n", one.as_bytes()].concat().as_slice()), other);
        assert_eq!(unknown(&both, both.trim_end().as_bytes()), "");
    }
}
