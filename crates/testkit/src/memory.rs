// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that something takes: an allocator that counts, for all threads. A test binary or a fuzzer has it as its allocator:
//! `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count.
#[derive(Debug)]
pub struct CountingAllocator;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    // ORDER: relaxed, here and below; numbers that nothing else depends on.
    let now = NOW.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps what `alloc_zeroed` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // ORDER: as above.
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the place came from `alloc` above, which is the system's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        // ORDER: as above.
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the place came from `alloc` above, which is the system's.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Set for a test that was started by [`is_alone`].
const ALONE: &str = "RTSCOPE_TEST_ALONE";

/// Whether the calling test has its process to itself, so that all memory is its own. Where others run beside it, it is run again in a
/// separate process, must pass there, and has nothing left to do here.
#[track_caller]
pub fn is_alone() -> bool {
    let thread = std::thread::current();
    // libtest names threads after their tests; one test at a time runs in the main thread.
    let Some(test) = thread.name().filter(|name| *name != "main") else { return true };
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("it runs");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("it was started before");
    let text = String::from_utf8_lossy(&output.stdout);
    // Not as libtest's own lines, which are counted.
    text.lines().for_each(|line| println!("    {line}"));
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} alone: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// By how much memory grew at most while this ran; 0 where the allocator is another.
pub fn peak_of(run: impl FnOnce()) -> usize {
    // ORDER: as above.
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    run();
    // ORDER: as above.
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}
