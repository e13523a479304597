//! A sandbox's files in a file system of their own, which is a file of the host's.
//!
//! The file is full of holes and takes what is in it; what the sandbox deletes is given back.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use osb_sys::{
    command::command,
    fs::{self, PathError},
    loop_device::LoopDevice,
    mount::{self, Attributes, FsOption},
    sparse,
};

use super::{Limit, Unable};

/// The file, in the directory of its sandbox.
const NAME: &str = "disk.img";
/// What the name of a template ends with.
const TEMPLATE: &str = ".img";
/// How many sizes are kept ready. Anybody may ask for any size, so it has to end somewhere.
const TEMPLATES: usize = 32;
const BLOCK: u32 = 4096;
const INODE: u64 = 256;

/// Makes file systems. Each is a copy of an empty one of its size, which is made when that size is
/// first asked for.
#[derive(Debug, Clone)]
pub(super) struct Images {
    templates: PathBuf,
    /// Held while an empty one is made.
    making: Arc<Mutex<()>>,
}

/// The program that makes file systems, or why there can be none.
pub(super) fn mkfs() -> Result<PathBuf, Unable> {
    LoopDevice::available().map_err(|error| Unable {
        found: format!("there is neither project quota nor /dev/loop-control: {error}"),
        remedy: "load it with modprobe loop, or mount the data directory's file system with prjquota",
    })?;
    let places = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"];
    places.into_iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| Unable {
        found: "there is neither project quota nor mkfs.ext4".to_owned(),
        remedy: "install e2fsprogs, or mount the data directory's file system with prjquota",
    })
}

impl Images {
    pub(super) fn open(templates: PathBuf) -> Result<Self, PathError> {
        fs::create_private_dir_all(&templates)?;
        for name in fs::names(&templates)? {
            // A crash came while it was made.
            if !name.ends_with(TEMPLATE) {
                fs::remove_file(templates.join(name))?;
            }
        }
        Ok(Self { templates, making: Arc::default() })
    }

    /// A new file system in this directory, mounted but without a place.
    pub(super) fn make(
        &self,
        mkfs: &Path,
        directory: &Path,
        limit: Limit,
    ) -> Result<OwnedFd, PathError> {
        let path = directory.join(NAME);
        let template = self.template(mkfs, limit)?;
        let image = create(&path)?;
        let made = sparse::copy(&template, &image).and_then(|()| {
            let device = LoopDevice::attach(&image, BLOCK)?;
            mount_image(&device)
        });
        made.map_err(|error| PathError::new("make the file system", path, error))
    }

    /// An empty file system with this limit.
    fn template(&self, mkfs: &Path, limit: Limit) -> Result<File, PathError> {
        let path = self.templates.join(format!("{}{TEMPLATE}", limit.bytes));
        match fs::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        let making = self.making.lock();
        // Unless somebody made it meanwhile.
        match fs::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        let kept = fs::names(&self.templates)?;
        if kept.len() >= TEMPLATES {
            for name in kept {
                fs::remove_file(self.templates.join(name))?;
            }
        }
        let aside = path.with_extension("new");
        fs::remove_file(&aside)?;
        let file = create(&aside)?;
        let made = rustix::fs::ftruncate(&file, size_for(limit)).map_err(io::Error::from);
        let made = made.and_then(|()| format(mkfs, &aside, limit));
        made.map_err(|error| PathError::new("make a file system in", &aside, error))?;
        fs::rename(&aside, &path)?;
        drop(making);
        fs::open(path)
    }
}

/// The file system in this directory, mounted but without a place; none if there is none. Only
/// one at a time may do this.
pub(super) fn reopen(directory: &Path) -> Result<Option<OwnedFd>, PathError> {
    let path = directory.join(NAME);
    let named = |error| PathError::new("open the file system", &path, error);
    let image = match OpenOptions::new().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(named)?,
    };
    let device = match LoopDevice::of(&image).map_err(named)? {
        Some(device) => device,
        None => LoopDevice::attach(&image, BLOCK).map_err(named)?,
    };
    mount_image(&device).map(Some).map_err(named)
}

/// How large a file system must be for the limit to be left to its files.
fn size_for(limit: Limit) -> u64 {
    // A fiftieth is set aside for what ext4 must write in any case, but never more than this.
    let aside = (limit.bytes / 49).clamp(64 << 10, 16 << 20);
    let inodes = limit.files * INODE;
    // Two blocks of bitmaps in each group of 32768, doubled for the tables of groups; and what every
    // file system has.
    let rest = limit.bytes / 8192 + (512 << 10);
    (limit.bytes + aside + inodes + rest).next_multiple_of(u64::from(BLOCK))
}

fn format(mkfs: &Path, image: &Path, limit: Limit) -> io::Result<()> {
    let output = command(mkfs)
        .args(["-q", "-F", "-b", &BLOCK.to_string(), "-I", &INODE.to_string(), "-m", "0"])
        .args(["-N", &limit.files.to_string()])
        // Nothing has to survive a crash of the host, so there is no journal; nor will it grow.
        .args(["-O", "^has_journal,^resize_inode,^metadata_csum,uninit_bg,sparse_super2"])
        .args(["-E", "lazy_itable_init=1,nodiscard,num_backup_sb=0"])
        .arg(image)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default().to_owned();
    Err(io::Error::other(format!("{} failed with {}: {last}", mkfs.display(), output.status)))
}

fn mount_image(device: &LoopDevice) -> io::Result<OwnedFd> {
    let path = device.path();
    let options = [
        FsOption::Text("source", &path),
        // What is deleted inside is free outside.
        FsOption::Flag("discard"),
        // The table of inodes is holes, which read as the zeros that it should have.
        FsOption::Flag("noinit_itable"),
        // It is as durable as what waits in memory: nobody has to wait for the host's disk.
        FsOption::Flag("nobarrier"),
    ];
    mount::filesystem("ext4", &options, Attributes::MOUNT_ATTR_NODEV)
}

fn create(path: &Path) -> Result<File, PathError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|error| PathError::new("create", path, error))
}
