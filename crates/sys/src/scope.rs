//! File work with the rights of another user.

use std::{io, marker::PhantomData, process::abort};

use rustix::{
    process::{getegid, geteuid, getgroups},
    thread::{capabilities, set_capabilities},
};

use crate::identity::Identity;

/// Runs `work` on this thread with the file rights of `identity`, and switches back after it,
/// also when it panics.
///
/// Only what the kernel checks by the identity for files is affected: opening, looking, making,
/// renaming, removing. A thread that cannot become itself again takes the process with it: it must
/// never go on with the rights of somebody else.
///
/// An identity that this process has no right to take is an error, and then `work` is not run.
pub fn within<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    let (uid, gid) = (geteuid(), getegid());
    if !uid.is_root() && identity.uid == uid.as_raw() && identity.gid == gid.as_raw() {
        // An ordinary user cannot choose its groups, and has its own already.
        return Ok(work());
    }
    let own = getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
    let back = Identity { uid: uid.as_raw(), gid: gid.as_raw(), groups: own };
    // Whoever may not do this has changed nothing yet, and has nothing to switch back.
    set_groups(&identity.groups)?;
    let switched = Switched { back, this_thread: PhantomData };
    set_checked(libc::SYS_setfsgid, identity.gid)?;
    set_checked(libc::SYS_setfsuid, identity.uid)?;
    let result = work();
    drop(switched);
    Ok(result)
}

/// Runs `work` on this thread with all its rights, but what it makes is the user's and the group's of
/// `identity`. As [`within`] otherwise.
pub fn owning<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    let own = getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
    let back = Identity { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: own };
    let powers = capabilities(None)?;
    let switched = Switched { back, this_thread: PhantomData };
    set_checked(libc::SYS_setfsgid, identity.gid)?;
    set_checked(libc::SYS_setfsuid, identity.uid)?;
    // Those over files were set aside with the user. Coming back takes them up again in any case.
    set_capabilities(None, powers)?;
    let result = work();
    drop(switched);
    Ok(result)
}

/// A thread that is, or is about to be, somebody else; dropped, it is itself again.
struct Switched {
    back: Identity,
    /// What was switched is this thread alone.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Switched {
    fn drop(&mut self) {
        let Identity { uid, gid, groups } = &self.back;
        let switched = set_checked(libc::SYS_setfsuid, *uid)
            .and_then(|()| set_checked(libc::SYS_setfsgid, *gid))
            .and_then(|()| set_groups(groups));
        if switched.is_err() {
            abort();
        }
    }
}

/// Sets the supplementary groups of this thread.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // The system call and not the function of libc: that one changes all threads.
    //
    // SAFETY: the pointer and the length are those of `groups`, which outlives the call.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the user or the group for files of this thread. Leaving user 0 also takes away the powers
/// over files that user has, coming back returns them; see capabilities(7).
///
/// The calls never fail: they answer with the number that was set before, so only a second call
/// tells whether the first one was heeded.
fn set_checked(call: libc::c_long, id: u32) -> io::Result<()> {
    for _ in 0..2 {
        // SAFETY: takes a number and touches no memory.
        let before = unsafe { libc::syscall(call, id) };
        if before == libc::c_long::from(id) {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use osb_core::testkit::required;

    use super::*;

    /// The ids and the effective powers of this thread, as the kernel shows them.
    fn status(names: &[&str]) -> Vec<String> {
        let status = crate::fs::read_to_string("/proc/thread-self/status").unwrap();
        let lines = status.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.map(str::to_owned).collect()
    }

    const SHOWN: &[&str] = &["Uid:", "Gid:", "Groups:", "CapEff:"];

    fn nobody() -> Identity {
        Identity { uid: 65534, gid: 65533, groups: vec![7, 9] }
    }

    #[test]
    fn work_has_the_rights_of_the_identity_and_the_thread_its_own_again() {
        if !required("root", geteuid().is_root()) {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        crate::fs::write(&secret, "x").unwrap();
        crate::fs::set_mode(&secret, 0o600).unwrap();
        crate::fs::set_mode(root.path(), 0o777).unwrap();
        let before = status(SHOWN);
        within(&nobody(), || {
            let inside = status(SHOWN);
            assert_eq!(inside[0], "Uid:\t0\t0\t0\t65534");
            assert_eq!(inside[1], "Gid:\t0\t0\t0\t65533");
            assert_eq!(inside[2].trim_end(), "Groups:\t7 9");
            assert_ne!(inside[3], before[3]);
            let denied = crate::fs::read(&secret).unwrap_err();
            assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
            crate::fs::write(root.path().join("mine"), "").unwrap();
        })
        .unwrap();
        assert_eq!(status(SHOWN), before);
        let mine = root.path().join("mine").metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&mine), 65534);
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&mine), 65533);
    }

    #[test]
    fn what_is_made_is_the_owners_and_no_right_is_lost() {
        if !required("root", geteuid().is_root()) {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        crate::fs::write(&secret, "x").unwrap();
        crate::fs::set_mode(&secret, 0o600).unwrap();
        let before = status(SHOWN);
        owning(&nobody(), || {
            assert_eq!(status(&["CapEff:"])[0], before[3]);
            crate::fs::read(&secret).unwrap();
            crate::fs::write(root.path().join("theirs"), "").unwrap();
            crate::fs::chown(&secret, 7, 9).unwrap();
        })
        .unwrap();
        assert_eq!(status(SHOWN), before);
        let theirs = root.path().join("theirs").metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&theirs), 65534);
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&theirs), 65533);
    }

    #[test]
    fn a_panic_does_not_leave_the_thread_switched() {
        if !required("root", geteuid().is_root()) {
            return;
        }
        let before = status(SHOWN);
        let work =
            AssertUnwindSafe(|| within(&nobody(), || std::panic::resume_unwind(Box::new(()))));
        assert!(catch_unwind(work).is_err());
        assert_eq!(status(SHOWN), before);
    }

    #[test]
    fn an_identity_that_cannot_be_is_refused() {
        if !required("root", geteuid().is_root()) {
            return;
        }
        let impossible = Identity { uid: u32::MAX, gid: 0, groups: vec![] };
        let before = status(SHOWN);
        assert!(within(&impossible, || unreachable!()).is_err());
        assert_eq!(status(SHOWN), before);
    }
}
