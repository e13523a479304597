use osb_core::{Account, Accounts};
use osb_sys::{fs, identity::Identity};

/// The users and groups that the sandbox's own files declare, read anew: programs add users. A file
/// that is not there declares nobody.
///
/// Read by hand: the C library would load plugins for it, which a static program cannot.
pub(crate) fn load() -> Accounts {
    let text =
        |path| String::from_utf8_lossy(&fs::read_small(path).unwrap_or_default()).into_owned();
    Accounts::parse(&text("/etc/passwd"), &text("/etc/group"))
}

/// Who a process is that runs as this user, with `gid` in place of the user's own group.
pub(crate) fn identity(uid: u32, gid: Option<u32>) -> Identity {
    identity_of(load().account(uid, gid))
}

pub(crate) fn identity_of(account: Account) -> Identity {
    let Account { uid, gid, groups, .. } = account;
    Identity { uid, gid, groups }
}
