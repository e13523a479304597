use osb_core::testkit::required;

use super::*;

fn tree() -> Option<(tempfile::TempDir, Tree)> {
    if !required("root", rustix::process::geteuid().is_root()) {
        return None;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let foundation = Foundation::open(Vec::<PathBuf>::new()).unwrap();
    let tree = Tree::begin(root.path(), Some(foundation), IdBase(0), Rights::Root).unwrap();
    Some((root, tree))
}

fn plain() -> Attributes {
    Attributes::new(Some(0), Some(0), 0o755, Moment::default())
}

#[test]
fn links_cannot_be_used_to_lead_without_end() {
    let Some((_root, mut tree)) = tree() else { return };
    tree.symlink(b"a", b"b", &plain()).unwrap();
    tree.symlink(b"b", b"a", &plain()).unwrap();
    assert!(matches!(tree.directory(b"a/x", plain()), Err(UnpackError::Refused(_))));
    // Each directory is as deep as a path can name, below the last one.
    let deep = [&b"d".repeat(100)[..]; 30].join(&b'/');
    let mut refused = false;
    for number in 0..4 {
        let (link, inner) = (format!("link{number}"), format!("link{number}/inner"));
        tree.symlink(link.as_bytes(), &deep, &plain()).unwrap();
        let path = [link.as_bytes(), b"/", &deep].concat();
        refused |= matches!(tree.directory(&path, plain()), Err(UnpackError::Refused(_)));
        drop(tree.directory(inner.as_bytes(), plain()));
    }
    assert!(refused);
}

#[test]
fn the_files_belong_to_those_who_are_named_counted_from_the_first() {
    use std::os::unix::fs::MetadataExt;
    if !required("root", rustix::process::geteuid().is_root()) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let foundation = Foundation::open(Vec::<PathBuf>::new()).unwrap();
    let mut tree = Tree::begin(root.path(), Some(foundation), IdBase(1000), Rights::User).unwrap();
    let mut attributes = Attributes::new(Some(5), Some(6), 0o6711, Moment::default());
    let powers = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(attributes.extend(b"security.capability", &powers));
    tree.file(b"d/file", attributes).unwrap().finish().unwrap();
    tree.symlink(b"d/link", b"x", &plain()).unwrap();
    tree.opaque(b"d").unwrap();
    tree.finish().unwrap();
    let at = |name: &str| root.path().join("files/d").join(name).symlink_metadata().unwrap();
    assert_eq!(
        (at("file").uid(), at("file").gid(), at("file").mode() & 0o7777),
        (1005, 1006, 0o6711)
    );
    assert_eq!((at("link").uid(), at("").uid()), (1000, 1000));
    let mut value = [0; 64];
    let path = root.path().join("files/d");
    let count = rustix::fs::getxattr(path.join("file"), c"security.capability", &mut value[..]);
    // The root that these powers belong to is the one inside.
    assert_eq!(value[..count.unwrap()][20..], 1000_u32.to_le_bytes());
    let count = rustix::fs::getxattr(&path, c"user.overlay.opaque", &mut value[..]).unwrap();
    assert_eq!(&value[..count], b"y");
}
