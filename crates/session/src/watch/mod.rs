// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A watch of responses: catch what is late, explain it, keep the evidence.
//!
//! `plan` resolves the settings; `listener` polls the kernel's words and copies what is frozen; `writer`, on a thread of its
//! own, decodes, explains and saves. The kernel side does the catching: the listener may be late.

pub mod actions;
mod backlog;
pub(crate) mod calls;
pub mod config;
mod counted;
mod describe;
pub mod files;
pub(crate) mod ftrace;
mod hardware;
mod intervals;
mod listener;
mod measured;
mod memory;
pub(crate) mod numbered;
mod observable;
pub(crate) mod pair;
mod pending;
mod plan;
mod rates;
mod samples;
pub mod saved;
mod settings;
mod shares;
pub mod spans;
mod stacks;
pub mod state;
mod summary;
mod verdict;
mod writer;

pub(crate) use calls::CallNames;
pub use memory::keep_one_pool;
pub use settings::{CountBeside, ExplainText, TrackerLimit, WatchSettings};
pub use verdict::Verdict;

use crate::command::{Child, complain};
use crate::placement::{ObservedTasks, Placement};
use crate::program_flight::ProgramFlight;
use crate::{Failure, Observer, Stop};
use actions::Actions;
use ftrace::FtraceRecorder;
use hardware::HardwareFlight;
use listener::{Listener, Recorders};
use plan::Plan;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_analyze::summary::Report;
use rtscope_event::{Glob, Irq, OriginKind, Tracker};
use rtscope_kernel::EbpfPrograms;
use std::sync::Arc;

/// A watch that has begun.
#[derive(Clone, Debug)]
pub struct WatchStart<'a> {
    /// Whose responses, in words.
    pub target: &'a str,
    /// When a response ends: `running` or `blocked`.
    pub end: &'static str,
    /// What is followed, and its limit.
    pub trackers: &'a [(Tracker, u64)],
    /// For each, the name of its own targets; `None`: it has those of the watch.
    pub own_targets: &'a [Option<String>],
    /// The interrupts that count.
    pub irqs: &'a [Irq],
    /// With what responses begin.
    pub begin: &'a [OriginKind],
    /// Number of CPUs.
    pub cpus: usize,
    /// Tracepoints that this kernel lacks.
    pub absent: Vec<&'static str>,
    /// The target has a name, and no task that runs has it.
    pub waits_for_target: bool,
    /// Number of tracepoints that ftrace records for snapshots.
    pub tracepoints: Option<usize>,
    /// Number of programs that run and record for snapshots.
    pub programs: Option<u32>,
    /// The two events of programs between which the time is watched.
    pub between: Option<&'a PairQuestion>,
}

/// What a watch came to, by instance, and how COMMAND ended if not well.
pub type Watched = (Vec<Report>, Result<(), Failure>);

/// How long a bank lasts at the rate of the first second. A CPU that wakes up later shortens it; each snapshot says what it really holds.
#[derive(Clone, Debug)]
pub struct HeldHistory {
    /// Bytes of a bank.
    pub bank_bytes: usize,
    /// By CPU; `None`: nothing happens there.
    pub held_ns: Vec<Option<u64>>,
    /// What is wanted.
    pub pre_ns: u64,
}

/// Finds all that can be refused before anything is started, and starts nothing.
///
/// # Errors
/// What [`run`] would refuse.
pub fn check(settings: &WatchSettings) -> Result<(), Failure> {
    Plan::check(settings)
}

/// Watches until it is asked to stop, the duration is over, or COMMAND has ended. Gives the summary, and how COMMAND ended if not well.
///
/// # Errors
/// What kept it from watching, or ended it early.
pub fn run(settings: &WatchSettings, stop: &Stop, observer: &Arc<dyn Observer>) -> Result<Watched, Failure> {
    let names = settings.targets().filter_map(|task| Glob::new(task?).ok());
    // COMMAND is the target unless another one is named; its CPUs are left to it in any case.
    let targets = ObservedTasks {
        names: names.collect(),
        processes: settings.pid.into_iter().collect(),
        threads: settings.tid.into_iter().collect(),
        ..ObservedTasks::default()
    };
    let mut placement = Placement::take(targets, !settings.command.is_empty())?;
    let mut plan = Plan::new(settings)?;
    if let Some(directory) = &plan.snapshot_dir {
        files::remove_leftovers(directory);
    }
    let mut child = placement.hold(&plan.command, settings.command_output)?;
    if let Some(child) = &child {
        plan.target_command(child.pid());
    }
    stop.begin()?;
    let ftrace = FtraceRecorder::start(&plan.kernel, plan.bank_bytes(), observer.as_ref())?;
    let reach_ns = plan.pre_ns.saturating_add(plan.post_ns);
    let programs = ProgramFlight::for_watch(&plan.programs, reach_ns, plan.span_tracker())?;
    let hardware = HardwareFlight::start(plan.hardware.take(), observer.as_ref())?;
    let ebpf = EbpfPrograms::start(&plan.ebpf)?;
    let clock = crate::wall_clock::now()?;
    let actions = Actions::start(&settings.actions, settings.record_text, clock, observer)?;
    let others = (Arc::clone(observer), placement, Arc::new(actions));
    let beside = Recorders { ftrace, programs, hardware };
    let mut listener = Listener::new(plan, ebpf, beside, others)?;
    listener.serve_metrics(settings.metrics)?;
    listener.introduce();
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    listener.listen(stop, &mut child);
    if let Some(child) = &mut child {
        child.terminate();
    }
    if let Some(end) = child.as_mut().and_then(Child::ending) {
        observer.command_ended(end);
    }
    let reports = listener.finish()?;
    Ok((reports, complain(child.as_mut(), observer.as_ref())))
}
