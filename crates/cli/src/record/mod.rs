// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record`: any tracepoints of the running kernel, from both of its recorders, as one CTF trace; and events of
//! instrumented programs, as another (`user`).
//!
//! `plan` decides which recorder takes what; `recorder` sets both recorders up and takes them down; `drain` empties their buffers into
//! the spool while they run; `finish` makes the trace of the spool; `report` says what happens. Nothing of the kernel's is converted while
//! the load runs, since the load is what must not be disturbed. Events of programs are (ADR 0014): writing them twice disturbs more.

mod drain;
mod finish;
mod flight;
pub mod options;
mod pace;
pub mod plan;
mod recorder;
mod report;
mod user;

use crate::exit::Failure;
use crate::stop::{self, Stop};
use options::RecordOptions;
use plan::Plan;
use recorder::Recording;
use report::Report;
use rtscope_cpus::Cpus;
use rtscope_event::{Glob, MonotonicNs};
use rtscope_flight::monotonic_now;
use rtscope_kernel::tracefs::Tracefs;
use rtscope_session::command::Child;
use rtscope_session::placement::{ObservedTasks, Placement};
use std::path::{Path, PathBuf};
use std::time::Duration;
use user::UserRecording;

/// The traces' names when there are two.
const KERNEL: &str = "kernel";
const USER: &str = "user";

/// Between polls of the clock and of what records. Signals and COMMAND's end are reported by the kernel.
const TICK: Duration = Duration::from_millis(200);

/// Records until a signal, the duration, or COMMAND's end; then makes the trace.
pub fn run(options: &RecordOptions) -> Result<(), Failure> {
    let report = Report::new(options.json);
    if let Some(target) = &options.recover {
        return finish::recover(target, &report);
    }
    let Some(target) = &options.output else {
        return Err(Failure::Usage("-o DIR is missing: the directory of the trace".to_string()));
    };
    let mut placement = placement(options)?;
    options.refuse_unused()?;
    finish::check_target(target)?;
    if options.flight_recorder {
        return flight::run(options, target, (&report, placement));
    }
    let targets = Targets::new(options, target);
    let tracefs = Tracefs::find();
    let plan = targets.kernel.as_ref().map(|_| Plan::new(options, tracefs.as_ref().ok())).transpose()?;
    let mut child = if options.command.is_empty() {
        None
    } else {
        Some(Child::held(&options.command, &placement.of_caller())?)
    };
    if let Some(child) = &child {
        placement.add_command(child.pid().0);
    }
    let stop = stop::on_signals()?;
    targets.make()?;
    let begun =
        RunningRecorders::begin(options, plan.as_ref(), tracefs.ok().as_ref(), child.as_ref(), &targets);
    let mut running = begun.inspect_err(|_| targets.unmake())?;
    report.started(plan.as_ref(), &running, target);
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    wait(options, &stop, (&mut running, &mut child, &mut placement), &report);
    if let Some(child) = &mut child {
        child.terminate();
    }
    let failure = running.finish(&targets, &report)?;
    if let Some(complaint) = child.as_ref().and_then(Child::complaint) {
        if child.as_ref().is_some_and(Child::could_not_start) {
            return Err(Failure::NoCommand(complaint));
        }
        crate::output::note(&format!("rtscope: {complaint}"));
    }
    failure.map_or(Ok(()), Err)
}

/// Leaves the CPUs of what is recorded.
fn placement(options: &RecordOptions) -> Result<Placement, Failure> {
    let targets = ObservedTasks {
        // Refused where the pattern is used.
        name: options.comm.as_deref().and_then(|comm| Glob::new(comm).ok()),
        threads: options.pid.clone(),
        with_children: true,
        cpus: options.cpu.as_deref().and_then(|cpus| Cpus::from_list(cpus).ok()),
        ..ObservedTasks::default()
    };
    Placement::take(targets, !options.command.is_empty())
}

/// Where the traces go: one is the directory itself, two are in it.
#[derive(Debug)]
struct Targets {
    directory: PathBuf,
    kernel: Option<PathBuf>,
    user: Option<PathBuf>,
}

impl Targets {
    fn new(options: &RecordOptions, target: &Path) -> Targets {
        let directory = target.to_owned();
        let has_user = !options.user.is_empty();
        let has_kernel = !options.kernel.is_empty() || !has_user;
        let place = |name: &str, other: bool| if other { target.join(name) } else { target.to_owned() };
        Targets {
            directory,
            kernel: has_kernel.then(|| place(KERNEL, has_user)),
            user: has_user.then(|| place(USER, has_kernel)),
        }
    }

    /// Makes the directory for two.
    fn make(&self) -> Result<(), Failure> {
        if self.kernel.is_none() || self.user.is_none() {
            return Ok(());
        }
        let made = std::fs::create_dir(&self.directory);
        made.map_err(|error| {
            Failure::system(format!("making the directory {}", self.directory.display()), &error)
        })
    }
}

impl Targets {
    /// Nothing was recorded: what has been made goes. Only if nothing else is in it.
    fn unmake(&self) {
        if self.kernel.is_some() && self.user.is_some() {
            let _ = std::fs::remove_dir(&self.directory);
        }
    }
}

/// What is being recorded.
#[derive(Debug)]
struct RunningRecorders {
    kernel: Option<Recording>,
    user: Option<UserRecording>,
    started: MonotonicNs,
}

impl RunningRecorders {
    /// Switches both on, or neither.
    fn begin(
        options: &RecordOptions,
        plan: Option<&Plan>,
        tracefs: Option<&Tracefs>,
        child: Option<&Child>,
        targets: &Targets,
    ) -> Result<RunningRecorders, Failure> {
        let user = targets.user.as_deref().map(|target| UserRecording::start(options, target)).transpose()?;
        let kernel = match (plan, &targets.kernel) {
            (Some(plan), Some(target)) => Some(Recording::start(options, plan, tracefs, child, target)?),
            _ => None,
        };
        Ok(RunningRecorders { kernel, user, started: monotonic_now() })
    }

    fn has_failed(&self) -> bool {
        self.kernel.as_ref().is_some_and(Recording::has_failed)
            || self.user.as_ref().is_some_and(UserRecording::has_failed)
    }

    /// Stops both, then makes the traces. Gives what ended the recording early, if something did.
    fn finish(self, targets: &Targets, report: &Report) -> Result<Option<Failure>, Failure> {
        // Both are stopped before either is converted, and one's trouble must not cost the other's trace.
        let user = self.user.map(UserRecording::stop);
        let kernel = self.kernel.map(Recording::stop);
        let used_us = own_cpu_us();
        let mut failures = Vec::new();
        if let (Some(kernel), Some(target)) = (kernel, &targets.kernel) {
            let converted = kernel.and_then(|(spool, failure)| {
                failures.extend(failure);
                finish::convert(spool, target, report)
            });
            failures.extend(converted.err());
        }
        if let (Some(user), Some(target)) = (user, &targets.user) {
            let converted = user.and_then(|(spool, failure)| {
                failures.extend(failure);
                finish::convert_user(spool, target, used_us, report)
            });
            failures.extend(converted.err());
        }
        failures.iter().for_each(|failure| report.stopped_early(failure));
        Ok(failures.into_iter().next())
    }
}

/// CPU time of this process so far: what it took from the load. `None`: the kernel does not report it.
fn own_cpu_us() -> Option<u64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_nsec().unsigned_abs() / 1000)
}

/// Until something ends it.
fn wait(
    options: &RecordOptions,
    stop: &Stop,
    (running, child, placement): (&mut RunningRecorders, &mut Option<Child>, &mut Placement),
    report: &Report,
) {
    let until = options.duration.map(|duration| running.started.0.saturating_add(duration.0));
    let end = child.as_ref().and_then(Child::end);
    let tick = if child.is_some() && end.is_none() { TICK / 10 } else { TICK };
    loop {
        let now = monotonic_now();
        let over = until.is_some_and(|until| now.0 >= until);
        if stop.asked() || over || child.as_mut().is_some_and(Child::has_ended) || running.has_failed() {
            report.end_of_progress();
            return;
        }
        placement.follow(now, || None);
        report.progress(now, running);
        let left = until.map_or(tick, |until| Duration::from_nanos(until - now.0));
        stop.wait(left.min(tick), end.as_ref());
    }
}
