//! A store, a context and a workshop, for one test.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use osb_build::{
    Bench, Build, BuildError, Built, Cache, Caching, Context, Dockerfile, Event, Plan, Secret,
    Wanted,
};
use osb_core::testkit::{TestClock, required};
use osb_image::{Configuration, Follow, Images, Kind, Settings, Stack};
use osb_registry::{Digest, Document, Reference};
use osb_sys::{fs, rootless::Rights, userns::IdBase};
use tempfile::TempDir;

use crate::{chroot::Chroot, small};

pub(crate) struct Shop {
    pub(crate) root: TempDir,
    pub(crate) images: Images,
    pub(crate) cache: Cache,
    pub(crate) wanted: Wanted,
    pub(crate) secrets: BTreeMap<String, Secret>,
    pub(crate) caching: Caching,
    pub(crate) clock: TestClock,
    runner: Chroot,
}

/// What became of a build, and what was told meanwhile.
pub(crate) struct Outcome {
    pub(crate) built: Result<Built, BuildError>,
    pub(crate) events: Vec<Event>,
}

impl Shop {
    pub(crate) fn new() -> Option<Self> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["context", "steps", "steps/served", "scratch"] {
            fs::create_dir(root.path().join(name), 0o755).unwrap();
        }
        let images =
            Images::open(root.path().join("images"), IdBase(0), Settings::default()).unwrap();
        small::put(&images.intake(), "small", &[]);
        let cache = Cache::open(root.path().join("cache")).unwrap();
        let runner = Chroot { images: images.clone(), root: root.path().join("steps") };
        Some(Self {
            root,
            images,
            cache,
            wanted: Wanted::new(),
            secrets: BTreeMap::new(),
            caching: Caching::Use,
            clock: TestClock::default(),
            runner,
        })
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// A file of the context.
    pub(crate) fn file(&self, path: &str, content: &str) -> &Self {
        let path = self.path("context").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_mode(&path, 0o644).unwrap();
        self
    }

    pub(crate) fn arg(&mut self, name: &str, value: &str) -> &mut Self {
        self.wanted.args.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) async fn build(&self, dockerfile: &str) -> Outcome {
        let events = Mutex::new(Vec::new());
        let built = self.try_build(dockerfile, &events).await;
        Outcome { built, events: events.into_inner().unwrap() }
    }

    async fn try_build(
        &self,
        dockerfile: &str,
        events: &Mutex<Vec<Event>>,
    ) -> Result<Built, BuildError> {
        let context = Context::open(&self.path("context"), "Dockerfile").unwrap();
        let file = Dockerfile::parse("Dockerfile", dockerfile.as_bytes())?;
        let plan = Plan::new(file, self.wanted.clone())?;
        let scratch = self.path("scratch");
        let bench =
            Bench::new(&self.images, &self.runner, self.cache.clone(), Rights::Root, scratch);
        let name = Reference::parse("built").unwrap();
        let progress = |event| events.lock().unwrap().push(event);
        let build = Build {
            plan: &plan,
            context: &context,
            workshop: &bench,
            progress: &progress,
            clock: &self.clock,
            secrets: &self.secrets,
            names: &[name],
            caching: self.caching,
            side_by_side: 4,
        };
        build.run().await
    }

    /// The files of an image, without those of `small`.
    pub(crate) fn files(&self, digest: &Digest) -> Vec<String> {
        let all = |digest: &Digest| {
            let image = self.images.by_digest(digest).unwrap();
            let stack = Stack::open(&image.rootfs.layers, IdBase(0), Rights::Root).unwrap();
            let mut lines = Vec::new();
            list(&stack.root().unwrap(), Path::new(""), &mut lines);
            lines
        };
        let small = self.images.find(&osb_core::ImageName::new("small")).unwrap().digest.unwrap();
        let old = all(&small);
        let new = all(digest);
        let gone = old.iter().filter(|line| {
            let path = line.split(' ').next();
            !new.iter().any(|line| line.split(' ').next() == path)
        });
        let gone: Vec<String> = gone.map(|line| format!("gone {line}")).collect();
        new.into_iter().filter(|line| !old.contains(line)).chain(gone).collect()
    }

    pub(crate) fn content(&self, digest: &Digest, path: &str) -> Option<String> {
        let image = self.images.by_digest(digest).unwrap();
        let stack = Stack::open(&image.rootfs.layers, IdBase(0), Rights::Root).unwrap();
        let found = stack.find(Path::new(path), Follow::Last).unwrap();
        found.seen?;
        let mut text = String::new();
        let mut file = found.directory()?.open(found.path.file_name()?).unwrap();
        file.read_to_string(&mut text).unwrap();
        Some(text)
    }

    pub(crate) fn configuration(&self, digest: &Digest) -> Configuration {
        let intake = self.images.intake();
        let Document::Manifest(manifest) =
            Document::parse(&intake.document(digest).unwrap(), None).unwrap()
        else {
            panic!("a list")
        };
        serde_json::from_slice(&intake.document(&manifest.config.digest).unwrap()).unwrap()
    }
}

impl Outcome {
    pub(crate) fn digest(&self) -> Digest {
        match &self.built {
            Ok(built) => built.digest.clone(),
            Err(error) => panic!("{} {:?}", osb_core::Chain(error), self.events),
        }
    }

    pub(crate) fn error(&self) -> String {
        match &self.built {
            Ok(_) => panic!("it was built: {:?}", self.events),
            Err(error) => error.to_string(),
        }
    }

    /// Each step with what became of it, in the order in which they began.
    pub(crate) fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        for event in &self.events {
            let Event::Began { step, title } = event else { continue };
            let how = self.events.iter().find_map(|event| match event {
                Event::Cached { step: other } if other == step => Some("CACHED"),
                Event::Done { step: other, .. } if other == step => Some("DONE"),
                Event::Failed { step: other, .. } if other == step => Some("FAILED"),
                Event::Warned(_)
                | Event::Began { .. }
                | Event::Cached { .. }
                | Event::Said { .. }
                | Event::Done { .. }
                | Event::Failed { .. } => None,
            });
            steps.push(format!("{title} {}", how.unwrap_or("…")));
        }
        steps
    }

    /// All lines that steps said.
    pub(crate) fn said(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| {
                if let Event::Said { line, .. } = event { Some(line.as_str()) } else { None }
            })
            .collect()
    }
}

fn list(directory: &osb_image::Directory, path: &Path, lines: &mut Vec<String>) {
    for (name, seen) in directory.names().unwrap() {
        let at = path.join(&name);
        let owner = if (seen.user, seen.group) == (0, 0) {
            String::new()
        } else {
            format!(" {}:{}", seen.user, seen.group)
        };
        let (at_text, mode) = (at.display(), seen.mode);
        match seen.kind {
            Kind::Directory => {
                lines.push(format!("{at_text}/ {mode:o}{owner}"));
                list(&directory.enter(&name).unwrap(), &at, lines);
            }
            Kind::Symlink => {
                let to = String::from_utf8(directory.read_link(&name).unwrap()).unwrap();
                lines.push(format!("{at_text} -> {to}"));
            }
            Kind::File | Kind::Fifo | Kind::Socket | Kind::Device | Kind::Whiteout => {
                lines.push(format!("{at_text} {mode:o}{owner} {}", seen.size));
            }
        }
    }
}
