//! Starting programs quickly, with everything about them set before they run.
//!
//! The child borrows our memory until it has become the program, so nothing is copied however much
//! this process uses, and a failure comes back in a variable instead of over a pipe. The price is
//! that the child may do nothing but system calls; that is why it is here and nowhere else.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::{
        LazyLock,
        atomic::{AtomicI32, Ordering},
    },
};

use rustix::process::{Pid, Resource, Rlimit, setrlimit};

use crate::{identity::Identity, rlimit};

/// What the child needs for its few calls, with much to spare.
const STACK: usize = 64 << 10;

/// How much sooner than us the kernel ends what we start, if memory runs out.
const EXPENDABLE: i32 = 500;

/// A program, with all that it starts with.
#[derive(Debug)]
pub struct Program {
    /// Where it may be found; the first place that can be executed is it.
    pub candidates: Vec<Candidate>,
    /// Its arguments, without its own name.
    pub arguments: Vec<CString>,
    /// Its variables, each as `NAME=value`.
    pub variables: Vec<CString>,
    /// Entered with the rights of the caller.
    pub directory: CString,
    pub identity: Option<Identity>,
}

/// A file that may be the program.
#[derive(Debug)]
pub struct Candidate {
    pub path: CString,
    /// What the program is told that it is called.
    pub name: CString,
}

/// The descriptors that a program starts with. It gets no others.
#[derive(Debug, Clone, Copy)]
pub enum Streams<'fd> {
    Apart {
        input: BorrowedFd<'fd>,
        output: BorrowedFd<'fd>,
        errors: BorrowedFd<'fd>,
    },
    /// A terminal in place of all three, which will be that of the program's session.
    Terminal(BorrowedFd<'fd>),
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot make a process")]
    Process(#[source] io::Error),
    #[error("cannot prepare the process")]
    Prepare(#[source] io::Error),
    #[error("cannot enter the working directory")]
    Directory(#[source] io::Error),
    #[error("cannot become the user")]
    Identity(#[source] io::Error),
    #[error("cannot execute the program")]
    Execute(#[source] io::Error),
}

impl SpawnError {
    /// What kind of error of the system it was.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Process(source)
            | Self::Prepare(source)
            | Self::Directory(source)
            | Self::Identity(source)
            | Self::Execute(source) => source.kind(),
        }
    }
}

/// Starts a program as the leader of a session and of a process group of its own, with all signals
/// as they are by default.
///
/// The caller waits for the child, also for one that could not become the program. Its number is
/// in `pid` before it exists for anybody else, so whoever waits in another thread can know it.
pub fn spawn(program: &Program, streams: Streams<'_>, pid: &AtomicI32) -> Result<Pid, SpawnError> {
    let (streams, in_terminal) = match streams {
        Streams::Apart { input, output, errors } => ([input, output, errors], false),
        Streams::Terminal(terminal) => ([terminal; 3], true),
    };
    let streams = streams.map(|fd| fd.as_raw_fd());
    if (0..3).zip(streams).any(|(number, fd)| fd < 3 && fd != number) {
        // One would overwrite the other.
        return Err(SpawnError::Prepare(io::ErrorKind::InvalidInput.into()));
    }
    let mut argv: Vec<*const c_char> = Vec::with_capacity(program.arguments.len() + 2);
    argv.push(ptr::null());
    argv.extend(program.arguments.iter().map(|argument| argument.as_ptr()));
    argv.push(ptr::null());
    let mut envp: Vec<_> = program.variables.iter().map(|variable| variable.as_ptr()).collect();
    envp.push(ptr::null());
    let mut child = Child {
        program,
        streams,
        in_terminal,
        argv,
        envp,
        descriptors: rlimit::original(),
        failed: None,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;

    let before = block_signals();
    // SAFETY: with CLONE_VFORK this thread stands still until the child has become another program
    // or ended, so `child`, the stack and `pid` outlive their use, and nobody else touches the
    // first two. The child runs on the stack given here, which ends at `top`; an integer that is
    // atomic has the layout of one that is not. No signal handler can run in the child, since all
    // are blocked. `run_child` makes system calls only.
    let cloned =
        unsafe { libc::clone(run_child, top.cast(), flags, (&raw mut child).cast(), pid.as_ptr()) };
    let error = io::Error::last_os_error();
    restore_signals(&before);
    drop(stack);
    match (Pid::from_raw(cloned).filter(|_| cloned > 0), child.failed) {
        (None, _) => Err(SpawnError::Process(error)),
        (Some(pid), None) => Ok(pid),
        (Some(_), Some(failed)) => Err(failed.into()),
    }
}

/// What the child works with. All of it was made before.
struct Child<'a> {
    program: &'a Program,
    streams: [RawFd; 3],
    /// The streams are a terminal, which is to be the program's own.
    in_terminal: bool,
    /// Ends with a null pointer; the first is set for each candidate.
    argv: Vec<*const c_char>,
    /// Ends with a null pointer.
    envp: Vec<*const c_char>,
    /// How many descriptors the program may have, if not as many as this process.
    descriptors: Option<Rlimit>,
    failed: Option<Failed>,
}

/// As [`SpawnError`], without anything that a child would have to allocate.
#[derive(Clone, Copy)]
struct Failed {
    step: fn(io::Error) -> SpawnError,
    errno: i32,
}

impl From<Failed> for SpawnError {
    fn from(failed: Failed) -> Self {
        (failed.step)(io::Error::from_raw_os_error(failed.errno))
    }
}

/// The life of the child until it is the program. It ends if that fails.
extern "C" fn run_child(child: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `Child`, which nobody else uses while we run.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    let Err(failed) = child.become_program();
    child.failed = Some(failed);
    127
}

impl Child<'_> {
    fn become_program(&mut self) -> Result<std::convert::Infallible, Failed> {
        for signal in (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
            // SAFETY: sets a disposition of this process, which has its own table of them.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: takes nothing and touches no memory.
        check(unsafe { libc::setsid() }, SpawnError::Prepare)?;
        for (number, fd) in (0..).zip(self.streams) {
            // SAFETY: the table of descriptors is this process's own. The first three are
            // overwritten on purpose, and none of those still to come is among them.
            check(unsafe { libc::dup2(fd, number) }, SpawnError::Prepare)?;
        }
        if self.in_terminal {
            // SAFETY: takes a descriptor and a number, and touches no memory.
            check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }, SpawnError::Prepare)?;
        }
        // What we opened is marked already; this is for what we inherited. Old kernels lack it.
        drop(crate::exec::close_on_exec_from(3));
        // SAFETY: the string is alive and ends with a zero.
        check(unsafe { libc::chdir(self.program.directory.as_ptr()) }, SpawnError::Directory)?;
        if let Some(identity) = &self.program.identity {
            identity.put_on().map_err(|errno| Failed { step: SpawnError::Identity, errno })?;
        }
        if let Some(limit) = self.descriptors {
            // One that cannot be had is higher than ours, and then ours is as good.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        unblock_signals();
        Err(self.execute())
    }

    fn execute(&mut self) -> Failed {
        let mut errno = libc::ENOENT;
        for candidate in &self.program.candidates {
            if let Some(name) = self.argv.first_mut() {
                *name = candidate.name.as_ptr();
            }
            let (argv, envp) = (self.argv.as_ptr(), self.envp.as_ptr());
            // SAFETY: both arrays end with a null pointer, and what they point to is alive.
            unsafe { libc::execve(candidate.path.as_ptr(), argv, envp) };
            match last_errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => errno = libc::EACCES,
                other => {
                    errno = other;
                    break;
                }
            }
        }
        Failed { step: SpawnError::Execute, errno }
    }
}

fn check(result: c_int, step: fn(io::Error) -> SpawnError) -> Result<(), Failed> {
    if result >= 0 { Ok(()) } else { Err(Failed { step, errno: last_errno() }) }
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Has lack of memory end this child before it ends us. Returns whether there is nothing left to
/// do, be it because the child has ended or because it cannot be said here at all.
///
/// A child cannot say it of itself: as long as it borrows our memory, its files in `/proc` are as
/// closed as ours. They open a moment after it has become its program.
pub fn make_expendable(child: Pid) -> bool {
    static SCORE: LazyLock<String> = LazyLock::new(|| {
        let own = crate::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        let own: i32 = own.trim().parse().unwrap_or_default();
        own.saturating_add(EXPENDABLE).min(1000).to_string()
    });
    let place = format!("/proc/{}/oom_score_adj", child.as_raw_pid());
    let written = crate::fs::write(place, &*SCORE);
    !written.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (no_signals(), no_signals());
    // SAFETY: the set is initialized and ours.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are initialized and ours.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is initialized, and a null pointer asks for no answer.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

fn unblock_signals() {
    restore_signals(&no_signals());
}

fn no_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the pointer is to memory of the right size.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `sigemptyset` has initialized all of it that the C library looks at.
    unsafe { set.assume_init() }
}

/// The number that [`spawn`] has stored, once there is a process.
pub fn stored(pid: &AtomicI32) -> Option<Pid> {
    Pid::from_raw(pid.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::fd::AsFd};

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    fn program(candidates: &[&str], arguments: &[&str]) -> Program {
        let string = |text: &&str| CString::new(*text).unwrap();
        let candidate = |path| Candidate { path: string(path), name: string(&"name") };
        Program {
            candidates: candidates.iter().map(candidate).collect(),
            arguments: arguments.iter().map(string).collect(),
            variables: vec![c"A=one".to_owned(), c"B=two three".to_owned()],
            directory: c"/usr".to_owned(),
            identity: None,
        }
    }

    fn start(program: &Program) -> (Result<Pid, SpawnError>, String) {
        let (mut reader, writer) = io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        let output = writer.as_fd();
        let streams = Streams::Apart { input: null.as_fd(), output, errors: output };
        let pid = AtomicI32::new(0);
        let spawned = spawn(program, streams, &pid);
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        if let Some(pid) = stored(&pid) {
            waitpid(Some(pid), WaitOptions::empty()).unwrap();
        }
        (spawned, said)
    }

    #[test]
    fn a_program_starts_with_what_it_was_given() {
        let script = "echo $0 $1 $A $B $PWD; ls /proc/self/fd";
        let (spawned, said) = start(&program(
            &["/nowhere/sh", "/etc/passwd/sh", "/etc/passwd", "/bin/sh"],
            &["-c", script, "zero", "first"],
        ));
        spawned.unwrap();
        assert_eq!(said, "zero first one two three /usr\n0\n1\n2\n3\n");
    }

    #[test]
    fn a_program_leads_a_session_and_has_no_signal_changed() {
        let (spawned, said) = start(&program(
            &["/bin/sh"],
            &["-c", "cut -d' ' -f5,6 /proc/$$/stat; exec grep Sig /proc/self/status"],
        ));
        let pid = spawned.unwrap().as_raw_pid();
        assert!(said.starts_with(&format!("{pid} {pid}\n")), "{said}");
        for name in ["SigBlk:\t", "SigIgn:\t"] {
            let set = said.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            // From 32 on they have no meaning of their own.
            assert_eq!(u64::from_str_radix(set, 16).unwrap() & 0x7fff_ffff, 0, "{said}");
        }
    }

    #[test]
    fn each_failure_says_what_failed() {
        let kind = |program: &Program| start(program).0.unwrap_err();
        let missing = kind(&program(&["/nowhere/a", "/nowhere/b"], &[]));
        assert!(matches!(&missing, SpawnError::Execute(e) if e.kind() == io::ErrorKind::NotFound));
        let forbidden = kind(&program(&["/etc/passwd", "/nowhere/b"], &[]));
        let denied = io::ErrorKind::PermissionDenied;
        assert!(matches!(&forbidden, SpawnError::Execute(error) if error.kind() == denied));
        let mut lost = program(&["/bin/true"], &[]);
        lost.directory = c"/nowhere".to_owned();
        assert!(matches!(kind(&lost), SpawnError::Directory(_)));
    }

    #[test]
    fn threads_start_programs_at_once() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..25 {
                        let n = n.to_string();
                        let (spawned, said) = start(&program(&["/bin/echo"], &[&n]));
                        spawned.unwrap();
                        assert_eq!(said.trim(), n);
                    }
                });
            }
        });
    }
}
