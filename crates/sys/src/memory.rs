//! How this process keeps its own memory.

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
