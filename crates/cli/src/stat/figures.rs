// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --tasks`, `--irqs`, `--syscalls`, `--latency`: one pass over the trace for all of them.

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{file, note, object, result};
use crate::progress::Progress;
use crate::terminal;
use crate::trace_args::StatOptions;
use rtscope_analyze::analysis::{Analysis, analyze};
use rtscope_analyze::stat::latency::{DeviceNames, Latencies, LatencyFilter, LatencyReport, Question};
use rtscope_analyze::stat::{Irqs, IrqsReport, SyscallsReport, Tasks, TasksReport};
use rtscope_ctf::{OpenTrace, Pattern, TraceSet, read};
use rtscope_event::{TraceSource, counted};
use rtscope_session::wall_clock::time_of_day;
use rtscope_session::{devices, traces};
use rtscope_view::{
    Wanted, irqs_json, irqs_text, latency_json, latency_svg, latency_text, syscalls_json, syscalls_text,
    tasks_json, tasks_text,
};
use std::collections::BTreeSet;

/// Shown without --top.
const ROWS: usize = 20;

/// What was asked for, as an analysis.
pub(super) type Analyses = ((Option<Tasks>, Option<Irqs>), Option<Latencies>);

/// What it says.
pub(super) type Reports =
    ((Option<(TasksReport, SyscallsReport)>, Option<IrqsReport>), Option<Vec<LatencyReport>>);

/// Opens, reads, shows.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    let trace = &options.trace;
    check(options)?;
    let questions = questions(options)?;
    let set = trace.open()?;
    one_host(&set)?;
    all_events(options, &set)?;
    let mut selection = trace.filter().only_times().selection(&set, &Terminal::new())?;
    // What happened before says who ran then, and who waited.
    let since_ns = selection.from_ns.take();
    let progress = Progress::new(100);
    let analyses = analyses(options, since_ns, &devices::names_of(&set))?;
    let wants = analyses.clone();
    let found: Result<_, Failure> = read(&set, &selection, &|class| wants.wants(class), |source| {
        for question in &questions {
            question.check(&source.schema().classes).map_err(Failure::Usage)?;
        }
        let reports = analyze(source, analyses, &mut |part| {
            progress.at((part.unwrap_or(0.0) * 100.0) as u64);
        });
        Ok((reports, std::mem::take(&mut source.damaged), source.untimed))
    });
    progress.finish();
    let (reports, damaged, untimed) = found?;
    if untimed > 0 {
        note(&format!(
            "rtscope: {}",
            counted(
                untimed,
                "stream has no clock; it is left out",
                "streams have no clock; they are left out"
            )
        ));
    }
    result(&shown(options, reports)?);
    let mut damaged = damaged;
    damaged.extend(set.damaged);
    traces::report_end(&trace.trace, &mut damaged, &Terminal::new())
}

/// The reports that were asked for. A picture goes into its file.
pub(super) fn shown(options: &StatOptions, ((tasks, irqs), latencies): Reports) -> Result<String, Failure> {
    let wanted = Wanted { task: options.trace.events.task.clone(), rows: options.top.unwrap_or(ROWS) };
    let style = terminal::style(false);
    let mut texts = Vec::new();
    if let Some((mut tasks, syscalls)) = tasks {
        tasks.tasks.retain(|task| wanted.has(task));
        if options.tasks {
            texts.push(match options.json {
                true => object(tasks_json(&tasks))?,
                false => tasks_text(&tasks, &wanted, time_of_day, style),
            });
        }
        if options.syscalls {
            texts.push(match options.json {
                true => object(syscalls_json(&syscalls))?,
                false => syscalls_text(&syscalls, &wanted, time_of_day, style),
            });
        }
    }
    if let Some(irqs) = irqs {
        texts.push(match options.json {
            true => object(irqs_json(&irqs))?,
            false => irqs_text(&irqs, &wanted, time_of_day, style),
        });
    }
    let latencies = latencies.unwrap_or_default();
    for report in &latencies {
        texts.push(match options.json {
            true => object(latency_json(report))?,
            false => latency_text(report, &wanted, time_of_day, style),
        });
    }
    if let Some(path) = &options.svg {
        file(path, &latency_svg(&latencies))?;
    }
    Ok(texts.join("\n"))
}

/// The analyses that were asked for, of what happened since then.
pub(super) fn analyses(
    options: &StatOptions,
    since_ns: Option<i64>,
    devices: &DeviceNames,
) -> Result<Analyses, Failure> {
    let tasks = (options.tasks || options.syscalls).then(|| Tasks::since(since_ns));
    let irqs = options.irqs.then(|| Irqs::since(since_ns));
    let questions = questions(options)?;
    let filter = LatencyFilter { since_ns, ..filter(options)? };
    let latencies = (!questions.is_empty()).then(|| Latencies::new(&questions, &filter, devices));
    Ok(((tasks, irqs), latencies))
}

fn questions(options: &StatOptions) -> Result<Vec<Question>, Failure> {
    let parse =
        |text: &String| Question::parse(text).map_err(|why| Failure::Usage(format!("--latency {why}")));
    Ok(options.latency.iter().map(parse).collect::<Result<Vec<_>, _>>()?.concat())
}

fn filter(options: &StatOptions) -> Result<LatencyFilter, Failure> {
    let events = &options.trace.events;
    Ok(LatencyFilter {
        since_ns: None,
        task: events.task.clone(),
        cpus: options.trace.filter().cpus()?,
        events: events.event.iter().map(|pattern| Pattern::new(pattern)).collect(),
    })
}

/// Whether the options go together.
pub(super) fn check(options: &StatOptions) -> Result<(), Failure> {
    let events = &options.trace.events;
    let others = options.tasks || options.irqs || options.syscalls;
    if !events.condition.is_empty() {
        return Err(Failure::Usage(
            "--where does not go with --tasks, --irqs, --syscalls and --latency, which need all events; leave it out"
                .to_owned(),
        ));
    }
    if others && (!events.event.is_empty() || events.cpu.is_some()) {
        return Err(Failure::Usage(
            "--tasks, --irqs and --syscalls need all events; leave --event, --where and --cpu out \
             (--from, --to and --task are fine)"
                .to_owned(),
        ));
    }
    if events.task.is_some() && !options.tasks && options.latency.is_empty() {
        return Err(Failure::Usage(
            "--task goes with --tasks or --latency here; add one, or leave --task out".to_owned(),
        ));
    }
    Ok(())
}

/// A cut may have been made without some of the events.
fn all_events(options: &StatOptions, set: &TraceSet) -> Result<(), Failure> {
    let others = options.tasks || options.irqs || options.syscalls;
    match others && set.traces.iter().any(OpenTrace::is_selection) {
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
