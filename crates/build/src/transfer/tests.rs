use std::{
    collections::BTreeMap,
    fs::File,
    io::{Seek, SeekFrom, Write},
    path::Path,
};

use osb_core::testkit::required;
use osb_image::{Contained, Limits, Packing, Parcel};
use osb_sys::{fs, rootless::Rights, userns::IdBase};
use tempfile::TempDir;

use super::{write::Target, *};
use crate::{chmod::Chmod, key::CacheKey};

/// A context, an image of two layers, and what is copied from the one to the other.
struct Trial {
    root: TempDir,
    ignore: Ignore,
    exclude: Ignore,
    owner: Option<(u32, u32)>,
    mode: Option<Chmod>,
    link: bool,
    from_image: bool,
    asker: Asker,
}

/// An entry of a layer in one line.
type Lines = Vec<String>;

impl Trial {
    fn new() -> Option<Self> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in
            ["context", "lower", "upper", "lower/etc", "lower/usr/bin", "lower/tmp", "upper/srv"]
        {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        fs::set_mode(root.path().join("lower/tmp"), 0o1777).unwrap();
        fs::symlink("usr/bin", root.path().join("lower/bin")).unwrap();
        let (ignore, exclude) = (Ignore::default(), Ignore::default());
        Some(Self {
            root,
            ignore,
            exclude,
            owner: None,
            mode: None,
            link: false,
            from_image: false,
            asker: Asker::default(),
        })
    }

    fn file(&self, path: &str, content: &str) -> &Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_mode(&path, 0o644).unwrap();
        self
    }

    fn symlink(&self, path: &str, to: &str) -> &Self {
        fs::symlink(to, self.root.path().join(path)).unwrap();
        self
    }

    fn ignore(mut self, text: &str) -> Self {
        self.ignore = Ignore::parse(".dockerignore", text.as_bytes()).unwrap();
        self
    }

    fn exclude(mut self, patterns: &[&str]) -> Self {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        self.exclude = Ignore::of(&patterns).unwrap();
        self
    }

    fn tree(&self) -> Stack {
        let layers = ["upper", "lower"].map(|layer| self.root.path().join(layer));
        Stack::open(layers, IdBase(0), Rights::Root).unwrap()
    }

    fn source(&self) -> Stack {
        if self.from_image {
            self.tree()
        } else {
            Stack::plain(&self.root.path().join("context")).unwrap()
        }
    }

    fn with_files<T>(&self, work: impl FnOnce(&Files<'_>) -> T) -> T {
        let stack = self.source();
        let owners = if self.from_image { Owners::Kept } else { Owners::Root };
        let (ignore, asker, name) = (&self.ignore, &self.asker, "the context");
        work(&Files { stack: &stack, ignore, owners, name, asker })
    }

    fn key(&self, pattern: &str) -> CacheKey {
        self.with_files(|files| {
            digest(files, &files.pick(pattern).unwrap(), &self.exclude).unwrap()
        })
    }

    /// What `COPY pattern… to` makes.
    fn copy(&self, patterns: &[&str], to: &str) -> Result<Lines, String> {
        self.layer(to, |files, layering, target| {
            for pattern in patterns {
                for picked in files.pick(pattern)? {
                    layering.put(files, &picked, &self.exclude, target)?;
                }
            }
            Ok(())
        })
    }

    fn parents(&self, base: &str, pattern: &str, to: &str) -> Result<Lines, String> {
        self.layer(to, |files, layering, target| {
            for picked in files.pick_below(base, pattern)? {
                layering.put(files, &picked, &self.exclude, target)?;
            }
            Ok(())
        })
    }

    fn layer(
        &self,
        to: &str,
        work: impl FnOnce(
            &Files<'_>,
            &mut Layering<'_, &mut File>,
            &Target,
        ) -> Result<(), TransferError>,
    ) -> Result<Lines, String> {
        let mut file = tempfile::tempfile().unwrap();
        let tree = self.tree();
        let mut layering =
            Layering::new(&mut file, &tree, None).dressed(self.owner, self.mode.clone(), self.link);
        let written = self.with_files(|files| {
            let target = layering.target(to, to.ends_with('/'))?;
            work(files, &mut layering, &target)?;
            layering.finish()
        });
        written.map_err(|error| error.to_string())?;
        Ok(lines(file))
    }
}

fn lines(mut file: File) -> Lines {
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut parcel = Parcel::open(file, Limits::default()).unwrap();
    let mut lines = Vec::new();
    while let Some(piece) = parcel.piece().unwrap() {
        let (mode, owner) = (piece.mode, (piece.user, piece.group));
        let path = piece.path.display().to_string();
        let line = match piece.what {
            Contained::Directory => format!("{path}/ {mode:o}"),
            Contained::File { .. } => {
                format!("{path} {mode:o} {:?}", std::io::read_to_string(parcel.content()).unwrap())
            }
            Contained::Symlink(to) => format!("{path} -> {}", String::from_utf8(to).unwrap()),
            Contained::Link(to) => format!("{path} = {}", to.display()),
            Contained::Fifo | Contained::Device => format!("{path} {mode:o}"),
        };
        lines.push(if owner == (0, 0) { line } else { format!("{line} {}:{}", owner.0, owner.1) });
    }
    lines
}

#[test]
fn a_file_goes_into_a_directory_or_to_its_place() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/a", "1").file("lower/etc/old", "");
    for (to, made) in [
        ("/b", &["b 644 \"1\""][..]),
        ("/new/", &["new/ 755", "new/a 644 \"1\""]),
        ("/x/y/b", &["x/ 755", "x/y/ 755", "x/y/b 644 \"1\""]),
        // It keeps its rights.
        ("/tmp", &["tmp/ 1777", "tmp/a 644 \"1\""]),
        // What a link leads to.
        ("/bin/b", &["usr/ 755", "usr/bin/ 755", "usr/bin/b 644 \"1\""]),
        ("/bin", &["usr/ 755", "usr/bin/ 755", "usr/bin/a 644 \"1\""]),
        ("/etc/old", &["etc/ 755", "etc/old 644 \"1\""]),
        ("/srv/", &["srv/ 755", "srv/a 644 \"1\""]),
    ] {
        assert_eq!(trial.copy(&["a"], to).unwrap(), made, "{to}");
    }
    let message = trial.copy(&["a"], "/etc/old/").unwrap_err();
    assert!(message.contains("is a file in the image"), "{message}");
    assert!(trial.copy(&["a"], "/etc/old/x").unwrap_err().contains("in the way"));
}

#[test]
fn of_a_directory_its_content_is_copied() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/d/a", "1").file("context/d/e/b", "2").symlink("context/d/l", "/etc/passwd");
    fs::set_mode(trial.root.path().join("context/d/e"), 0o700).unwrap();
    let content = |at: &str| {
        ["a 644 \"1\"", "e/ 700", "e/b 644 \"2\"", "l -> /etc/passwd"]
            .map(|line| format!("{at}{line}"))
            .to_vec()
    };
    assert_eq!(trial.copy(&["d"], "/").unwrap(), content(""));
    assert_eq!(
        trial.copy(&["d/"], "/n").unwrap(),
        [vec!["n/ 755".to_owned()], content("n/")].concat()
    );
    let all = trial.copy(&[""], "/n/").unwrap();
    assert_eq!(all[..2], ["n/ 755", "n/d/ 755"]);
    trial.file("lower/etc/old", "").file("upper/n/e", "a file");
    assert!(trial.copy(&["d"], "/etc/old").unwrap_err().contains("cannot take the place"));
    assert!(trial.copy(&["d"], "/n").unwrap_err().contains("a directory cannot take its place"));
    trial.file("upper/m/a/x", "");
    assert!(trial.copy(&["d"], "/m").unwrap_err().contains("a file cannot take its place"));
}

#[test]
fn patterns_mean_what_is_there() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/a.txt", "").file("context/b.txt", "").file("context/c.md", "");
    trial.file("context/x/1/f", "").file("context/x/2/f", "").file("context/[z]", "");
    let names = |patterns: &[&str]| -> Vec<String> {
        let lines = trial.copy(patterns, "/t/").unwrap();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix("t/")?.split(' ').next().map(str::to_owned))
            .filter(|n| !n.is_empty())
            .collect()
    };
    assert_eq!(names(&["*.txt"]), ["a.txt", "b.txt"]);
    assert_eq!(names(&["[ab]*", "?.md"]), ["a.txt", "b.txt", "c.md"]);
    assert_eq!(names(&["x/*/f"]), ["f", "f"]);
    assert_eq!(names(&["x/*"]), ["f", "f"]);
    assert_eq!(names(&["[[]z]"]), ["[z]"]);
    assert!(names(&["nothing*"]).is_empty());
    let message = trial.copy(&["a.tx"], "/t/").unwrap_err();
    assert_eq!(message, "a.tx is not in the context: did you mean a.txt?");
    assert!(trial.copy(&["[", "a.txt"], "/t/").unwrap_err().contains("not closed"));
}

#[test]
fn no_link_leads_out_of_the_context() {
    let Some(trial) = Trial::new() else { return };
    trial.file("secret", "s").file("context/d/in", "i");
    trial
        .symlink("context/out", "../secret")
        .symlink("context/far", "/etc")
        .symlink("context/up", "../../..");
    trial.symlink("context/inner", "d").symlink("context/round", "round");
    for path in ["out", "far/passwd", "far", "../secret", "d/../../secret", "round"] {
        let copied = trial.copy(&[path], "/t/");
        assert!(copied.as_ref().is_err(), "{path}: {copied:?}");
    }
    // The root is above itself.
    assert_eq!(trial.copy(&["up/d/in"], "/t/").unwrap(), ["t/ 755", "t/in 644 \"i\""]);
    assert_eq!(trial.copy(&["inner"], "/t/").unwrap(), ["t/ 755", "t/in 644 \"i\""]);
    assert_eq!(trial.copy(&["inn*/in"], "/t/").unwrap(), ["t/ 755", "t/in 644 \"i\""]);
    let all = trial.copy(&["."], "/t/").unwrap();
    assert!(
        all.contains(&"t/far -> /etc".to_owned()) && !all.iter().any(|line| line.contains("\"s\"")),
        "{all:?}"
    );
}

#[test]
fn what_is_ignored_is_not_there() {
    let Some(trial) = Trial::new() else { return };
    let trial = trial.ignore("*.log\nd\n!d/keep/k\nlinked\n");
    trial
        .file("context/a.log", "")
        .file("context/a", "")
        .file("context/d/x", "")
        .file("context/d/keep/k", "k");
    trial
        .file("context/d/keep/other", "")
        .file("context/linked", "")
        .symlink("context/to", "linked");
    let all = trial.copy(&[""], "/").unwrap();
    assert_eq!(all, ["a 644 \"\"", "d/ 755", "d/keep/ 755", "d/keep/k 644 \"k\"", "to -> linked"]);
    assert_eq!(
        trial.copy(&["a.log"], "/").unwrap_err(),
        "a.log is not in the context: .dockerignore leaves it out"
    );
    assert!(trial.copy(&["to"], "/").is_err() && trial.copy(&["d/x"], "/").is_err());
    assert_eq!(trial.copy(&["*"], "/t/").unwrap().len(), 4);
}

#[test]
fn exclusions_are_about_what_is_copied() {
    let Some(trial) = Trial::new() else { return };
    let trial = trial.exclude(&["*.o", "sub/**", "!sub/keep"]);
    trial
        .file("context/d/a.o", "")
        .file("context/d/a.c", "")
        .file("context/d/sub/x", "")
        .file("context/d/sub/keep", "");
    assert_eq!(trial.copy(&["d"], "/").unwrap(), ["a.c 644 \"\"", "sub/ 755", "sub/keep 644 \"\""]);
    assert_eq!(trial.copy(&["d/a.o", "d/a.c"], "/t/").unwrap(), ["t/ 755", "t/a.c 644 \"\""]);
}

#[test]
fn parents_are_kept_on_request() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/a/b/c.x", "1").file("context/a/d.x", "2").file("context/a/b/e", "3");
    fs::set_mode(trial.root.path().join("context/a"), 0o750).unwrap();
    assert_eq!(
        trial.parents("", "a/b/c.x", "/t/").unwrap(),
        ["t/ 755", "t/a/ 750", "t/a/b/ 755", "t/a/b/c.x 644 \"1\""]
    );
    assert_eq!(
        trial.parents("a", "b", "/").unwrap(),
        ["b/ 755", "b/c.x 644 \"1\"", "b/e 644 \"3\""]
    );
    let deep = trial.parents("", "**/*.x", "/").unwrap();
    assert_eq!(deep, ["a/ 750", "a/b/ 755", "a/b/c.x 644 \"1\"", "a/d.x 644 \"2\""]);
    assert!(trial.parents("", "a/q", "/").is_err() && trial.parents("q", "a", "/").is_err());
    assert!(trial.parents("", "q*", "/").unwrap().is_empty());
}

#[test]
fn owners_and_rights_are_given() {
    let Some(mut trial) = Trial::new() else { return };
    trial.file("context/d/a", "1").file("upper/o", "2");
    fs::chown(trial.root.path().join("context/d/a"), 77, 78).unwrap();
    fs::chown(trial.root.path().join("upper/o"), 79, 80).unwrap();
    // Whoever had it on his machine is nobody here.
    assert_eq!(trial.copy(&["d"], "/").unwrap(), ["a 644 \"1\""]);
    trial.mode = Some(Chmod::parse("u=rwX,go=").unwrap());
    trial.owner = Some((5, 6));
    assert_eq!(
        trial.copy(&[""], "/tmp/n/").unwrap(),
        ["tmp/ 1777", "tmp/n/ 755 5:6", "tmp/n/d/ 700 5:6", "tmp/n/d/a 600 \"1\" 5:6"]
    );
    (trial.mode, trial.owner, trial.from_image) = (None, None, true);
    assert_eq!(trial.copy(&["o"], "/q").unwrap(), ["q 644 \"2\" 79:80"]);
}

#[test]
fn one_file_with_two_names_stays_one() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/d/a", "1");
    let at = |name: &str| trial.root.path().join("context/d").join(name);
    rustix::fs::link(at("a"), at("b")).unwrap();
    assert_eq!(trial.copy(&["d"], "/").unwrap(), ["a 644 \"1\"", "b = a"]);
}

#[test]
fn with_link_nothing_of_the_image_is_followed() {
    let Some(mut trial) = Trial::new() else { return };
    trial.file("context/a", "1");
    trial.link = true;
    assert_eq!(trial.copy(&["a"], "/bin/").unwrap(), ["bin/ 755", "bin/a 644 \"1\""]);
    assert_eq!(trial.copy(&["a"], "/tmp/a").unwrap(), ["tmp/ 1777", "tmp/a 644 \"1\""]);
    assert_eq!(trial.copy(&["a"], "/srv").unwrap(), ["srv 644 \"1\""]);
}

#[test]
fn names_that_mean_that_something_is_gone_are_refused() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/d/.wh.etc", "");
    assert!(trial.copy(&["d"], "/").unwrap_err().contains("means in images"));
    assert!(trial.copy(&["d/.wh.etc"], "/").unwrap_err().contains("means in images"));
    let archive = packed(|tarball| tarball.hide_below(Path::new("x"), 0).unwrap());
    let unpacked =
        trial.layer("/t/", |_, layering, target| layering.unpack("a.tar", archive, target));
    assert!(unpacked.unwrap_err().contains("means in images"));
}

#[test]
fn devices_and_sockets_are_refused() {
    let Some(trial) = Trial::new() else { return };
    let socket = trial.root.path().join("context/s");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(trial.copy(&[""], "/").unwrap_err().contains("a device or a socket"));
    assert!(trial.exclude(&["s"]).copy(&[""], "/").unwrap().is_empty());
}

#[test]
fn keys_are_about_content_and_not_about_time() {
    let Some(trial) = Trial::new() else { return };
    trial.file("context/d/a", "1").file("context/d/b", "2").symlink("context/d/l", "a");
    let before = trial.key("d");
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let at = trial.root.path().join("context/d/a");
    rustix::fs::utimensat(rustix::fs::CWD, &at, &times, rustix::fs::AtFlags::empty()).unwrap();
    fs::chown(&at, 9, 9).unwrap();
    assert_eq!(trial.key("d"), before);
    let mut seen = vec![before];
    let mut differs = |trial: &Trial| {
        let key = trial.key("d");
        assert!(!seen.contains(&key));
        seen.push(key);
    };
    trial.file("context/d/a", "3");
    differs(&trial);
    fs::set_mode(&at, 0o600).unwrap();
    differs(&trial);
    fs::rename(&at, trial.root.path().join("context/d/c")).unwrap();
    differs(&trial);
    fs::remove_file(trial.root.path().join("context/d/l")).unwrap();
    trial.symlink("context/d/l", "b");
    differs(&trial);
    differs(&trial.exclude(&["b"]));
}

#[test]
fn archives_are_unpacked() {
    let Some(mut trial) = Trial::new() else { return };
    let make = || {
        packed(|tarball| {
            let none = BTreeMap::new();
            let mut add = |path: &str, what, mode, user, content: &[u8]| {
                let path = Path::new(path);
                let entry = osb_image::Entry {
                    path,
                    what,
                    mode,
                    user,
                    group: 0,
                    modified: 0,
                    extended: &none,
                };
                tarball.add(&entry, content).unwrap();
            };
            add("d", osb_image::What::Directory, 0o700, 3, b"");
            add("d/f", osb_image::What::File { size: 2 }, 0o644, 3, b"hi");
            add("e/g", osb_image::What::Link(Path::new("d/f")), 0o644, 0, b"");
            add("l", osb_image::What::Symlink(b"../../etc"), 0o777, 0, b"");
        })
    };
    assert_eq!(Parcel::detect(&mut make()).unwrap(), Packing::Archive);
    let unpack = |trial: &Trial, to: &str| {
        trial.layer(to, |_, layering, target| layering.unpack("a.tar", make(), target))
    };
    assert_eq!(
        unpack(&trial, "/tmp/n/").unwrap(),
        [
            "tmp/ 1777",
            "tmp/n/ 755",
            "tmp/n/d/ 700 3:0",
            "tmp/n/d/f 644 \"hi\" 3:0",
            "tmp/n/e/ 755",
            "tmp/n/e/g = tmp/n/d/f",
            "tmp/n/l -> ../../etc"
        ]
    );
    trial.owner = Some((8, 8));
    assert!(unpack(&trial, "/").unwrap().contains(&"d/f 644 \"hi\" 8:8".to_owned()));
    trial.file("upper/d", "a file");
    assert!(unpack(&trial, "/").unwrap_err().contains("cannot take its place"));
}

fn packed(work: impl FnOnce(&mut osb_image::Tarball<&mut File>)) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut tarball = osb_image::Tarball::new(&mut file);
    work(&mut tarball);
    tarball.finish().unwrap().flush().unwrap();
    file
}

#[test]
fn nothing_is_found_hashed_or_copied_for_one_who_has_left() {
    let Some(mut trial) = Trial::new() else { return };
    trial.file("context/d/a", "1").file("context/b", "2");
    let (file, directory) =
        trial.with_files(|files| (files.pick("b").unwrap(), files.pick("d").unwrap()));
    trial.asker = Asker::left();
    trial.with_files(|files| {
        assert!(files.pick("*").is_err());
        assert!(files.pick_below("", "**/a").is_err());
        assert!(digest(files, &file, &trial.exclude).is_err());
        assert!(digest(files, &directory, &trial.exclude).is_err());
    });
    assert!(trial.copy(&["d"], "/x/").is_err());
}
