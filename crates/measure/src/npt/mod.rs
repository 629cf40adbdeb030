// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope npt`: the non-preempt test. A thread that has a CPU for itself, as far as the kernel lets it, reads the counter
//! again and again; what lies between two readings and is no iteration of the loop is what others took.
//!
//! The counter's rate is measured, not read from somewhere, and after the CPU was kept busy for a while: a clock that
//! just woke up runs differently on some machines. All that needs system calls is done before the loop and after it.

mod blame;
pub(crate) mod gap_loop;
mod measure;
mod report;
mod statistics;

pub use blame::{BlameReport, BlamedGap};
pub use gap_loop::{Event, LibraryLoop};
pub use report::{CoreClock, Events, LongGap, LongGaps, Report, SCHEMA, Section, WindowLengths};
pub use statistics::{Bucket, PERCENTILES, Statistics};

pub(crate) use statistics::with_percents;

use rtscope_session::{Failure, Observer, Stop};
use std::thread::{self, Builder};
use std::time::Duration;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose event is in the loop.
    pub event: Event,
    /// The CPU that is measured; see [`cpu`].
    pub cpu: usize,
    /// Measure as a real-time thread of this priority.
    pub fifo: Option<u8>,
    /// Iterations to measure; 0: no limit.
    pub iterations: u64,
    /// Time to measure; 0: no limit. Whichever limit comes first ends it.
    pub duration_ns: u64,
    /// Iterations at the beginning that are not counted.
    pub warm_up: u64,
    /// How long the CPU is kept busy before the loop, twice: until its frequency settles, and while the rate of the counter is
    /// measured.
    pub spin: Duration,
    /// Least time between two events; 0: one in each iteration.
    pub interval_ns: u64,
    /// Time without events and time with them, which alternate and are counted separately.
    pub windows: Option<WindowLengths>,
    /// A gap that is longer than this is a long one.
    pub threshold_ns: u64,
    /// Find out what took the long gaps, with this many bytes for the newest events of the CPU.
    pub blame_bytes: Option<usize>,
}

/// Measures, on a thread of its own. Locks the memory of this process.
///
/// # Errors
/// When the CPU cannot be had, what should blame does not run, or it ended before an iteration was counted.
pub fn run(settings: &Settings, stop: &Stop, observer: &dyn Observer) -> Result<Report, Failure> {
    let report = thread::scope(|scope| {
        // A thread of its own, so that its policy and its place end with it.
        let thread =
            Builder::new().name("npt".to_string()).spawn_scoped(scope, || measure::measure(settings, stop));
        let thread = thread.map_err(|error| Failure::doing("starting a thread", error))?;
        thread
            .join()
            .map_err(|_| Failure::Failed("the thread that measures has ended unexpectedly".to_string()))?
    })?;
    report.notes.iter().for_each(|note| observer.note(note));
    Ok(report)
}

/// The requested CPU, if this process may use it; without a request the last.
///
/// # Errors
/// When it may not.
pub fn cpu(wanted: Option<usize>) -> Result<usize, Failure> {
    let allowed = rtscope_cpus::Thread::Calling
        .cpus()
        .map_err(|error| Failure::doing("asking which CPUs may be used", error))?;
    let mut usable = allowed.iter().map(|cpu| cpu as usize);
    match wanted {
        None => usable.last().ok_or_else(|| Failure::Failed("this process may use no CPU".to_string())),
        Some(cpu) if usable.any(|usable| usable == cpu) => Ok(cpu),
        Some(cpu) => {
            Err(Failure::Usage(format!("--cpu {cpu}: there is no such CPU, or this process may not use it")))
        }
    }
}
