// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real workloads for tests, the demo and benchmarks.
//!
//! A latency tracer cannot be tested against itself: another program has to know what really happened. The programs in
//! `src/bin` make late responses, or the disturbances that cause them, and note with their own clock readings what they
//! did. Tests and the demo compare the output of rtscope with those notes.
//!
//! All programs follow the same rules:
//! - standard output is JSON, one object a line; the first line, `{"ready":true,...}`, comes after everything is set up;
//! - they stop on SIGTERM, SIGINT, after `--duration`, or when standard input is a pipe that its writer closes;
//! - nothing is written or allocated while the load runs: notes are kept in memory and printed at the end;
//! - time stamps are CLOCK_MONOTONIC nanoseconds, the clock of the kernel's traces.

pub mod babeltrace2;
pub mod count;
pub mod descriptions;
pub mod disturber;
pub mod elf;
pub mod emulated;
mod extent;
pub mod hardware;
pub mod held;
pub mod host_bpf;
pub mod late;
pub mod machine;
pub mod memory;
pub mod module;
pub mod notes;
pub mod perfetto;
pub mod process;
pub mod program_files;
pub mod random;
pub mod recordings;
pub mod sched;
pub mod screen;
pub mod serial;
pub mod simulated;
pub mod skip;
pub mod start;
pub mod stm;
pub mod stop;
pub mod terminals;
pub mod time;
pub mod tracepoints;
pub mod watch;

pub use extent::{full, sample};
