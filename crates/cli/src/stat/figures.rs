// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --tasks`, `--irqs`, `--syscalls`: one pass over the trace for all of them.

use crate::exit::Failure;
use crate::output::{note, result};
use crate::progress::Progress;
use crate::trace_args::{StatOptions, report_damage};
use rtscope_analyze::analysis::{Analysis, analyze};
use rtscope_analyze::stat::{Irqs, IrqsReport, SyscallsReport, Tasks, TasksReport};
use rtscope_ctf::{OpenTrace, TraceSet, read};
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{Wanted, irqs_json, irqs_text, syscalls_json, syscalls_text, tasks_json, tasks_text};
use std::collections::BTreeSet;

/// Shown without --top.
const ROWS: usize = 20;

/// Opens, reads, shows.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    let trace = &options.trace;
    check(options)?;
    let set = trace.open()?;
    one_host(&set)?;
    all_events(&set)?;
    let mut selection = trace.times(&set)?;
    // What happened before says who ran then, and who waited.
    let since_ns = selection.from_ns.take();
    let progress = Progress::new(100);
    let wants = analyses(options, since_ns);
    let ((tasks, irqs), damaged, untimed) = read(&set, &selection, &|class| wants.wants(class), |source| {
        let reports = analyze(source, analyses(options, since_ns), &mut |part| {
            progress.at((part.unwrap_or(0.0) * 100.0) as u64);
        });
        (reports, std::mem::take(&mut source.damaged), source.untimed)
    });
    progress.finish();
    if untimed > 0 {
        note(&format!("rtscope: {untimed} streams have no clock; they are left out"));
    }
    result(&shown(options, tasks, irqs)?);
    let mut damaged = damaged;
    damaged.extend(set.damaged);
    report_damage(&mut damaged)
}

/// The reports that were asked for.
pub(super) fn shown(
    options: &StatOptions,
    tasks: Option<(TasksReport, SyscallsReport)>,
    irqs: Option<IrqsReport>,
) -> Result<String, Failure> {
    let wanted = Wanted { task: options.trace.events.task.clone(), rows: options.top.unwrap_or(ROWS) };
    let mut texts = Vec::new();
    let json = |line: serde_json::Result<String>| line.map_err(|error| Failure::doing("writing JSON", error));
    if let Some((mut tasks, syscalls)) = tasks {
        tasks.tasks.retain(|task| wanted.has(task));
        if options.tasks {
            texts.push(match options.json {
                true => json(tasks_json(&tasks))?,
                false => tasks_text(&tasks, &wanted, time_of_day),
            });
        }
        if options.syscalls {
            texts.push(match options.json {
                true => json(syscalls_json(&syscalls))?,
                false => syscalls_text(&syscalls, &wanted, time_of_day),
            });
        }
    }
    if let Some(irqs) = irqs {
        texts.push(match options.json {
            true => json(irqs_json(&irqs))?,
            false => irqs_text(&irqs, &wanted, time_of_day),
        });
    }
    Ok(texts.join("\n"))
}

/// The analyses that were asked for, of what happened since then.
pub(super) fn analyses(options: &StatOptions, since_ns: Option<i64>) -> (Option<Tasks>, Option<Irqs>) {
    let tasks = (options.tasks || options.syscalls).then(|| Tasks::since(since_ns));
    (tasks, options.irqs.then(|| Irqs::since(since_ns)))
}

/// Whether the options go together.
pub(super) fn check(options: &StatOptions) -> Result<(), Failure> {
    let events = &options.trace.events;
    let partial = !events.event.is_empty() || !events.condition.is_empty() || events.cpu.is_some();
    if partial {
        return Err(Failure::Usage(
            "--tasks, --irqs and --syscalls need all events; leave --event, --where and --cpu out \
             (--from, --to and --task are fine)"
                .to_owned(),
        ));
    }
    if events.task.is_some() && !options.tasks {
        return Err(Failure::Usage(
            "--task goes with --tasks here; add that, or leave --task out".to_owned(),
        ));
    }
    Ok(())
}

/// A cut may have been made without some of the events.
fn all_events(set: &TraceSet) -> Result<(), Failure> {
    match set.traces.iter().any(OpenTrace::is_selection) {
        true => Err(Failure::Usage(
            "--tasks, --irqs and --syscalls need all events, and this trace was cut by --event, --where or --task; \
             name the trace that it was cut from"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

fn one_host(set: &TraceSet) -> Result<(), Failure> {
    let hosts: BTreeSet<&str> = set.traces.iter().map(|trace| trace.host()).collect();
    if hosts.len() > 1 {
        return Err(Failure::Usage(format!(
            "the traces are of {} hosts, whose threads and CPUs have the same numbers; name the directory of one",
            hosts.len()
        )));
    }
    Ok(())
}
