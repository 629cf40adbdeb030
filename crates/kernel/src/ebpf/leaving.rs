// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who frees the memory of the maps: rtscope, on the CPU where it is, and not a worker of the kernel on a target's.
//!
//! The kernel frees a map in a worker that runs on whichever CPU is idle. Since Linux 6.7 pages that one CPU frees in a row go back in bursts
//! of up to 2016, 200 to 270 us with interrupts off (docs/measurements/own-cost.md): a late response on a CPU that rtscope otherwise
//! keeps off. So at the end the pages are put into pipes first, which hold them too: the worker then only gives up its share
//! of each, and they are freed when rtscope closes the pipes. A kernel that refuses that frees them itself, as before; so does one
//! whose rtscope is killed.

use libbpf_rs::{MapCore, Object};
use rtscope_ring::SharedMemory;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Smaller maps are not worth a pipe.
const LEAST_BYTES: usize = 64 << 10;
/// What a pipe is asked to hold: the first that the kernel allows. The second is what it allows everybody.
const PIPE_BYTES: [libc::c_int; 2] = [16 << 20, 1 << 20];
/// How long to wait for the worker, which needs 5 to 60 ms: the programs are freed before the maps.
const PATIENCE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(2);
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Pages of maps, held until the maps are gone.
#[derive(Debug, Default)]
pub(super) struct HeldPages {
    pipes: Vec<OwnedFd>,
    bytes: usize,
    /// What the kernel had in such memory before; `None`: it does not say.
    used_before: Option<u64>,
}

impl HeldPages {
    /// Of all maps that can be held.
    pub(super) fn of(object: &Object) -> HeldPages {
        let mut held = HeldPages::default();
        held.used_before = vmalloc_bytes();
        for map in object.maps() {
            let Ok(info) = map.info() else { continue };
            let value_bytes = (info.info.value_size as usize).next_multiple_of(8);
            let bytes = value_bytes * info.info.max_entries as usize;
            if info.info.map_flags & BPF_F_MMAPABLE == 0 || bytes < LEAST_BYTES {
                continue;
            }
            if let Ok(memory) = SharedMemory::map(map.as_fd(), bytes, false) {
                held.hold(&memory);
            }
        }
        held
    }

    /// Holds the pages of a mapping, or the first of them. They stay when the mapping goes.
    fn hold(&mut self, memory: &SharedMemory) {
        let mut done = 0;
        while done < memory.bytes() {
            let Some((reader, writer)) = pipe() else { return };
            let before = done;
            while done < memory.bytes() {
                let Some(more) = put(&writer, memory, done) else { break };
                done += more;
            }
            if done == before {
                return;
            }
            self.bytes += done - before;
            self.pipes.push(reader);
        }
    }

    /// Whether the kernel has given up its share of them. It counts a map's pages as gone when it has been through all of them.
    fn are_ours_alone(&self) -> bool {
        let gone = self.used_before.zip(vmalloc_bytes()).map(|(before, now)| before.saturating_sub(now));
        // Others use such memory, too.
        gone.is_some_and(|gone| gone >= self.bytes as u64 / 8 * 7)
    }
}

impl Drop for HeldPages {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        while !self.pipes.is_empty() && !self.are_ours_alone() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

/// Reader and writer of a pipe for many pages, which blocks nobody.
fn pipe() -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the array has space for the two descriptors that the call writes.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return None;
    }
    // SAFETY: the call has just made them, and nobody else knows them.
    let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    for bytes in PIPE_BYTES {
        // SAFETY: the call takes a number and touches no memory of this process. Refused, the pipe stays as it is.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } >= bytes {
            break;
        }
    }
    Some((reader, writer))
}

/// Puts pages from this byte on into a pipe. Returns the bytes that it took; `None`: it is full, or the kernel refuses.
fn put(pipe: &OwnedFd, memory: &SharedMemory, from: usize) -> Option<usize> {
    let (address, bytes) = memory.address_of(from)?;
    let piece = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: bytes };
    // SAFETY: the piece lies within the mapping, which lives as long as `memory`; the call only takes references to its pages, which the kernel
    // counts, and reads nothing of it for this process. Nobody reads the pipe.
    let taken = unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const piece, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(taken).ok().filter(|taken| *taken > 0)
}

/// Memory of the kernel that is mapped page by page, as that of large maps is.
fn vmalloc_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmallocUsed:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
