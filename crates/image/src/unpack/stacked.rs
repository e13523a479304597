//! Layers as the kernel stacks them, as we merge them, and as a model says that they are.

use std::{
    collections::BTreeMap,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
    sync::atomic::AtomicBool,
};

use osb_sys::{
    fs, merge,
    mount::{self, Attributes, FsOption},
    rootless::Rights,
    unpack::Foundation,
};
use proptest::prelude::*;

use crate::trial::{Place, Tar};

#[derive(Debug, Clone)]
enum Op {
    File(String, u8),
    Directory(String, u8),
    Gone(String),
    Opaque(String),
}

/// What is at a path, and the layer that put it there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(u8, usize),
    Directory { mode: u32, layer: usize, inner: BTreeMap<String, Node> },
}

impl Node {
    fn directory(mode: u32, layer: usize) -> Self {
        Self::Directory { mode, layer, inner: BTreeMap::new() }
    }

    /// Takes away what older layers have in it.
    fn prune(&mut self, now: usize) {
        if let Self::Directory { inner, .. } = self {
            inner.retain(|_, node| match node {
                Self::File(_, layer) | Self::Directory { layer, .. } => *layer == now,
            });
            for node in inner.values_mut() {
                node.prune(now);
            }
        }
    }
}

/// Does what an entry of a layer does. `None` if a file is in its way.
fn apply(root: &mut Node, op: &Op, now: usize) -> Option<()> {
    let path = match op {
        Op::File(path, _) | Op::Directory(path, _) | Op::Gone(path) | Op::Opaque(path) => path,
    };
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = if matches!(op, Op::Opaque(_)) { None } else { parts.pop() };
    let mut here = root;
    for part in parts {
        let Node::Directory { inner, .. } = here else { return None };
        here = inner.entry(part.to_owned()).or_insert_with(|| Node::directory(0o755, now));
        let Node::Directory { layer, .. } = here else { return None };
        *layer = now;
    }
    let Some(name) = name else {
        here.prune(now);
        return Some(());
    };
    let Node::Directory { inner, .. } = here else { return None };
    match (op, inner.get_mut(name)) {
        (Op::File(_, content), _) => {
            inner.insert(name.to_owned(), Node::File(*content, now));
        }
        (Op::Directory(_, mode), Some(Node::Directory { mode: old, layer, .. })) => {
            (*old, *layer) = (directory_mode(*mode), now);
        }
        (Op::Directory(_, mode), _) => {
            inner.insert(name.to_owned(), Node::directory(directory_mode(*mode), now));
        }
        (_, Some(Node::File(_, layer) | Node::Directory { layer, .. })) if *layer == now => {
            if let Some(node) = inner.get_mut(name) {
                node.prune(now);
            }
        }
        (_, Some(_)) => drop(inner.remove(name)),
        (_, None) => {}
    }
    Some(())
}

fn directory_mode(choice: u8) -> u32 {
    [0o755, 0o700, 0o711][usize::from(choice % 3)]
}

fn archive(ops: &[Op]) -> Vec<u8> {
    let with = |tar: Tar, op: &Op| match op {
        Op::File(path, content) => tar.file(path, &content.to_string()),
        Op::Directory(path, mode) => tar.directory(path, directory_mode(*mode)),
        Op::Gone(path) => {
            let (around, name) = path.rsplit_once('/').unwrap_or((".", path));
            tar.file(&format!("{around}/.wh.{name}"), "")
        }
        Op::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), ""),
    };
    ops.iter().fold(Tar::new().directory("./", 0o755), with).end()
}

/// What is below a directory, as lines.
fn walk(directory: &Path, prefix: &str, into: &mut Vec<String>) {
    let mut names = fs::names(directory).unwrap();
    names.sort();
    for name in names {
        let path = directory.join(&name);
        let shown = format!("{prefix}/{name}");
        // What is listed and not there is a mark that shows.
        let Ok(metadata) = path.symlink_metadata() else {
            into.push(format!("{shown} is a mark"));
            continue;
        };
        assert!(!metadata.file_type().is_char_device(), "{shown} is a mark");
        if metadata.is_dir() {
            into.push(format!("{shown} {:o}", metadata.mode() & 0o7777));
            walk(&path, &shown, into);
        } else {
            into.push(format!("{shown} {}", fs::read_to_string(&path).unwrap()));
        }
    }
}

fn lines(node: &Node, prefix: &str, into: &mut Vec<String>) {
    let Node::Directory { inner, .. } = node else { return };
    for (name, node) in inner {
        let shown = format!("{prefix}/{name}");
        match node {
            Node::File(content, _) => into.push(format!("{shown} {content}")),
            Node::Directory { mode, .. } => {
                into.push(format!("{shown} {mode:o}"));
                lines(node, &shown, into);
            }
        }
    }
}

/// The layers as the kernel shows them.
fn overlay(place: &Place) -> OwnedFd {
    let layers: Vec<_> = place.layers().iter().map(|layer| layer.to_str().unwrap()).collect();
    // The overlay wants two.
    let empty = place.root.path().join("empty");
    fs::create_dir_all(&empty).unwrap();
    let all = [&layers[..], &[empty.to_str().unwrap()]].concat().join(":");
    let options = [FsOption::Text("lowerdir", &all)];
    mount::filesystem("overlay", &options, Attributes::MOUNT_ATTR_RDONLY).unwrap()
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let path = || prop::collection::vec("[abc]", 1..4).prop_map(|parts| parts.join("/"));
    let op = prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, content)| Op::File(path, content)),
        3 => (path(), any::<u8>()).prop_map(|(path, mode)| Op::Directory(path, mode)),
        2 => path().prop_map(Op::Gone),
        1 => path().prop_map(Op::Opaque),
    ];
    prop::collection::vec(op, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn layers_are_what_their_entries_say_one_after_another(
        layers in prop::collection::vec(ops(), 1..5),
    ) {
        use std::os::fd::AsRawFd;
        let Some(mut place) = Place::new() else { return Ok(()) };
        let mut model = Node::directory(0o755, 0);
        for (number, ops) in layers.iter().enumerate() {
            let before = model.clone();
            let fits = ops.iter().try_for_each(|op| apply(&mut model, op, number + 1));
            let unpacked = place.unpack(&archive(ops));
            prop_assert_eq!(fits.is_some(), unpacked.is_ok(), "{:?}: {:?}", ops, unpacked);
            if fits.is_none() {
                model = before;
            }
        }
        if place.layers().is_empty() {
            return Ok(());
        }
        let (mut expected, mut stacked, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        lines(&model, "", &mut expected);
        let root = overlay(&place);
        let shown = format!("/proc/self/fd/{}/", root.as_raw_fd());
        walk(Path::new(&shown), "", &mut stacked);
        prop_assert_eq!(&stacked, &expected, "the kernel shows something else");
        let foundation = Foundation::open(place.layers()).unwrap();
        let around = place.root.path().join("merged");
        fs::create_dir(&around, 0o700).unwrap();
        merge::merge(&foundation, &around, Rights::Root, &AtomicBool::new(false)).unwrap();
        walk(&around.join("files"), "", &mut merged);
        prop_assert_eq!(&merged, &expected, "merged layers show something else");
    }
}
