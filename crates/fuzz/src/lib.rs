// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers call (`./x fuzz`): each parser of what others may have written, as a function of bytes that panics when a promise
//! is broken. An error is a fine result; a panic is not, nor is memory out of proportion to the input.
//!
//! Ordinary tests run the same functions on the inputs that fuzzers have kept (`tests/corpus`) and on those that once failed
//! (`tests/findings`), so what was found stays found without a fuzzer.

#![allow(clippy::unwrap_used, reason = "a target that cannot go on has failed")]

mod arm;
mod channels;
mod ctf;
mod hardware;
mod perf;
mod programs;
mod pt;
mod ptwrite;
mod seeds;
mod stack;
mod text;

use rtscope_testkit::memory::{CountingAllocator, peak_of};
pub use seeds::seeds;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The process whose files the fuzzer writes.
const PROCESS: rtscope_programs::directory::ProcessId =
    rtscope_programs::directory::ProcessId { pid: 1, birth_ns: 7 };

/// A parser to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As on the command line.
    pub name: &'static str,
    /// What its bytes are.
    pub content: &'static str,
    /// Larger inputs find nothing new.
    pub bytes_max: usize,
    /// Bytes of memory for each byte of input, and besides: for what does not depend on the input.
    memory: (usize, usize),
    parse: fn(&[u8]) -> Option<()>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// All of them.
pub const TARGETS: [Target; 25] = [
    Target {
        name: "metadata",
        content: "metadata of a CTF trace",
        bytes_max: 16 * KIB,
        memory: (400, 8 * MIB),
        parse: ctf::metadata,
    },
    Target {
        name: "packets",
        content: "a stream of a CTF trace",
        bytes_max: 8 * KIB,
        memory: (400, 8 * MIB),
        parse: ctf::packets,
    },
    Target {
        name: "snapshot",
        content: "what a flight recorder's ring held",
        bytes_max: 16 * KIB,
        memory: (400, 16 * MIB),
        parse: ctf::snapshot,
    },
    Target {
        name: "provider",
        content: "a program's provider file",
        bytes_max: 16 * KIB,
        memory: (400, 8 * MIB),
        parse: programs::provider,
    },
    Target {
        name: "ring",
        content: "a thread's ring, read while its program changes it",
        bytes_max: 8 * KIB,
        memory: (16, MIB),
        parse: programs::ring,
    },
    Target {
        name: "session",
        content: "the session that programs read (C)",
        bytes_max: 4 * KIB,
        memory: (8, 64 * KIB),
        parse: programs::session,
    },
    Target {
        name: "format",
        content: "a tracepoint's format, or the description of ftrace's pages",
        bytes_max: 8 * KIB,
        memory: (400, MIB),
        parse: text::format,
    },
    Target {
        name: "page",
        content: "a page of ftrace",
        bytes_max: 4 * KIB,
        memory: (8, 64 * KIB),
        parse: text::page,
    },
    Target {
        name: "journal",
        content: "the journal of a shield",
        bytes_max: 8 * KIB,
        memory: (64, MIB),
        parse: text::journal,
    },
    Target {
        name: "trigger",
        content: "trigger.json of a saved late response",
        bytes_max: 16 * KIB,
        memory: (400, 8 * MIB),
        parse: text::trigger,
    },
    Target {
        name: "stack",
        content: "registers, a stack, and the file with its program's code",
        bytes_max: 24 * KIB,
        memory: (400, 8 * MIB),
        parse: stack::unwind,
    },
    Target {
        name: "stp",
        content: "a stream of STP 2",
        bytes_max: 4 * KIB,
        memory: (64, MIB),
        parse: hardware::stp,
    },
    Target {
        name: "channels",
        content: "a recording's notes about channels, and what came out of them (STP 2)",
        bytes_max: 8 * KIB,
        memory: (400, 16 * MIB),
        parse: channels::decode,
    },
    Target {
        name: "ptwrite",
        content: "words that programs wrote by PTWRITE, and gaps",
        bytes_max: 8 * KIB,
        memory: (400, 16 * MIB),
        parse: ptwrite::decode,
    },
    Target {
        name: "stp-1",
        content: "a stream of STP 1",
        bytes_max: 4 * KIB,
        memory: (128, MIB),
        parse: hardware::stp_1,
    },
    Target {
        name: "itm",
        content: "a stream of ITM and DWT",
        bytes_max: 4 * KIB,
        memory: (8, 64 * KIB),
        parse: hardware::itm,
    },
    Target {
        name: "spe",
        content: "a buffer of Arm's SPE",
        bytes_max: 4 * KIB,
        memory: (8, 64 * KIB),
        parse: hardware::spe,
    },
    Target {
        name: "sys-t",
        content: "a catalogue of SyS-T, a NUL, and a message",
        bytes_max: 4 * KIB,
        memory: (400, MIB),
        parse: hardware::syst,
    },
    Target {
        name: "perf",
        content: "a perf.data with AUX data and branch stacks",
        bytes_max: 8 * KIB,
        memory: (400, 16 * MIB),
        parse: perf::decode,
    },
    Target {
        name: "coresight",
        content: "formatter frames of CoreSight",
        bytes_max: 8 * KIB,
        memory: (16, MIB),
        parse: arm::coresight,
    },
    Target {
        name: "etm4",
        content: "a stream of an ETMv4 or an ETE, with flow",
        bytes_max: 8 * KIB,
        memory: (400, 8 * MIB),
        parse: arm::etm4,
    },
    Target {
        name: "ptm",
        content: "a stream of a PTM, with flow",
        bytes_max: 8 * KIB,
        memory: (64, 8 * MIB),
        parse: arm::ptm,
    },
    Target {
        name: "etm3",
        content: "a stream of an ETMv3, with flow",
        bytes_max: 8 * KIB,
        memory: (64, 8 * MIB),
        parse: arm::etm3,
    },
    Target {
        name: "pt",
        content: "a stream of Intel PT",
        bytes_max: 4 * KIB,
        memory: (8, 64 * KIB),
        parse: pt::packets,
    },
    Target {
        name: "pt-flow",
        content: "how much of it is code, code, and a stream of Intel PT",
        bytes_max: 4 * KIB,
        memory: (400, MIB),
        parse: pt::flow,
    },
];

impl Target {
    /// Parses. False: it was refused.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn run(&self, data: &[u8]) -> bool {
        let mut parsed = None;
        let peak = peak_of(|| parsed = (self.parse)(data));
        let limit = data.len() * self.memory.0 + self.memory.1;
        assert!(peak <= limit, "{}: {} bytes of input take {peak} bytes of memory", self.name, data.len());
        parsed.is_some()
    }
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Stays on one CPU: with several, readers start threads, which takes longer than the work on a small input.
///
/// # Panics
/// When the system refuses.
pub fn on_one_cpu() {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    let this = nix::unistd::Pid::from_raw(0);
    let allowed = sched_getaffinity(this).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(this, &one).unwrap();
}
