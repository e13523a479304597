//! `RUN`

use std::{
    collections::VecDeque,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use osb_image::{Follow, Kind, Stack};

use super::{
    Trouble,
    copy::{Origin, accounts, blocking, watched},
    stage::{Going, Outcome},
};
use crate::{
    CacheKey, CacheMount, Event, Ignore, Output, Progress, Ran, Reach, RunStep, SecretFile,
    Sharing, StepId, Stream, TmpfsMount,
    asker::Asker,
    error::{How, LAST_LINES},
    key::Key,
    problem::Fault,
    scope::{Mounted, Order, Script},
    transfer::{self, Layering, TransferError},
};

/// The longest line of output that is kept for an error.
const LONGEST_LINE: usize = 2000;

/// What the runtime puts into every sandbox, relative to its root.
const RUNTIMES: [&str; 6] = [
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
    "opt/opensandbox/.env",
    "opt/opensandbox/merged-ca-certificates.pem",
    "opt/opensandbox/mitmproxy-ca-cert.pem",
];

/// A command with all that it depends on.
pub(super) struct Prepared {
    pub(super) key: CacheKey,
    binds: Vec<Bind>,
}

/// Files that are shown to a step.
struct Bind {
    files: Origin,
    source: String,
    target: String,
}

impl Going<'_> {
    pub(super) async fn prepare_run(&self, order: &Order) -> Result<Prepared, Trouble> {
        let host = &self.builder.build.plan.wanted.host;
        let own = &self.planned.platform;
        if (&own.os, &own.architecture) != (&host.os, &host.architecture) {
            return Err(Fault::new(format!(
                "a command for {own} cannot run here, which is {host}: only COPY and the like are \
                 possible in a stage of another platform"
            ))
            .into());
        }
        if self.tree.layers.is_empty() {
            return Err(Fault::new(
                "there is no program in an empty image: build on an image that has a shell, or COPY a \
                 program and use the JSON form",
            )
            .into());
        }
        let mut binds = Vec::new();
        let mut key = order_key(order, &self.key);
        for mount in &order.mounts {
            let Mounted::Bind { from, source, target } = mount else { continue };
            let (files, whole) = self.origin(from).await?;
            key = key.with("bind").with(source).with(target);
            let digest = if let Some(whole) = whole {
                whole
            } else {
                let (files, source) = (files.clone(), source.clone());
                let digest = blocking(move |asker| {
                    let files = files.files(asker);
                    let picked = files.pick(source.trim_start_matches('/'))?;
                    transfer::digest(&files, &picked, &Ignore::default())
                });
                digest.await?
            };
            key = key.with(digest.as_digest().as_str());
            binds.push(Bind { files, source: source.clone(), target: target.clone() });
        }
        Ok(Prepared { key: key.finish(), binds })
    }

    pub(super) async fn run(
        &mut self,
        order: &Order,
        prepared: Prepared,
        title: &str,
        id: StepId,
    ) -> Result<Outcome, Trouble> {
        let workshop = self.builder.build.workshop;
        let newest = self.builder.build.plan.wanted.epoch;
        let mut step = self.step(order, title)?;
        // An image may say that programs begin where nothing is.
        self.tree = self.make_directory(&order.workdir).await?;
        let tree = workshop.open(&self.tree).await?;
        let to = workshop.scratch()?;
        let (user, script) = (order.user.clone(), order.script.clone());
        let targets: Vec<String> =
            order.mounts.iter().filter_map(|mount| mount.target().map(str::to_owned)).collect();
        let staged = blocking(move |asker| {
            let account = accounts(&tree)?.account(user.as_deref().unwrap_or("0"))?;
            let mut without = runtimes(&tree);
            for target in &targets {
                without.push(place(&tree, target)?);
            }
            // Whoever mounts them follows no links.
            let caches = step.caches.iter_mut().map(|cache| &mut cache.target);
            let tmpfs = step.tmpfs.iter_mut().map(|tmpfs| &mut tmpfs.target);
            let secrets = step.secrets.iter_mut().map(|secret| &mut secret.target);
            for target in caches.chain(tmpfs).chain(secrets) {
                *target = format!("/{}", place(&tree, target)?.display());
            }
            without.push(PathBuf::from(Script::DIRECTORY.trim_start_matches('/')));
            let mut layering = Layering::new(watched(asker, &to), &tree, newest);
            for bind in &prepared.binds {
                show(&mut layering, bind, asker)?;
            }
            if let Some(Script { path, content }) = &script {
                let target = layering.target(path, false)?;
                layering.put_file("", content.as_bytes(), content.len() as u64, 0o755, &target)?;
            }
            let written = layering.finish()?;
            Ok((step, account, without, written, to))
        });
        let (mut step, account, without, written, extra) = staged.await?;
        let is_home = |(name, _): &(String, String)| name == "HOME";
        if !step.environment.iter().any(is_home) {
            let home = account.home.clone().unwrap_or_else(|| "/".to_owned());
            step.environment.push(("HOME".to_owned(), home));
        }
        (step.account, step.without) = (account, without);
        let on = match written.entries {
            0 => self.tree.clone(),
            _ => workshop.lay(&self.tree, extra).await?,
        };
        let listener = Listener::new(self.builder.build.progress, id);
        match workshop.run(&on, &step, &listener).await? {
            Ran::Changed { entries: 0, .. } => Ok(Outcome::Tree(self.tree.clone())),
            Ran::Changed { layer, .. } => Ok(Outcome::Tree(workshop.lay(&self.tree, layer).await?)),
            Ran::Failed { code, notes } => {
                Ok(Outcome::Failed { how: How::Code(code), last_lines: listener.last(), notes })
            }
            Ran::Killed(how) => {
                let (how, last_lines) = (How::Killed(how), listener.last());
                Ok(Outcome::Failed { how, last_lines, notes: Vec::new() })
            }
        }
    }

    /// The command without what only the image knows.
    fn step(&self, order: &Order, title: &str) -> Result<RunStep, Trouble> {
        let mut step = RunStep {
            title: title.to_owned(),
            arguments: order.arguments.clone(),
            environment: [order.environment.clone(), order.beside.clone()].concat(),
            secret_environment: Vec::new(),
            workdir: order.workdir.clone(),
            account: crate::Account {
                name: None,
                user: 0,
                group: 0,
                groups: Vec::new(),
                home: None,
            },
            network: order.network,
            caches: Vec::new(),
            tmpfs: Vec::new(),
            secrets: Vec::new(),
            without: Vec::new(),
            newest: self.builder.build.plan.wanted.epoch,
        };
        for mount in order.mounts.clone() {
            match mount {
                Mounted::Bind { .. } => {}
                Mounted::Cache { id, target, read_only, sharing, mode, user, group } => {
                    step.caches.push(CacheMount {
                        id,
                        target,
                        read_only,
                        sharing,
                        mode,
                        user,
                        group,
                    });
                }
                Mounted::Tmpfs { target, size } => step.tmpfs.push(TmpfsMount { target, size }),
                Mounted::Secret { id, target, variable, required, mode, user, group } => {
                    let Some(content) = self.builder.build.secrets.get(&id).cloned() else {
                        if required {
                            return Err(Fault::new(format!(
                                "the secret {id} is needed, and was not given to the build"
                            ))
                            .into());
                        }
                        continue;
                    };
                    if let Some(variable) = variable {
                        step.secret_environment.push((variable, content.clone()));
                    }
                    if let Some(target) = target {
                        step.secrets.push(SecretFile { target, content, mode, user, group });
                    }
                }
            }
        }
        Ok(step)
    }
}

/// Where the files of the runtime are: by their names, and where the links of an image lead to.
fn runtimes(tree: &Stack) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for file in RUNTIMES.map(Path::new) {
        places.push(file.to_owned());
        let around = file.parent().and_then(|around| tree.find(around, Follow::Last).ok());
        // If a file is in the way, nothing is put there.
        places.extend(around.zip(file.file_name()).map(|(found, name)| found.path.join(name)));
    }
    places
}

/// Where a path leads in an image, relative to its root.
fn place(tree: &Stack, target: &str) -> Result<PathBuf, TransferError> {
    let path = Path::new(target.trim_start_matches('/'));
    let found = tree.find(path, Follow::Last);
    Ok(found.map_err(|source| TransferError::Read { path: path.to_owned(), source })?.path)
}

/// Puts files where a step looks for them, hiding what the image has there.
fn show(
    layering: &mut Layering<'_, impl Write>,
    bind: &Bind,
    asker: &Asker,
) -> Result<(), TransferError> {
    let files = bind.files.files(asker);
    for picked in files.pick(bind.source.trim_start_matches('/'))? {
        let is_directory = picked.seen.kind == Kind::Directory;
        let target = layering.target(&bind.target, is_directory)?;
        if is_directory {
            let target = layering.put_hiding_directory(target.path())?;
            layering.put(&files, &picked, &Ignore::default(), &target)?;
        } else {
            layering.put(&files, &picked, &Ignore::default(), &target)?;
        }
    }
    Ok(())
}

/// All that a command depends on, but the files that it is shown.
fn order_key(order: &Order, parent: &CacheKey) -> Key {
    let variable = |(name, value): &(String, String)| format!("{name}={value}");
    let environment: Vec<String> = order.environment.iter().map(variable).collect();
    let mut key = Key::new("run")
        .with(parent.as_digest().as_str())
        .with_all(order.arguments.iter())
        .with_some(order.script.as_ref().map(|script| &script.content))
        .with_all(environment.iter())
        .with(&order.workdir)
        .with_some(order.user.as_ref())
        .with(match order.network {
            Reach::Policy => "policy",
            Reach::Nothing => "nothing",
        });
    for mount in &order.mounts {
        key = match mount {
            // With what is in it.
            Mounted::Bind { .. } => key,
            Mounted::Cache { id, target, read_only, sharing, mode, user, group } => key
                .with("cache")
                .with(id)
                .with(target)
                .with_number(u64::from(*read_only))
                .with(match sharing {
                    Sharing::Shared => "shared",
                    Sharing::Locked => "locked",
                    Sharing::Private => "private",
                })
                .with_number(u64::from(*mode))
                .with_number(u64::from(*user))
                .with_number(u64::from(*group)),
            Mounted::Tmpfs { target, size } => {
                key.with("tmpfs").with(target).with_number(size.unwrap_or_default())
            }
            // What it says is nobody's business, not even that of a key.
            Mounted::Secret { id, target, variable, required, mode, user, group } => key
                .with("secret")
                .with(id)
                .with_some(target.as_ref())
                .with_some(variable.as_ref())
                .with_number(u64::from(*required))
                .with_number(u64::from(*mode))
                .with_number(u64::from(*user))
                .with_number(u64::from(*group)),
        };
    }
    key
}

/// Passes on what a step says, and keeps the last of it.
struct Listener<'a> {
    progress: &'a dyn Progress,
    step: StepId,
    last: Mutex<VecDeque<String>>,
}

impl<'a> Listener<'a> {
    fn new(progress: &'a dyn Progress, step: StepId) -> Self {
        Self { progress, step, last: Mutex::default() }
    }

    fn last(&self) -> Vec<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Output for Listener<'_> {
    fn line(&self, stream: Stream, line: &str) {
        let kept = line.chars().take(LONGEST_LINE).collect();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= LAST_LINES {
            last.pop_front();
        }
        last.push_back(kept);
        drop(last);
        self.progress.tell(Event::Said { step: self.step, stream, line: line.to_owned() });
    }
}
