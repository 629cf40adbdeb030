// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch response`: catch what is late, explain it, keep the evidence.
//!
//! `plan` resolves the arguments; `listener` polls the kernel's words and copies what is frozen; `writer`, on a thread of its
//! own, decodes, explains and saves; `report` prints. The kernel side does the catching: the listener may be late.

mod backlog;
pub mod files;
mod ftrace;
mod listener;
mod memory;
mod plan;
pub mod report;
mod sweep;
mod writer;

use crate::args::ResponseOptions;
use crate::exit::Failure;
use crate::stop;
use ftrace::FtraceRecorder;
use listener::Listener;
use plan::Plan;
use report::Report;
use rtscope_event::Glob;
use rtscope_kernel::EbpfPrograms;
use rtscope_session::command::Child;
use rtscope_session::placement::{ObservedTasks, Placement};
use rtscope_session::program_flight::ProgramFlight;
use sweep::DirectoryUse;

/// Watches until a signal, the duration, or COMMAND's end.
pub fn run(options: ResponseOptions) -> Result<(), Failure> {
    let name = options.task.as_deref().and_then(|task| Glob::new(task).ok());
    // COMMAND is the target unless another one is named; its CPUs are left to it in any case.
    let targets =
        ObservedTasks { name, processes: options.pid.into_iter().collect(), ..ObservedTasks::default() };
    let mut placement = Placement::take(targets, !options.command.is_empty())?;
    memory::keep_one_pool();
    let mut plan = Plan::new(options)?;
    let fail_if_late = plan.fail_if_late;
    let _use = plan.snapshot_dir.as_deref().map(DirectoryUse::enter);
    let mut child = if plan.command.is_empty() {
        None
    } else {
        Some(Child::held(&plan.command, &placement.of_caller())?)
    };
    if let Some(child) = &child {
        placement.add_command(child.pid().0);
        plan.target_command(child.pid());
    }
    let stop = stop::on_signals()?;
    let ftrace = FtraceRecorder::start(&plan.kernel, plan.bank_bytes())?;
    let programs = ProgramFlight::for_watch(&plan.user, plan.pre_ns.saturating_add(plan.post_ns))?;
    let ebpf = EbpfPrograms::start(&plan.ebpf)?;
    let report = Report::new(&plan)?;
    report.started(&plan, &ebpf);
    if let Some(ftrace) = &ftrace {
        report.tracepoints_recorded(ftrace.number());
    }
    if let Some(programs) = &programs {
        report.programs_recorded(programs.number());
    }
    let mut listener = Listener::new(plan, ebpf, (ftrace, programs), (report, placement))?;
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    listener.listen(&stop, &mut child);
    if let Some(child) = &mut child {
        child.terminate();
    }
    let late = listener.finish()?;
    if let Some(complaint) = child.as_ref().and_then(Child::complaint) {
        if child.as_ref().is_some_and(Child::could_not_start) {
            return Err(Failure::NoCommand(complaint));
        }
        crate::output::note(&format!("rtscope: {complaint}"));
    }
    if fail_if_late && late > 0 { Err(Failure::Late(late)) } else { Ok(()) }
}
