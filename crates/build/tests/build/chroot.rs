//! Steps in a plain overlay of the kernel, with nothing around it: what they change is what counts.

use std::{
    fmt::Write as _,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    sync::mpsc,
};

use async_trait::async_trait;
use osb_build::{Changes, Ended, Output, Reach, RunStep, Sandboxes, Stream, WorkError};
use osb_core::ImageName;
use osb_image::{Image, Images};
use osb_registry::{Digest, Platform};
use osb_sys::{fs, userns::IdBase};

/// Runs steps in directories below `root`.
pub(crate) struct Chroot {
    pub(crate) images: Images,
    pub(crate) root: PathBuf,
}

#[async_trait]
impl Sandboxes for Chroot {
    async fn image(&self, name: &ImageName, _: &Platform) -> Result<Image, WorkError> {
        self.images.find(name).map_err(|error| WorkError::Refused(error.to_string()))
    }

    async fn run(
        &self,
        on: &Image,
        step: &RunStep,
        output: &dyn Output,
    ) -> Result<Ended, WorkError> {
        let (layers, step, root) = (on.rootfs.layers.clone(), step.clone(), self.root.clone());
        let (sender, receiver) = mpsc::channel();
        let work = move || run(&layers, &step, &root, &sender);
        let running = tokio::task::spawn_blocking(work);
        let ended = running.await.unwrap();
        for (stream, line) in receiver {
            output.line(stream, &line);
        }
        Ok(ended)
    }

    /// A file of this host whose name is the last part of the URL.
    async fn fetch(&self, url: &str, mut to: File) -> Result<File, WorkError> {
        let name = url.rsplit('/').next().unwrap();
        let content = fs::read(self.root.join("served").join(name));
        let content = content.map_err(|_| WorkError::Refused(format!("{url} is not there")))?;
        to.write_all(&content).unwrap();
        Ok(to)
    }
}

/// Mounts everything in a namespace of its own, which is gone with the command.
const SCRIPT: &str = r#"
set -e
cd "$1"; shift
mount -t overlay -o "lowerdir=$(cat lower),upperdir=upper,workdir=work,redirect_dir=nofollow,metacopy=off,index=off" overlay merged
while read -r line; do eval "$line"; done < mounts
mount -t proc proc merged/proc
mount --rbind /dev merged/dev
exec chroot --userspec="$(cat user)" --groups="$(cat groups)" merged /usr/bin/env -i sh -c '. /.run; cd "$1"; shift; exec "$@"' sh "$@"
"#;

fn run(
    layers: &[PathBuf],
    step: &RunStep,
    root: &Path,
    sender: &mpsc::Sender<(Stream, String)>,
) -> Ended {
    let directory = tempfile::tempdir_in(root).unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["upper", "work", "merged", "secrets"] {
        fs::create_dir(at(name), 0o755).unwrap();
    }
    let lower: Vec<String> = layers.iter().map(|layer| layer.display().to_string()).collect();
    fs::write(at("lower"), lower.join(":")).unwrap();
    fs::write(at("user"), format!("{}:{}", step.account.user, step.account.group)).unwrap();
    let groups: Vec<String> = step.account.groups.iter().map(ToString::to_string).collect();
    fs::write(at("groups"), groups.join(",")).unwrap();
    fs::write(at("mounts"), mounts(step, root, &at("secrets"))).unwrap();
    // The environment comes from a file that is none of the image.
    let mut environment = String::new();
    for (name, value) in &step.environment {
        let value = value.replace('\'', r"'\''");
        writeln!(environment, "export {name}='{value}'").unwrap();
    }
    for (name, secret) in &step.secret_environment {
        let secret = String::from_utf8(secret.reveal().to_vec()).unwrap();
        writeln!(environment, "export {name}='{secret}'").unwrap();
    }
    fs::write(at("environment"), environment).unwrap();
    let mut command = osb_sys::command::command("/usr/bin/unshare");
    command.arg("--mount");
    if step.network == Reach::Nothing {
        command.arg("--net");
    }
    command.args(["/bin/sh", "-c", SCRIPT, "sh"]).arg(directory.path()).arg(&step.workdir);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(&step.arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    std::thread::scope(|scope| {
        let each = |stream, from: Box<dyn std::io::Read + Send>| {
            let sender = sender.clone();
            move || {
                for line in BufReader::new(from).lines().map_while(Result::ok) {
                    sender.send((stream, line)).unwrap();
                }
            }
        };
        scope.spawn(each(Stream::Out, Box::new(stdout)));
        scope.spawn(each(Stream::Err, Box::new(stderr)));
    });
    match child.wait().unwrap().code() {
        Some(0) => {}
        Some(code) => return Ended::Failed { code, notes: Vec::new() },
        None => return Ended::Killed("by a signal".to_owned()),
    }
    // What this runner itself put there.
    fs::remove_file(at("upper/.run")).unwrap();
    let files = fs::open(at("upper")).unwrap().into();
    let (owners, until) = (IdBase(0), Some(Box::new(directory) as Box<_>));
    Ended::Well(Changes { files, owners, authorities: None, until })
}

/// The commands that mount what a step sees.
fn mounts(step: &RunStep, root: &Path, secrets: &Path) -> String {
    let mut lines = "touch merged/.run; mount --bind environment merged/.run\n".to_owned();
    for cache in &step.caches {
        let id = Digest::of(cache.id.as_bytes());
        let directory = root.join("caches").join(id.hex());
        if !directory.exists() {
            fs::create_dir_all(&directory).unwrap();
            fs::set_mode(&directory, cache.mode).unwrap();
            fs::chown(&directory, cache.user, cache.group).unwrap();
        }
        let target = format!("merged{}", cache.target);
        let how = if cache.read_only { "ro" } else { "rw" };
        let directory = directory.display();
        writeln!(lines, "mkdir -p {target}; mount --bind -o {how} {directory} {target}").unwrap();
    }
    for tmpfs in &step.tmpfs {
        let target = format!("merged{}", tmpfs.target);
        let size = tmpfs.size.map(|size| format!("-o size={size}")).unwrap_or_default();
        writeln!(lines, "mkdir -p {target}; mount -t tmpfs {size} tmpfs {target}").unwrap();
    }
    for (number, secret) in step.secrets.iter().enumerate() {
        let file = secrets.join(number.to_string());
        fs::write(&file, secret.content.reveal()).unwrap();
        fs::set_mode(&file, secret.mode).unwrap();
        fs::chown(&file, secret.user, secret.group).unwrap();
        let (target, file) = (format!("merged{}", secret.target), file.display());
        let around = format!("mkdir -p \"$(dirname {target})\"; touch {target}");
        writeln!(lines, "{around}; mount --bind {file} {target}").unwrap();
    }
    lines
}
