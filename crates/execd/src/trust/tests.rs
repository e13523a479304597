use osb_sys::fs;
use rustix::fs::{FileType, mknodat};
use tempfile::TempDir;

use super::*;

fn authority(text: &str) -> String {
    format!("{BEGIN}\n{text}\n{END}\n")
}

/// The files of a sandbox.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        for directory in ["etc/ssl/certs", "opt"] {
            fs::create_dir_all(root.at(directory)).unwrap();
        }
        root
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// Answers with the variables.
    fn install(&self, authorities: &str) -> BTreeMap<OsString, OsString> {
        let mut variables = BTreeMap::new();
        install_in(self.0.path(), authorities, &mut variables).ok();
        variables
    }
}

#[test]
fn authorities_are_added_to_those_of_the_image() {
    let (root, own) = (Root::new(), authority("own"));
    let before = format!("# one\n{}", authority("one"));
    fs::write(root.at(SYSTEM[0]), &before).unwrap();
    for _ in 0..2 {
        let variables = root.install(&own);
        assert_eq!(variables[std::ffi::OsStr::new("SSL_CERT_FILE")], ALL);
        assert_eq!(root.text(SYSTEM[0]), format!("{before}{own}"));
        assert_eq!(root.text(OWN), own);
        assert_eq!(root.text(ALL), authority("one") + &own);
    }
}

#[test]
fn links_as_distributions_have_them_are_followed() {
    let (root, own) = (Root::new(), authority("own"));
    fs::create_dir_all(root.at("etc/pki/extracted")).unwrap();
    fs::write(root.at("etc/pki/extracted/all.pem"), authority("one")).unwrap();
    fs::symlink("/etc/pki/extracted/all.pem", root.at(SYSTEM[0])).unwrap();
    root.install(&own);
    assert_eq!(root.text("etc/pki/extracted/all.pem"), authority("one") + &own);
    assert_eq!(root.text(ALL), authority("one") + &own);
}

#[test]
fn of_a_file_nothing_is_copied_but_certificates() {
    let root = Root::new();
    let mixed = format!("7f00-7fff r-xp /execd\n{}{BEGIN}\nkey: 1\n{END}\n", authority("one"));
    fs::write(root.at(SYSTEM[0]), mixed).unwrap();
    root.install(&authority("own"));
    assert_eq!(root.text(ALL), authority("one") + &authority("own"));
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let root = Root::new();
    fs::write(root.at("etc/passwd"), "root:x:0:0\n").unwrap();
    fs::symlink("../../passwd", root.at(SYSTEM[0])).unwrap();
    root.install(&authority("own"));
    assert_eq!(root.text("etc/passwd"), "root:x:0:0\n");
    assert_eq!(root.text(ALL), authority("own"));
}

#[test]
fn nobody_is_waited_for_at_a_pipe() {
    let root = Root::new();
    mknodat(CWD, root.at(SYSTEM[0]), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::create_dir_all(root.at(DIRECTORY)).unwrap();
    mknodat(CWD, root.at(OWN), FileType::Fifo, Mode::RWXU, 0).unwrap();
    root.install(&authority("own"));
    assert_eq!(root.text(OWN), authority("own"));
    assert_eq!(root.text(ALL), authority("own"));
}

#[test]
fn nothing_is_written_through_a_link() {
    let (root, volume) = (Root::new(), tempfile::tempdir().unwrap());
    let precious = volume.path().join("precious");
    fs::write(&precious, "data").unwrap();
    fs::write(root.at("etc/precious"), "data").unwrap();
    fs::create_dir_all(root.at(DIRECTORY)).unwrap();
    fs::symlink(&precious, root.at(OWN)).unwrap();
    fs::symlink("/etc/precious", root.at(ALL)).unwrap();
    fs::symlink(&precious, root.at(DIRECTORY).join(".authorities.partial")).unwrap();
    fs::symlink(&precious, root.at(SYSTEM[0])).unwrap();
    root.install(&authority("own"));
    assert_eq!(fs::read(&precious).unwrap(), b"data");
    assert_eq!(root.text("etc/precious"), "data");
    assert_eq!(root.text(OWN), authority("own"));
    assert_eq!(root.text(ALL), authority("own"));
}

#[test]
fn what_a_file_has_already_is_not_written_again() {
    let (one, other) = (authority("one"), authority("other"));
    let both = format!("{one}{other}");
    assert_eq!(unknown(&both, ""), both);
    assert_eq!(unknown(&both, &format!("# \u{fffd}\n{one}")), other);
    assert_eq!(unknown(&both, both.trim_end()), "");
}
