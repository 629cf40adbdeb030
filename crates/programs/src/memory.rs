// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of a program, mapped safely, whatever the program does to it.
//!
//! A program may truncate its file while it is mapped here, or take memory out of it; touching a page that is gone raises SIGBUS (of a
//! hole: `holes`), which would end the collector for all programs. The handler here maps zeros in that place, notes it, and lets the
//! instruction run again. A thread that blocks SIGBUS is killed by the kernel in spite of the handler, so threads that use mappings let
//! it through.

pub(crate) mod holes;
pub(crate) mod own;

use nix::sys::signal::{SigSet, Signal};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// What is wrong with a file whose mapping [`Mapping::is_cut`].
pub(crate) const CUT: &str = "its file was truncated, or memory was taken out of it";

/// Mappings at a time. Each ring has one, so this is also the largest number of threads recorded at once. Below
/// vm.max_map_count's default of 65530.
pub(crate) const MAPPINGS_MAX: usize = 60_000;

struct Slot {
    begin: AtomicUsize,
    bytes: AtomicUsize,
    cut: AtomicBool,
}

static SLOTS: [Slot; MAPPINGS_MAX] =
    [const { Slot { begin: AtomicUsize::new(0), bytes: AtomicUsize::new(0), cut: AtomicBool::new(false) } };
        MAPPINGS_MAX];
/// All slots ever used have a lower index.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Where a free slot may be.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// A word of a mapping. In a model of the ring (`model`) it is one of the model's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    place: &'a AtomicU64,
    /// `None`: of memory of our own, which is none of the model's.
    #[cfg(test)]
    offset: Option<usize>,
}

impl Word<'_> {
    #[inline]
    pub(crate) fn load(self, order: Ordering) -> u64 {
        #[cfg(test)]
        if let Some(value) = self.offset.and_then(|offset| crate::model::load(offset, order)) {
            return value;
        }
        // ORDER: the caller's.
        self.place.load(order)
    }

    #[inline]
    pub(crate) fn store(self, value: u64, order: Ordering) {
        #[cfg(test)]
        if self.offset.is_some_and(|offset| crate::model::store(offset, value, order)) {
            return;
        }
        // ORDER: the caller's.
        self.place.store(value, order);
    }
}

/// Loads before it come before loads after it.
pub(crate) fn acquire_fence() {
    #[cfg(test)]
    crate::model::acquire_fence();
    // ORDER: acquire; the caller says what it pairs with.
    fence(Ordering::Acquire);
}

/// A shared mapping of a file, or memory of our own.
#[derive(Debug)]
pub(crate) struct Mapping {
    begin: usize,
    bytes: usize,
    /// `None`: memory of our own, which nobody can take away.
    slot: Option<usize>,
}

impl Mapping {
    /// Maps the first `bytes` of a file that a program has made: what it has no memory for stays without, whoever touches it here.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn of_program(file: &File, bytes: usize) -> io::Result<Mapping> {
        let mapping = Mapping::new(file, bytes)?;
        holes::leave(file, mapping.begin, bytes)?;
        Ok(mapping)
    }

    /// Maps the first `bytes` of a file, which must not be shorter now.
    ///
    /// # Errors
    /// When the system refuses, or there are too many mappings.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Mapping> {
        install_handler();
        let slot = free_slot().ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        // SAFETY: a new mapping of an open file touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // ORDER: release; see free_slot().
            SLOTS[slot].begin.store(0, Ordering::Release);
            return Err(error);
        }
        // ORDER: relaxed, then release; the handler of a thread that touches this mapping, which it got from this one, finds all of it.
        SLOTS[slot].cut.store(false, Ordering::Relaxed);
        // ORDER: release; pairs with the acquire in on_bus_error(): who sees these bytes sees that `begin` is no longer the old one.
        SLOTS[slot].bytes.store(bytes, Ordering::Release);
        SLOTS[slot].begin.store(address as usize, Ordering::Release);
        Ok(Mapping { begin: address as usize, bytes, slot: Some(slot) })
    }

    /// Whether its file has become shorter than the mapping, or has holes: zeros may have been read.
    pub(crate) fn is_cut(&self) -> bool {
        // ORDER: relaxed; set by a signal handler that has returned.
        self.slot.is_some_and(|slot| SLOTS[slot].cut.load(Ordering::Relaxed))
    }

    /// A word that the other side may change at any time. `offset` is a multiple of 8 within the mapping.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> Word<'_> {
        assert!(offset % 8 == 0 && offset + 8 <= self.bytes, "a word in the mapping");
        // SAFETY: within the mapping (just checked), aligned (mappings are aligned to pages), and alive as long as self. Another
        // process may write it too; all accesses of this one are atomic.
        let place = unsafe { AtomicU64::from_ptr((self.begin + offset) as *mut u64) };
        Word {
            place,
            #[cfg(test)]
            offset: self.slot.map(|_| offset),
        }
    }

    /// `count` words in a row.
    #[inline]
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let fits = count <= self.bytes / 8 && offset <= self.bytes - count * 8;
        assert!(offset % 8 == 0 && fits, "words in the mapping");
        // SAFETY: as in word(), for each of them.
        unsafe { std::slice::from_raw_parts((self.begin + offset) as *const AtomicU64, count) }
    }

    /// Half a word.
    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && offset + 4 <= self.bytes, "half a word in the mapping");
        // SAFETY: as in word().
        unsafe { AtomicU32::from_ptr((self.begin + offset) as *mut u32) }
    }

    /// Copies bytes out. The copy may contain half of what another process writes at the same time.
    pub(crate) fn copy(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.bytes), "bytes in the mapping");
        #[cfg(test)]
        if self.slot.is_some() && crate::model::copy(offset, into) {
            return;
        }
        // SAFETY: source within the mapping (just checked), destination a slice of ours; they cannot overlap. A concurrent
        // write of another process makes the bytes arbitrary, not the copy unsound: u8 has no invalid value.
        unsafe {
            std::ptr::copy_nonoverlapping((self.begin + offset) as *const u8, into.as_mut_ptr(), into.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            // ORDER: release; the slot is free for reuse after the last use here.
            SLOTS[slot].bytes.store(0, Ordering::Release);
        }
        // SAFETY: the mapping belongs to self, and no reference to it outlives self.
        unsafe { libc::munmap(self.begin as *mut libc::c_void, self.bytes) };
        if let Some(slot) = self.slot {
            // ORDER: as above.
            SLOTS[slot].begin.store(0, Ordering::Release);
        }
    }
}

/// Takes a slot: 1 in `begin` is neither a mapping nor free.
fn free_slot() -> Option<usize> {
    // From where the last search ended: with many mappings a search from the beginning takes as long as opening the file.
    // ORDER: relaxed; a hint.
    let hint = HINT.load(Ordering::Relaxed) % MAPPINGS_MAX;
    for number in (hint..MAPPINGS_MAX).chain(0..hint) {
        let slot = &SLOTS[number];
        // ORDER: acquire; pairs with the release that freed it.
        if slot.begin.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // ORDER: relaxed; the handler only has to find mappings that were made after this.
            USED.fetch_max(number + 1, Ordering::Relaxed);
            // ORDER: relaxed; a hint.
            HINT.store(number + 1, Ordering::Relaxed);
            return Some(number);
        }
    }
    None
}

fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zero is a valid sigaction, whose fields are set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // SAFETY: the structure lives here; the handler is async-signal-safe (see there).
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    });
}

/// Lets SIGBUS through to the handler in this thread: the mask is inherited, from the thread that started this one or from whoever
/// started the process. To be called before a mapping is used in a thread.
pub(crate) fn let_bus_errors_through() {
    thread_local! {
        static IS_THROUGH: Cell<bool> = const { Cell::new(false) };
    }
    if IS_THROUGH.replace(true) {
        return;
    }
    let mut set = SigSet::empty();
    set.add(Signal::SIGBUS);
    // It fails only for a value that is no operation.
    let _ = set.thread_unblock();
}

/// Async-signal-safe: atomics, and mmap(2) by a direct system call.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel gives a valid structure.
    let info = unsafe { &*info };
    // SAFETY: SIGBUS has an address.
    let address = unsafe { info.si_addr() } as usize;
    // ORDER: relaxed; see Mapping::new().
    let used = USED.load(Ordering::Relaxed);
    for slot in &SLOTS[..used] {
        // ORDER: acquire; pairs with the release in Mapping::new().
        let begin = slot.begin.load(Ordering::Acquire);
        // ORDER: acquire; the second look at `begin` comes after it. Another thread may be giving the slot to another mapping.
        let bytes = slot.bytes.load(Ordering::Acquire);
        // ORDER: relaxed; after the load before it, which pairs with the release of `bytes` in Mapping::new().
        if begin <= 1 || address.wrapping_sub(begin) >= bytes || slot.begin.load(Ordering::Relaxed) != begin {
            continue;
        }
        // ORDER: relaxed; read by this thread.
        slot.cut.store(true, Ordering::Relaxed);
        // SAFETY: replaces our own mapping, as a whole, by zeros of the same size; no Rust reference relies on its content.
        let zeros = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                begin,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if usize::try_from(zeros) == Ok(begin) {
            return;
        }
    }
    // Not in a mapping of this module: end as without a handler.
    // SAFETY: plain system calls.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_file_becomes_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        // ORDER: relaxed; one thread.
        mapping.word(4096).store(7, Ordering::Relaxed);
        assert_eq!((mapping.word(4096).load(Ordering::Relaxed), mapping.is_cut()), (7, false));
        file.set_len(0).unwrap();
        let mut bytes = [1; 16];
        mapping.copy(4096, &mut bytes);
        assert_eq!((bytes, mapping.is_cut()), ([0; 16], true));
    }

    #[test]
    fn a_hole_is_read_as_zeros_and_gets_no_memory() {
        use nix::fcntl::{FallocateFlags, fallocate};
        use std::os::unix::fs::MetadataExt;
        const BYTES: usize = 1 << 20;
        let file = tempfile::tempfile_in(crate::directory::SHARED_MEMORY).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, BYTES as i64).unwrap();
        let mapping = Mapping::of_program(&file, BYTES).unwrap();
        // ORDER: relaxed, both; one thread.
        mapping.word(BYTES - 8).store(7, Ordering::Relaxed);
        assert_eq!((mapping.word(BYTES - 8).load(Ordering::Relaxed), mapping.is_cut()), (7, false));
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&file, punch, 4096, BYTES as i64 - 4096).unwrap();
        let left = file.metadata().unwrap().blocks();
        let mut bytes = vec![1; BYTES];
        mapping.copy(0, &mut bytes);
        assert_eq!((bytes.iter().max(), mapping.is_cut()), (Some(&0), true));
        // Nor does writing.
        mapping.half(8192).store(7, Ordering::Relaxed);
        assert_eq!(file.metadata().unwrap().blocks(), left, "holes were filled");
    }

    #[test]
    fn a_truncated_file_is_survived_by_a_thread_that_blocked_all_signals() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        file.set_len(0).unwrap();
        let read = move || {
            SigSet::all().thread_block().unwrap();
            let_bus_errors_through();
            // ORDER: relaxed; one thread.
            (mapping.word(4096).load(Ordering::Relaxed), mapping.is_cut())
        };
        assert_eq!(std::thread::spawn(read).join().unwrap(), (0, true));
    }
}
