// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that the kernel skipped: the user gets to know, with their number. A miss that stays hidden makes each of these
//! tests fail.
//!
//! A program of the tests' own (crates/kernel/bpf/tools/test.bpf.h) is skipped at each page fault that happens inside the kernel, so
//! misses can be had to order. How many there were says perf's counter of the same tracepoint.

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use rtscope_testkit::count::{Counters, windows};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, watch_command};
use std::fs::File;
use std::io::Read;
use std::num::NonZeroUsize;
use std::process::Command;

const FAULT: &str = "exceptions:page_fault_kernel";
/// Pages that are read into, each for the first time.
const PAGES: usize = 500;

/// Everything that these tests need, or the reason reported not.
fn ready() -> Option<(Cpus, Counters)> {
    let cpus = Cpus::for_watching()?;
    if !cfg!(debug_assertions) {
        skip::say("a release build has no program that is skipped to order");
        return None;
    }
    Some((cpus, Counters::for_test(&[FAULT])?))
}

/// Lets the kernel write to memory that has no pages yet; gives how often the tracepoint was passed meanwhile.
fn fault(counters: &Counters) -> u64 {
    const PAGE: usize = 4096;
    let mut zeros = File::open("/dev/zero").expect("it is everywhere");
    let size = NonZeroUsize::new(PAGES * PAGE).expect("it is not zero");
    let (access, private) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses; it touches nothing that exists.
    let memory = unsafe { mmap_anonymous(None, size, access, private) }.expect("it can be written");
    // A kernel without huge pages does not know the advice and does not need it.
    // SAFETY: the range is exactly the mapping that was just made; the advice keeps its pages small.
    let _ = unsafe { madvise(memory, size.get(), MmapAdvise::MADV_NOHUGEPAGE) };
    // SAFETY: the mapping is readable, writable, zeroed, of this size, ours alone, and stays until it is unmapped below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>().as_ptr(), size.get()) };
    let from = counters.mark().expect("they can be read");
    for page in bytes.chunks_exact_mut(PAGE) {
        zeros.read_exact(&mut page[..1]).expect("there is no end of zeros");
    }
    let until = counters.mark().expect("they can be read");
    // SAFETY: the same range; the slice is not used any more.
    unsafe { munmap(memory, size.get()) }.expect("it is mapped");
    windows(from, until).iter().map(|window| window.count(0)).sum()
}

fn with_misses(mut command: Command) -> Command {
    command.env("RTSCOPE_TEST_SKIPS", "1");
    command
}

// NEEDS: one kernel
#[test]
fn root_what_the_kernel_skipped_is_in_the_account_of_a_watch() {
    let Some((_cpus, counters)) = ready() else { return };
    let arguments = ["--task", "e2e-nobody", "--threshold", "1ms"];
    let command = with_misses(watch_command(&arguments).expect("built"));
    let mut watch = Rtscope::start(command).expect("starts");
    watch.wait_for_type("start").expect("watches");
    let passed = fault(&counters);
    let said = watch.stop().expect("stops");
    let summary = said.of_type("summary")[0].clone();
    let losses = summary["losses"].as_array().expect("a list").clone();
    let misses: u64 = losses
        .iter()
        .filter(|loss| loss["cause"] == "recursion_miss")
        .filter_map(|loss| loss["count"].as_u64())
        .sum();
    println!("tracepoint passed {passed} times, misses told {misses}");
    // Each fault passes it twice: by itself, and by the fault of the program that is skipped for that.
    assert!(passed >= 2 * PAGES as u64, "{passed}");
    assert!(misses >= passed / 2, "{misses} of {}: {summary}", passed / 2);
}

// NEEDS: one kernel
#[test]
fn root_what_the_kernel_skipped_is_in_the_account_of_a_recording() {
    let Some((_cpus, counters)) = ready() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = crate::command::rtscope();
    command
        .args(["record", "--json", "--kernel", "sched:sched_switch", "--output"])
        .arg(directory.path().join("trace"));
    let mut recording = Rtscope::start(with_misses(command)).expect("starts");
    recording.wait_for_note("recording").expect("it says when it records");
    let passed = fault(&counters);
    let said = recording.stop().expect("stops");
    let account = said.lines.iter().find(|line| line["schema"] == "rtscope.record/1").expect("its account");
    let count = |key: &str| -> u64 {
        let losses = account[key].as_array().expect("a list").iter();
        losses
            .filter(|loss| loss["cause"] == "recursion_miss")
            .filter_map(|loss| loss["count"].as_u64())
            .sum()
    };
    let misses = [count("losses"), count("event_losses")];
    println!("tracepoint passed {passed} times, misses told {misses:?}");
    assert!(passed >= 2 * PAGES as u64, "{passed}");
    assert!(misses.iter().all(|misses| *misses >= passed / 2), "{misses:?} of {}: {account}", passed / 2);
}
