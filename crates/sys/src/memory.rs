//! How this process keeps its own memory.

use std::{io, ops::Range};

/// Makes all threads allocate from one heap. By default each thread that meets another one there
/// gets a heap of its own, which is good for many processors and wasteful for a small program.
pub fn share_one_heap() {
    // SAFETY: the call sets a number that the allocator looks at when a thread first allocates.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the memory back to the system that was freed and is kept for later.
pub fn give_back() {
    // SAFETY: it touches nothing but memory that is not in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the pages of this program's code; those that are used again come back from the file
/// that it was started from. A program that has been busy otherwise keeps nearly all of itself
/// mapped, since the kernel maps sixteen pages for each one that is touched.
pub fn release_code() -> io::Result<()> {
    let here = release_code as *const () as usize;
    let maps = crate::fs::read_to_string("/proc/self/maps").map_err(io::Error::other)?;
    let code = maps.lines().filter_map(executable).find(|range| range.contains(&here));
    let code = code.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let start = code.start as *mut libc::c_void;
    // SAFETY: the range is one mapping of a file that nobody can write through, private and
    // executable, so its pages are those of the file and are read from there again when used.
    let result = unsafe { libc::madvise(start, code.len(), libc::MADV_DONTNEED) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The addresses of a line of `/proc/self/maps` that is code.
fn executable(line: &str) -> Option<Range<usize>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    rest.starts_with("r-xp").then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_let_go_still_runs() {
        release_code().unwrap();
        assert_eq!(executable("1000-3000 r-xp 0 08:01 7 /a b"), Some(0x1000..0x3000));
        assert_eq!(executable("1000-3000 rw-p 0 08:01 7 /a"), None);
        assert_eq!(executable("heap"), None);
    }
}
