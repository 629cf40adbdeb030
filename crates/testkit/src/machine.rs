// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as something that only one test at a time can use.
//!
//! Tests with real-time loads use the same CPUs: two at once would disturb each other and be right to complain. A lock on
//! a file in the build directory keeps them apart, also across test binaries and users; it is released when the process ends.

use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{Flock, FlockArg};

use crate::process::program;
use crate::skip;

/// The right to load the CPUs, until dropped.
#[derive(Debug)]
pub struct Cpus {
    _lock: Flock<File>,
}

impl Cpus {
    /// Waits until no other test of this build uses the CPUs.
    pub fn take() -> Result<Cpus> {
        let path = crate::process::build_directory()?.join("cpus.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| anyhow!(error))?;
        Ok(Cpus { _lock: lock })
    }

    /// The beginning of a test that runs rtscope on the real kernel: `None`, and the reason reported, when it cannot run here.
    pub fn for_watching() -> Option<Cpus> {
        if let Some(reason) = cannot_watch() {
            skip::say(reason);
            return None;
        }
        Some(Cpus::take().expect("the build directory can be written"))
    }
}

/// How often a check is made where the hypervisor takes time from it.
const TRIES: u32 = 8;

/// Makes a check that compares a program's own stamps with the kernel's events: it panics when they are too far apart.
///
/// Between a stamp and its event a hypervisor may have had the CPU: neither clock is wrong then, and nothing was compared. So a
/// check that fails is made again if, and only if, the kernel counted stolen time of this CPU meanwhile. One that fails
/// without it, or each time, has failed.
pub fn unless_stolen(cpu: usize, check: impl Fn()) {
    for attempt in 1.. {
        let before = stolen(cpu);
        let Err(failure) = catch_unwind(AssertUnwindSafe(&check)) else { return };
        let stolen = stolen(cpu).saturating_sub(before);
        println!("attempt {attempt} failed; a hypervisor took {stolen:?} of CPU {cpu} meanwhile");
        if stolen.is_zero() || attempt == TRIES {
            resume_unwind(failure);
        }
    }
}

/// What hypervisors have taken of a CPU's time since the system started, by the kernel's count: the eighth number of its line
/// in /proc/stat, in ticks of 10 ms. Zero where nothing tells.
pub fn stolen(cpu: usize) -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).unwrap_or_default();
    let ticks = line.split_whitespace().nth(7).and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
    Duration::from_millis(10 * ticks)
}

/// Whether this is one of the guests of `./x vm`, which emulate their CPUs: durations mean nothing there.
pub fn is_emulated() -> bool {
    std::env::var_os("RTSCOPE_VM").is_some()
}

/// Whether the kernel has PREEMPT_RT: handlers of interrupts are threads there, and most locks can be preempted.
pub fn is_preempt_rt() -> bool {
    std::fs::read_to_string("/proc/version").is_ok_and(|text| text.contains("PREEMPT_RT"))
}

/// Why rtscope cannot watch here, in its own words; `None` when it can.
///
/// # Panics
///
/// If the kernel has all that is needed and refuses rtscope's programs: that is a defect, and no reason to skip a test.
pub fn cannot_watch() -> Option<&'static str> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let ask = || {
        // In a guest the first program has found out (xtask/src/vm/init.sh).
        if std::env::var_os("RTSCOPE_CAN_WATCH").is_some() {
            return None;
        }
        let output =
            Command::new(program("rtscope").expect("built")).arg("caps").output().expect("it can be run");
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert!(!reason.contains("eBPF programs run: missing"), "{reason}");
        (!output.status.success()).then_some(reason)
    };
    REASON.get_or_init(ask).as_deref()
}
