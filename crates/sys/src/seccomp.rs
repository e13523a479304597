//! System calls that a process and all it starts give up for good.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use crate::fork::SingleThread;

/// The second set of numbers that x86-64 kernels may know the same calls by.
#[cfg(target_arch = "x86_64")]
const ALIASES: &[i64] = &[0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const ALIASES: &[i64] = &[0];

/// Families of sockets that live in a network namespace, or in the file system. Others do not:
/// `AF_VSOCK` reaches the hypervisor from any namespace.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Calls that serve no program in a sandbox and have served many an escape.
const REFUSED: [i64; 26] = [
    // Does what other calls do, sockets included, where no filter sees it.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys are kept by user and not by namespace.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Programs and probes inside the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    // Halts the kernel in the middle of a copy, which turns small races into large ones.
    libc::SYS_userfaultfd,
    // The machine as a whole.
    libc::SYS_acct,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    // Old ways to read and change the clock and the processor.
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_lookup_dcookie,
    libc::SYS_vhangup,
];

/// A filter, ready to be installed.
#[derive(Debug, Clone)]
pub struct Filter {
    program: BpfProgram,
}

impl Filter {
    /// What every sandbox has: [`REFUSED`] calls, sockets of families other than [`FAMILIES`], limits
    /// of other processes and leases fail with `EPERM`.
    pub fn for_sandboxes() -> io::Result<Self> {
        let mut other_family = Vec::new();
        for family in FAMILIES {
            let (whole, family) = (SeccompCmpArgLen::Dword, u64::from(family.unsigned_abs()));
            let differs = SeccompCondition::new(0, whole, SeccompCmpOp::Ne, family);
            other_family.push(differs.map_err(io::Error::other)?);
        }
        let other_family = SeccompRule::new(other_family).map_err(io::Error::other)?;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for alias in ALIASES {
            for call in REFUSED {
                rules.insert(call | alias, Vec::new());
            }
            for call in [libc::SYS_socket, libc::SYS_socketpair] {
                rules.insert(call | alias, vec![other_family.clone()]);
            }
        }
        // Limits of other processes: root inside could starve execd with them.
        let (whole, own) = (SeccompCmpArgLen::Dword, 0);
        let another = SeccompCondition::new(0, whole, SeccompCmpOp::Ne, own);
        let another = another.and_then(|another| SeccompRule::new(vec![another]));
        let another = another.map_err(io::Error::other)?;
        for alias in ALIASES {
            rules.insert(libc::SYS_prlimit64 | alias, vec![another.clone()]);
        }
        // Leases: whoever has one on a file holds up for long whoever opens it, execd included.
        let lease = u64::from(libc::F_SETLEASE.unsigned_abs());
        let lease = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, lease);
        let lease = lease.and_then(|lease| SeccompRule::new(vec![lease]));
        let lease = lease.map_err(io::Error::other)?;
        for alias in ALIASES {
            rules.insert(libc::SYS_fcntl | alias, vec![lease.clone()]);
        }
        let errno = u32::try_from(libc::EPERM).map_err(io::Error::other)?;
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch)
                .map_err(io::Error::other)?;
        Ok(Self { program: filter.try_into().map_err(io::Error::other)? })
    }

    /// Puts the filter on this process. There is no way back, and it forbids new privileges too.
    pub fn install(&self, _alone: &SingleThread) -> io::Result<()> {
        apply_filter(&self.program).map_err(io::Error::other)
    }
}
