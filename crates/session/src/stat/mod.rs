// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tasks, interrupts and system calls did in traces, and how long things took: one pass over the trace for all of it; or again and
//! again while a recording goes on (`follow`).

mod follow;

pub use follow::{Display, FollowedFigures, Following, follow_counts, follow_figures};

use crate::traces::{self, EventFilter};
use crate::{Failure, Observer, devices};
use rtscope_analyze::analysis::{Analysis, analyze};
use rtscope_analyze::stat::latency::{DeviceNames, Latencies, LatencyFilter, LatencyReport, Question};
use rtscope_analyze::stat::{Irqs, IrqsReport, SyscallsReport, Tasks, TasksReport};
use rtscope_ctf::{DamagedFile, OpenTrace, TraceSet, read};
use rtscope_event::TraceSource;
use std::collections::BTreeSet;
use std::path::Path;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct StatSettings {
    /// Where each task's time went.
    pub tasks: bool,
    /// What interrupts, softirqs and timers took.
    pub irqs: bool,
    /// What system calls took.
    pub syscalls: bool,
    /// How long these took: kinds, or `EVENT -> EVENT by FIELD`.
    pub latency: Vec<String>,
    /// Of which events; not all of it goes with all of that.
    pub filter: EventFilter,
}

/// What was found out.
#[derive(Debug, Default)]
pub struct StatReports {
    /// Where each task's time went.
    pub tasks: Option<TasksReport>,
    /// What system calls took.
    pub syscalls: Option<SyscallsReport>,
    /// What interrupts took.
    pub irqs: Option<IrqsReport>,
    /// How long things took, in the order in which they were asked for.
    pub latencies: Vec<LatencyReport>,
}

/// The same, and what of the trace is not in it.
#[derive(Debug)]
pub struct StatFigures {
    /// What was found out.
    pub reports: StatReports,
    /// What could not be read.
    pub damaged: Vec<DamagedFile>,
    /// Streams that have no clock, and so no place in the order of time.
    pub untimed: usize,
}

/// As one analysis.
pub(crate) type Analyses = ((Option<Tasks>, Option<Irqs>), Option<Latencies>);

impl StatSettings {
    /// Whether anything is asked for.
    #[must_use]
    pub fn wants_figures(&self) -> bool {
        self.needs_all_events() || !self.latency.is_empty()
    }

    fn needs_all_events(&self) -> bool {
        self.tasks || self.irqs || self.syscalls
    }

    /// Reads the traces below a directory. `progress`: so many percent are read.
    ///
    /// # Errors
    /// When what is asked for does not go together, or is not in the traces.
    pub fn figures(
        &self,
        trace: &Path,
        observer: &dyn Observer,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StatFigures, Failure> {
        self.check()?;
        let questions = self.questions()?;
        let set = traces::open(trace, observer)?;
        one_host(&set)?;
        self.check_cut(&set)?;
        let mut selection = self.filter.only_times().selection(&set, observer)?;
        // What happened before says who ran then, and who waited.
        let since_ns = selection.from_ns.take();
        let analyses = self.analyses(since_ns, &devices::names_of(&set))?;
        let wants = analyses.clone();
        let found: Result<_, Failure> = read(&set, &selection, &|class| wants.wants(class), |source| {
            for question in &questions {
                question.check(&source.schema().classes).map_err(Failure::Usage)?;
            }
            let reports =
                analyze(source, analyses, &mut |part| progress((part.unwrap_or(0.0) * 100.0) as u64));
            Ok((reports, std::mem::take(&mut source.damaged), source.untimed))
        });
        let (reports, mut damaged, untimed) = found?;
        damaged.extend(set.damaged);
        Ok(StatFigures { reports: self.reports(reports), damaged, untimed })
    }

    /// The analyses that are asked for, of what happened since then.
    fn analyses(&self, since_ns: Option<i64>, devices: &DeviceNames) -> Result<Analyses, Failure> {
        let tasks = (self.tasks || self.syscalls).then(|| Tasks::since(since_ns));
        let irqs = self.irqs.then(|| Irqs::since(since_ns));
        let questions = self.questions()?;
        let filter = LatencyFilter {
            since_ns,
            task: self.filter.task.clone(),
            cpus: self.filter.cpus()?,
            events: self.filter.patterns(),
        };
        let latencies = (!questions.is_empty()).then(|| Latencies::new(&questions, &filter, devices));
        Ok(((tasks, irqs), latencies))
    }

    fn questions(&self) -> Result<Vec<Question>, Failure> {
        let parse =
            |text: &String| Question::parse(text).map_err(|why| Failure::Usage(format!("--latency {why}")));
        Ok(self.latency.iter().map(parse).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// One analysis has both tasks and system calls.
    fn reports(&self, ((tasks, irqs), latencies): <Analyses as Analysis>::Report) -> StatReports {
        let (tasks, syscalls) = tasks.unzip();
        StatReports {
            tasks: tasks.filter(|_| self.tasks),
            syscalls: syscalls.filter(|_| self.syscalls),
            irqs,
            latencies: latencies.unwrap_or_default(),
        }
    }

    /// Whether the options go together.
    fn check(&self) -> Result<(), Failure> {
        let filter = &self.filter;
        if !filter.conditions.is_empty() {
            return Err(Failure::Usage(
                "--where does not go with --tasks, --irqs, --syscalls and --latency, which need all events; leave it out"
                    .to_owned(),
            ));
        }
        if self.needs_all_events() && (!filter.events.is_empty() || filter.cpus.is_some()) {
            return Err(Failure::Usage(
                "--tasks, --irqs and --syscalls need all events; leave --event, --where and --cpu out \
                 (--from, --to and --task are fine)"
                    .to_owned(),
            ));
        }
        if filter.task.is_some() && !self.tasks && self.latency.is_empty() {
            return Err(Failure::Usage(
                "--task goes with --tasks or --latency here; add one, or leave --task out".to_owned(),
            ));
        }
        Ok(())
    }

    /// A cut may have been made without some of the events.
    fn check_cut(&self, set: &TraceSet) -> Result<(), Failure> {
        match self.needs_all_events() && set.traces.iter().any(OpenTrace::is_selection) {
            true => Err(Failure::Usage(
                "--tasks, --irqs and --syscalls need all events, and this trace was cut by --event, --where or --task; \
                 name the trace that it was cut from"
                    .to_owned(),
            )),
            false => Ok(()),
        }
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
