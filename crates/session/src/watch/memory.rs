// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a watch between two snapshots: what was decided before it began.
//!
//! Banks and their copies are made before tracing starts and used again. Decoding and explaining a snapshot takes more, in
//! proportion to what the banks hold, and frees all of it. The C library keeps what is freed, for the thread that freed it and
//! with holes between what is still in use, up to what the largest snapshot so far took: over days memory creeps up, though
//! nothing leaks. So a watch has the C library keep one pool for all threads, and empties it after each snapshot.

/// Before the first thread is started.
pub fn keep_one_pool() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number in the C library, while this is the only thread. One that it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives freed memory back to the system. It takes less than a millisecond, on the writer's thread, which nobody waits for.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time and by any thread; it takes the locks of the C library's own memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
