mod tree;

use std::{
    future::pending,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{body::Bytes, response::Response};
use http::Uri;
use osb_api::execd::{Change, ChangeKind};
use osb_sys::{fs::PathError, ready};
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use self::tree::{Spread, Tree};
use super::scope::Scope;
use crate::{
    error::ApiError,
    events::{self, now},
    reply,
    request::Parameters,
};

/// How much of what the kernel tells is taken at once.
const BUFFER: usize = 16 << 10;

/// How long the second half of a move may take to arrive. The kernel tells both halves one right
/// after the other; only its queue may be read between them.
const HALF_MOVE: Duration = Duration::from_millis(20);

/// How many changes are held before they are sent.
const HELD: usize = 1024;

/// `GET /files/watch`: what changes at a path and, if it is a directory, in it.
pub(super) async fn watch(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let path = parameters.one("path").ok_or_else(|| ApiError::missing_query("path"))?;
    let path = scope.path(path)?;
    let spread = match parameters.one("recursive") {
        None | Some("false" | "0") => Spread::One,
        Some("true" | "1") => Spread::All,
        Some(_) => return Err(ApiError::invalid("`recursive` must be `true` or `false`")),
    };
    let daemon = Arc::clone(scope.daemon());
    let permit = Arc::clone(&daemon.watches)
        .try_acquire_owned()
        .map_err(|_| ApiError::refused("too many watch files already"))?;
    let failed = |error: Errno| ApiError::runtime(&std::io::Error::from(error));
    let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
    let queue = ready::register(queue, Interest::READABLE);
    let queue = Arc::new(queue.map_err(|error| ApiError::runtime(&error))?);

    let (mut tree, mut first) = (Tree::new(Arc::clone(&queue), path, spread), Vec::new());
    let begun = scope.run(move || {
        tree.begin(&mut first)
            .map_err(|error| PathError::new("watch", tree.root(), error.into()))?;
        Ok((tree, first))
    });
    let (tree, mut first) = begun.await?;
    first.insert(0, Change::bare(ChangeKind::Ready, now()));
    let (client, body) = events::channel();
    let mut watch = Watch { scope, queue, tree: Some(tree), halves: Vec::new(), client };
    daemon.tasks.spawn(async move {
        let ending = watch.scope.daemon().ending.clone();
        ending.run_until_cancelled(watch.tell(first)).await;
        drop(permit);
    });
    Ok(reply::events(body))
}

/// A client that hears of changes.
struct Watch {
    scope: Scope,
    queue: Arc<AsyncFd<OwnedFd>>,
    /// Absent only while it looks at new directories.
    tree: Option<Tree>,
    /// What was moved away, and perhaps not out of the tree.
    halves: Vec<Half>,
    client: mpsc::Sender<Bytes>,
}

struct Half {
    cookie: u32,
    path: PathBuf,
    place: (i32, Vec<u8>),
    directory: bool,
    until: Instant,
}

/// One message of the kernel.
struct Told {
    watch: i32,
    what: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

impl Watch {
    /// Tells everything until nobody listens, or what is watched is gone.
    async fn tell(&mut self, first: Vec<Change>) {
        let mut pings = events::pings(Instant::now());
        if !self.send(&first).await {
            return;
        }
        loop {
            let half = self.halves.iter().map(|half| half.until).min();
            let second_half = async {
                match half {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            let mut changes = Vec::new();
            let goes_on = tokio::select! {
                () = self.client.closed() => return,
                _ = pings.tick() => {
                    changes.push(Change::bare(ChangeKind::Ping, now()));
                    true
                }
                () = second_half => {
                    let now = Instant::now();
                    self.gone(|half| half.until <= now, &mut changes);
                    true
                }
                told = read(&self.queue) => match told {
                    Ok(told) => self.translate(told, &mut changes).await,
                    Err(_) => return,
                },
            };
            if !self.send(&changes).await || !goes_on {
                return;
            }
        }
    }

    async fn send(&self, changes: &[Change]) -> bool {
        let mut frames = Vec::new();
        for change in changes {
            change.frame(&mut frames);
        }
        frames.is_empty() || self.client.send(Bytes::from(frames)).await.is_ok()
    }

    /// Says what happened, and whether there is still something to watch.
    async fn translate(&mut self, told: Vec<Told>, changes: &mut Vec<Change>) -> bool {
        for told in told {
            // Each new directory may have as many again in it.
            if changes.len() >= HELD && !self.send(&std::mem::take(changes)).await {
                return false;
            }
            let Some(tree) = &mut self.tree else { return false };
            if told.what.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change::bare(ChangeKind::Overflow, now()));
                if !self.join(None, Announce::Nothing, changes).await {
                    return false;
                }
                continue;
            }
            if told.what.contains(ReadFlags::IGNORED) {
                if tree.forget(told.watch) {
                    return false;
                }
                continue;
            }
            let Some(path) = tree.path(told.watch, &told.name) else { continue };
            if told.name.is_empty() && !tree.is_root(told.watch) {
                // The directory around it tells the same.
                continue;
            }
            let directory = told.what.contains(ReadFlags::ISDIR);
            if told
                .what
                .intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT)
            {
                changes.push(change(ChangeKind::Deleted, &path, directory));
                return false;
            }
            if told.what.contains(ReadFlags::MOVED_FROM) {
                let until = Instant::now() + HALF_MOVE;
                let place = (told.watch, told.name);
                self.halves.push(Half { cookie: told.cookie, path, place, directory, until });
                continue;
            }
            if told.what.contains(ReadFlags::MOVED_TO)
                && let Some(at) = self.halves.iter().position(|half| half.cookie == told.cookie)
            {
                let half = self.halves.remove(at);
                tree.moved(&half.place, (told.watch, told.name));
                let from = Some(half.path.to_string_lossy().into_owned());
                changes.push(Change { from, ..change(ChangeKind::Moved, &path, directory) });
                continue;
            }
            // Something new may have the name of what was moved away.
            self.gone(|half| half.path == path, changes);
            let (kind, announce) = if told.what.contains(ReadFlags::CREATE) {
                (ChangeKind::Created, Announce::All)
            } else if told.what.contains(ReadFlags::MOVED_TO) {
                (ChangeKind::Created, Announce::Nothing)
            } else if told.what.contains(ReadFlags::DELETE) {
                (ChangeKind::Deleted, Announce::Nothing)
            } else if told.what.contains(ReadFlags::MODIFY) {
                (ChangeKind::Modified, Announce::Nothing)
            } else if told.what.contains(ReadFlags::ATTRIB) {
                (ChangeKind::Attrib, Announce::Nothing)
            } else {
                continue;
            };
            changes.push(change(kind, &path, directory));
            if directory && kind == ChangeKind::Created {
                let place = Some((told.watch, told.name));
                if !self.join(place, announce, changes).await {
                    return false;
                }
            }
        }
        true
    }

    /// What was moved away and has not come back is gone.
    fn gone(&mut self, which: impl Fn(&Half) -> bool, changes: &mut Vec<Change>) {
        for half in self.halves.extract_if(.., |half| which(half)) {
            if let Some(tree) = &mut self.tree {
                tree.left(&half.place);
            }
            changes.push(change(ChangeKind::Deleted, &half.path, half.directory));
        }
    }

    /// Watches a directory and all below it, with the rights of the client.
    async fn join(
        &mut self,
        place: Option<(i32, Vec<u8>)>,
        announce: Announce,
        out: &mut Vec<Change>,
    ) -> bool {
        let Some(mut tree) = self.tree.take() else { return false };
        let joined = self.scope.run(move || {
            let mut changes = Vec::new();
            tree.join(place, announce, &mut changes);
            Ok((tree, changes))
        });
        let Ok((tree, changes)) = joined.await else { return false };
        self.tree = Some(tree);
        out.extend(changes);
        true
    }
}

/// What of a directory that joins is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announce {
    Nothing,
    /// All that is in it: it is new, and so is what came before it was watched.
    All,
}

fn change(kind: ChangeKind, path: &Path, directory: bool) -> Change {
    let path = Some(path.to_string_lossy().into_owned());
    Change { path, directory: Some(directory), ..Change::bare(kind, now()) }
}

/// Waits for what the kernel has to tell, and takes some of it.
async fn read(queue: &AsyncFd<OwnedFd>) -> Result<Vec<Told>, Errno> {
    loop {
        let mut ready = queue.readable().await.map_err(|_| Errno::IO)?;
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(queue.get_ref(), &mut buffer);
        let mut told = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => told.push(Told {
                    watch: event.wd(),
                    what: event.events(),
                    cookie: event.cookie(),
                    name: event
                        .file_name()
                        .map(|name| name.to_bytes().to_vec())
                        .unwrap_or_default(),
                }),
                Err(Errno::WOULDBLOCK) if told.is_empty() => {
                    ready.clear_ready();
                    break;
                }
                Err(Errno::WOULDBLOCK) => return Ok(told),
                Err(error) => return Err(error),
            }
            if reader.is_buffer_empty() {
                return Ok(told);
            }
        }
    }
}
