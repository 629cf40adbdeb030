// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program takes inside, by the kernel's own statistics (BPF_STATS_RUN_TIME): dispatch is not counted, two clock
//! reads are. An empty program measured the same way says how much those are, and is subtracted.

use crate::pipe::Pipe;
use crate::rtscope::{TWO_EMPTY, tracker};
use crate::table::Row;
use anyhow::{Context, Result, ensure};
use rtscope_kernel::{EbpfConfig, EbpfPrograms};
use rtscope_testkit::process::Workload;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// Nanoseconds per event.
pub struct Inside {
    /// An empty program, absolute.
    pub empty: Row,
    /// Events that change nothing, net.
    pub quiet: Row,
    /// Events that move a chain on, net.
    pub transition: Row,
}

/// The kernel's statistics, on while this lives.
struct Statistics(#[allow(dead_code, reason = "held for its effect")] OwnedFd);

impl Statistics {
    fn on() -> Result<Statistics> {
        // SAFETY: takes an enumerator and returns a new file descriptor or a negative number; no memory is involved.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        ensure!(fd >= 0, "BPF_ENABLE_STATS: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(Statistics(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// Mean run time of the two eBPF programs on scheduler events over `length`.
fn mean_ns(ebpf: &EbpfPrograms, length: Duration) -> Result<f64> {
    let sum = || {
        ebpf.run_time()
            .iter()
            .filter(|(name, ..)| name.ends_with("sched_switch") || name.ends_with("sched_waking"))
            .fold((0, 0), |(ns, runs), (_, more_ns, more_runs)| (ns + more_ns, runs + more_runs))
    };
    let before = sum();
    std::thread::sleep(length);
    let after = sum();
    ensure!(after.1 > before.1 + 100, "the programs hardly ran");
    Ok((after.0 - before.0) as f64 / (after.1 - before.1) as f64)
}

fn samples(config: &EbpfConfig, rounds: usize) -> Result<Vec<f64>> {
    let mut ebpf = EbpfPrograms::prepare(config)?;
    ebpf.attach()?;
    ebpf.switch_on()?;
    (0..rounds).map(|_| mean_ns(&ebpf, Duration::from_millis(200))).collect()
}

/// Runs it.
pub fn measure(cpu: usize, quick: bool) -> Result<Inside> {
    let _statistics = Statistics::on()?;
    let rounds = if quick { 3 } else { 15 };
    let empty = EbpfConfig { recorder: None, trackers: Vec::new(), stacks: None, only: TWO_EMPTY.to_vec() };
    let tracking = EbpfConfig { recorder: None, trackers: tracker()?, stacks: None, only: Vec::new() };
    let (floor, quiet) = {
        let _pipe = Pipe::start(cpu)?;
        (Row::new("inside: empty program, absolute", samples(&empty, rounds)?), samples(&tracking, rounds)?)
    };
    // Every wakeup and every switch of these threads moves a chain on: a timer wakes them, they run, they block.
    let arguments = ["--threads", "8", "--period", "1ms", "--duration", "600s"];
    let threads = Workload::start("rtscope-threads", arguments).context("starting rtscope-threads")?;
    let moving = samples(&tracking, rounds)?;
    drop(threads);
    let net = |samples: Vec<f64>| samples.into_iter().map(|ns| ns - floor.median()).collect();
    Ok(Inside {
        quiet: Row::new("inside: tracker, no transition", net(quiet)),
        transition: Row::new("inside: tracker, transition", net(moving)),
        empty: floor,
    })
}
