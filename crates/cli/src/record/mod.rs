// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record`: any tracepoints of the running kernel, from both of its recorders, as one CTF trace.
//!
//! `plan` decides who records what; `recorder` sets both recorders up and takes them down; `drain` empties their buffers into
//! the spool while they run; `finish` makes the trace of the spool; `report` says what happens. Nothing is converted while
//! the load runs, since the load is what must not be disturbed.

mod drain;
mod finish;
pub mod options;
mod plan;
mod recorder;
mod report;

use crate::command::Child;
use crate::exit::Failure;
use crate::stop::Stop;
use options::RecordOptions;
use plan::Plan;
use recorder::Recording;
use report::Report;
use rtscope_collect::monotonic_now;
use rtscope_kernel::tracefs::Tracefs;
use std::time::Duration;

/// Between looks at signals, COMMAND and the clock.
const TICK: Duration = Duration::from_millis(20);

/// Records until a signal, the duration, or COMMAND's end; then makes the trace.
pub fn run(options: &RecordOptions) -> Result<(), Failure> {
    let report = Report::new(options.json);
    if let Some(target) = &options.recover {
        return finish::recover(target, &report);
    }
    let Some(target) = &options.output else {
        return Err(Failure::Usage("say with -o where the trace goes".to_string()));
    };
    finish::check_target(target)?;
    let tracefs = Tracefs::find();
    let plan = Plan::new(options, tracefs.as_ref().ok())?;
    let mut child = if options.command.is_empty() { None } else { Some(Child::held(&options.command)?) };
    let stop = Stop::on_signals()?;
    let mut recording = Recording::start(options, &plan, tracefs.ok().as_ref(), child.as_ref(), target)?;
    report.started(&plan, &recording, target);
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    wait(options, &stop, &mut recording, &mut child, &report);
    if let Some(child) = &mut child {
        child.terminate();
    }
    let (spool, failure) = recording.stop()?;
    if let Some(failure) = &failure {
        report.stopped_early(failure);
    }
    finish::convert(spool, target, &report)?;
    if let Some(complaint) = child.as_ref().and_then(Child::complaint) {
        if child.as_ref().is_some_and(Child::could_not_start) {
            return Err(Failure::NoCommand(complaint));
        }
        crate::output::note(&format!("rtscope: {complaint}"));
    }
    failure.map_or(Ok(()), Err)
}

/// Until something ends it.
fn wait(
    options: &RecordOptions,
    stop: &Stop,
    recording: &mut Recording,
    child: &mut Option<Child>,
    report: &Report,
) {
    let until = options.duration.map(|duration| recording.started().0.saturating_add(duration.0));
    loop {
        let now = monotonic_now();
        let over = until.is_some_and(|until| now.0 >= until);
        if stop.asked() || over || child.as_mut().is_some_and(Child::has_ended) || recording.has_failed() {
            report.end_of_progress();
            return;
        }
        report.progress(now, recording);
        let left = until.map_or(TICK, |until| Duration::from_nanos(until - now.0));
        std::thread::sleep(left.min(TICK));
    }
}
