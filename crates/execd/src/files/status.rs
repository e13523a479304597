//! What the kernel knows of a file, in the words of the protocol.

use std::path::Path;

use jiff::Timestamp;
use osb_api::execd::{FileInfo, FileKind, Mode};
use osb_core::Accounts;
use rustix::fs::{FileType, Statx, StatxFlags, StatxTimestamp};

use super::walk;

/// Describes the file at `path`, whose name is shown as well as it can be.
pub(super) fn describe(path: &Path, status: &Statx, accounts: &Accounts) -> FileInfo {
    FileInfo {
        path: path.to_string_lossy().into_owned(),
        kind: Some(kind(walk::kind(status))),
        size: status.stx_size,
        modified_at: time(status.stx_mtime),
        created_at: created(status),
        owner: accounts.user_name(status.stx_uid),
        group: accounts.group_name(status.stx_gid),
        mode: Mode::from_bits(status.stx_mode.into()),
    }
}

fn kind(kind: FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

/// The file's birth, or its last change of any kind where the file system does not keep that.
fn created(status: &Statx) -> Timestamp {
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    time(if known { status.stx_btime } else { status.stx_ctime })
}

pub(super) fn time(time: StatxTimestamp) -> Timestamp {
    let nanoseconds = i32::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::new(time.tv_sec, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
