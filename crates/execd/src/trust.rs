//! Making the programs of a sandbox trust authorities that their image does not know.
//!
//! Whoever made the image, or the snapshot, may have put anything in the way: links to elsewhere, pipes,
//! files without end. Nothing is read or written but ordinary files of the sandbox's own file system.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use osb_sys::beneath;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fchmod, mkdirat, openat, renameat, unlinkat},
    io::Errno,
};

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
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Installs `authorities`, which are PEM, in the files of the sandbox, and says so in `variables`.
/// What cannot be written, as in an image that is read-only, is left: the rest serves most.
pub(crate) fn install(authorities: &str, variables: &mut BTreeMap<OsString, OsString>) {
    install_in(Path::new("/"), authorities, variables).ok();
}

fn install_in(
    root: &Path,
    authorities: &str,
    variables: &mut BTreeMap<OsString, OsString>,
) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty())?;
    let known = SYSTEM.iter().find_map(|path| Some((Path::new(path), read(&root, path)?)));
    let text = known.as_ref().map_or("", |(_, text)| text);
    let new = unknown(authorities, text);
    if let Ok(directory) = directory(&root)
        && put(&directory, OWN, authorities).is_ok()
        && put(&directory, ALL, &(certificates(text) + &new)).is_ok()
    {
        for (names, file) in [(env::TRUSTS_ONLY.as_slice(), ALL), (&env::TRUSTS_TOO, OWN)] {
            for name in names {
                variables.entry(name.into()).or_insert_with(|| file.into());
            }
        }
    }
    // For those who look at no variable.
    if let Some((path, text)) = known.filter(|_| !new.is_empty()) {
        let begins = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        append(&root, path, &format!("{begins}{new}"))?;
    }
    Ok(())
}

/// Those that a file does not have yet, which it may, as in a sandbox that starts from a snapshot.
fn unknown(authorities: &str, file: &str) -> String {
    let each = authorities.split_inclusive("-----END CERTIFICATE-----\n");
    each.filter(|authority| !file.contains(authority.trim())).collect()
}

/// The certificates in a text, and nothing else of it.
fn certificates(text: &str) -> String {
    let mut found = String::new();
    for rest in text.split(BEGIN).skip(1) {
        let Some((inner, _)) = rest.split_once(END) else { continue };
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
        if inner.bytes().all(is_base64) {
            found.extend([BEGIN, inner, END, "\n"]);
        }
    }
    found
}

/// The text of a file of certificates, if that is what is there.
fn read(root: &OwnedFd, path: &str) -> Option<String> {
    let file = small(root, Path::new(path), OFlags::RDONLY).ok()?;
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    (text.is_empty() || !certificates(&text).is_empty()).then_some(text)
}

fn append(root: &OwnedFd, path: &Path, text: &str) -> io::Result<()> {
    small(root, path, OFlags::WRONLY | OFlags::APPEND)?.write_all(text.as_bytes())
}

fn small(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<File> {
    let file = File::from(beneath::open_within(root, path, flags)?);
    let is_fit = file.metadata()?.len() <= MOST_BYTES;
    if is_fit { Ok(file) } else { Err(io::ErrorKind::FileTooLarge.into()) }
}

/// The directory for our files, made if it is missing.
fn directory(root: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut directory = beneath::open_within(root, Path::new("/"), flags)?;
    let mut walked = Path::new("/").to_owned();
    for part in Path::new(DIRECTORY).iter().skip(1) {
        match mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        walked.push(part);
        directory = beneath::open_within(root, &walked, flags)?;
    }
    Ok(directory)
}

/// Puts a new file in the place of whatever has its name, which is not opened.
fn put(directory: &OwnedFd, path: &str, text: &str) -> io::Result<()> {
    const PARTIAL: &str = ".authorities.partial";
    let name = Path::new(path).file_name().ok_or(io::ErrorKind::InvalidInput)?;
    // A snapshot may have one.
    unlinkat(directory, PARTIAL, AtFlags::empty()).ok();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, PARTIAL, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    fchmod(&file, Mode::from_raw_mode(0o644))?;
    Ok(renameat(directory, PARTIAL, directory, name)?)
}

#[cfg(test)]
mod tests;
