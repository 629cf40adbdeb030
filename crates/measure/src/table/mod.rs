// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: the tables of the ARTiS paper, of this machine. How long a thread waits for its timer, and how much
//! of the machine is left for others: without and with load, and with load in each kind of shield.
//!
//! One process does it all, with one thread: the waiter and the loads are forks, which cannot outlive it. Rows are independent
//! of each other: each starts its own loads, and a shield is there for its row only.

mod child;
mod figures;
mod guard;
mod loads;
mod notes;
mod report;
mod row;
mod waiter;

pub use figures::{LIMITS_NS, Latency, Work};
pub use loads::LoadDescriptions;
pub use report::{KernelLatencyEnd, Report, Row, RowKind, RowResult, SCHEMA};

use row::RowSettings;
use rtscope_kernel::TimerWatch;
use rtscope_session::{Failure, Observer, Stop};
use rtscope_shield::journal::{Journal, State};
use rtscope_shield::plan::{self, Plan};
use rtscope_shield::{Cpus, Error, System};
use std::path::PathBuf;

/// Memory of the samples: 160 MB.
const MOST_SAMPLES: u64 = 10_000_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The CPUs for real-time work, of which the first is measured; `None`: the last CPU.
    pub rt: Option<String>,
    /// The rows, in this order.
    pub rows: Vec<RowKind>,
    /// Wakeups to measure in each row; at most 10 million.
    pub samples: u64,
    /// From one wakeup to the next.
    pub period_ns: u64,
    /// A row ends after this time, even with fewer wakeups; `None`: after three times the expected time.
    pub limit_ns: Option<u64>,
    /// Of the measured thread (SCHED_FIFO).
    pub priority: u8,
    /// Where the disk load reads and writes.
    pub directory: PathBuf,
}

/// A shorter period is shorter than what is measured.
const LEAST_PERIOD_NS: u64 = 50_000;
const MOST_PERIOD_NS: u64 = 1_000_000_000;

impl Settings {
    /// Whether it can be measured.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), Failure> {
        let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
        if !(1..=MOST_SAMPLES).contains(&self.samples) {
            return usage("--samples: from 1 to 10M");
        }
        if !(LEAST_PERIOD_NS..=MOST_PERIOD_NS).contains(&self.period_ns) {
            return usage("--rate: from 1/s to 20000/s");
        }
        if self.limit_ns == Some(0) {
            return usage("--duration: it has to be longer than 0");
        }
        if !self.directory.is_dir() {
            return usage(&format!("--dir {}: there is no such directory", self.directory.display()));
        }
        Ok(())
    }
}

/// What makes a shield of mode artis by a plan. The processes that hold its scheduler are the caller's.
pub type LendingShieldMaker<'a> = dyn Fn(&Plan) -> Result<(), Failure> + 'a;

/// Measures. After a stop with the rows that there are so far. Call this in a process of one thread: it forks.
///
/// # Errors
/// When the machine cannot be divided like this, there is a shield, or a row could not be measured for a reason that is no fact about this machine.
pub fn run(
    system: &System,
    settings: &Settings,
    make_lending: &LendingShieldMaker<'_>,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Report, Failure> {
    let (rt, others) = cpus(system, settings)?;
    if let Some(journal) = Journal::load(system)?.filter(|journal| journal.state != State::Left) {
        return Err(Error::Exists(journal.rt).into());
    }
    let watch = TimerWatch::start();
    let no_kernel_latency = watch.as_ref().err().map(ToString::to_string);
    let watch = watch.ok();
    let cpu = rt.iter().next().unwrap_or_default();
    let row_settings = RowSettings::of(settings, cpu, rt.len() + others.len());
    let mut measurement = row::Measurement {
        system,
        rt: rt.to_string(),
        settings: row_settings,
        directory: &settings.directory,
        make_lending,
        watch: watch.as_ref(),
        stop,
        observer,
        loads: None,
    };
    let mut rows = Vec::new();
    for kind in &settings.rows {
        if stop.asked() {
            break;
        }
        rows.push(measurement.row(*kind)?);
    }
    let mut report = Report {
        schema: SCHEMA,
        release: release(),
        rt: rt.to_string(),
        others: others.to_string(),
        cpu,
        priority: settings.priority,
        period_ns: settings.period_ns,
        samples: settings.samples,
        kernel_latency_end: watch.as_ref().map(|watch| match watch.sees_entry() {
            true => KernelLatencyEnd::InterruptEntry,
            false => KernelLatencyEnd::TimerEntry,
        }),
        no_kernel_latency,
        loads: measurement.loads,
        rows,
        notes: Vec::new(),
    };
    report.compare_work();
    report.notes = notes::notes(&report);
    Ok(report)
}

/// Those that were asked for, or the last one; and all others.
fn cpus(system: &System, settings: &Settings) -> Result<(Cpus, Cpus), Failure> {
    if let Some(rt) = &settings.rt {
        return Ok(plan::split(system, rt)?);
    }
    let online = system.read("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = Cpus::from_list(&online).unwrap_or_default().iter().last().unwrap_or_default();
    Ok(plan::split(system, &last.to_string())?)
}

fn release() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(|_| "?".to_owned(), |name| name.release().to_string_lossy().into_owned())
}
