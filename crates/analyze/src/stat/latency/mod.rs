// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long things take, from one event to another: system calls, block requests, interrupts, softirqs, wakeups, or any two events.
//!
//! All questions are answered in one pass. A *measure* (one file each) says what begins and ends a latency; everything they have in common is
//! elsewhere: whose an event is ([`threads`]), what waits for its end ([`crate::pairing`], bounded), and figures ([`collected`]). Ends without a
//! beginning and beginnings without an end are counted, never guessed; after a loss, what has begun is forgotten, since its end may be among
//! what was lost, and the next end may be another's.

mod block;
mod by_class;
mod collected;
mod interrupts;
mod pair;
mod question;
mod syscalls;
#[cfg(test)]
mod tests;
mod threads;
mod wakeup;

pub use crate::pairing::PairQuestion;
pub use block::DeviceNames;
pub use collected::LatencyFilter;
pub use question::Question;

use super::happening::{Happening, Happenings, is_known};
use super::{Intervals, Missing, Span};
use crate::analysis::Analysis;
use crate::histogram::{Percentile, Row};
use collected::{Asked, Collected, Parts};
use rtscope_event::{CpuId, Domain, EventClass, EventKind, EventRef, Lost};
use serde::Serialize;
use threads::{Thread, Threads};

/// Figures of a number of latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// How many, their sum, the longest.
    #[serde(flatten)]
    pub all: Intervals,
    /// The shortest; `None` when there was none.
    pub least_ns: Option<u64>,
    /// The mean.
    pub mean_ns: Option<u64>,
    /// Percentiles, where there are enough for them to mean anything.
    pub percentiles: Vec<Percentile>,
    /// How many of which length: 32 ranges for each power of two, those with none left out.
    pub histogram: Vec<Row>,
}

/// Those of one system call, device, interrupt or CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedLatencies {
    /// Its name.
    pub name: String,
    /// The number of a device (`dev_t` of the kernel), interrupt, softirq or CPU; of a system call one without meaning.
    pub id: u64,
    /// Figures.
    #[serde(flatten)]
    pub figures: LatencyFigures,
}

/// Those of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskLatencies {
    /// The thread.
    pub tid: u32,
    /// Its name; empty where unknown.
    pub comm: String,
    /// Figures.
    #[serde(flatten)]
    pub figures: LatencyFigures,
}

/// One of the longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongLatency {
    /// The system call, device, ...
    pub name: Option<String>,
    /// When it began.
    pub since_ns: i64,
    /// When it ended.
    pub until_ns: i64,
    /// How long it took.
    pub length_ns: u64,
    /// Whose it was.
    pub tid: Option<u32>,
    /// Its name.
    pub comm: Option<String>,
    /// The CPU on which it ended.
    pub cpu: Option<CpuId>,
}

/// Events that have no counterpart in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// Beginnings whose end is not recorded.
    pub without_end: u64,
    /// Ends whose beginning is not recorded.
    pub without_begin: u64,
    /// Beginnings after which another one of the same key came before an end; the end is of the last.
    pub begun_again: u64,
    /// Beginnings that were given up because events were lost.
    pub lost: u64,
    /// Beginnings that were given up because too many waited for their end.
    pub forgotten: u64,
}

/// Latencies of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// What was asked for.
    pub latency: String,
    /// The event that begins one.
    pub from: String,
    /// The event that ends it.
    pub to: String,
    /// What `rows` are.
    pub rows_are: &'static str,
    /// Whose latency it is, in the words of `tasks`.
    pub tasks_are: &'static str,
    /// When.
    pub span: Span,
    /// All of them.
    pub all: LatencyFigures,
    /// By what they are of; longest in sum first.
    pub rows: Vec<NamedLatencies>,
    /// By task; longest in sum first.
    pub tasks: Vec<TaskLatencies>,
    /// Of tasks that are not listed, where there are too many.
    pub unlisted: Option<LatencyFigures>,
    /// The longest, one by one.
    pub longest: Vec<LongLatency>,
    /// What could not be paired.
    pub unpaired: Unpaired,
    /// What is missing.
    pub missing: Missing,
}

/// What a measure is about.
struct Head {
    latency: String,
    from: String,
    to: String,
    rows_are: &'static str,
    tasks_are: &'static str,
}

impl Head {
    fn new(latency: &str, from: &str, to: &str, rows_are: &'static str) -> Head {
        let words = |text: &str| text.to_owned();
        Head { latency: words(latency), from: words(from), to: words(to), rows_are, tasks_are: "task" }
    }

    fn report(self, parts: Parts, (span, missing): (Span, &Missing)) -> LatencyReport {
        LatencyReport {
            latency: self.latency,
            from: self.from,
            to: self.to,
            rows_are: self.rows_are,
            tasks_are: self.tasks_are,
            span,
            all: parts.all,
            rows: parts.rows,
            tasks: parts.tasks,
            unlisted: parts.unlisted,
            longest: parts.longest,
            unpaired: parts.unpaired,
            missing: missing.clone(),
        }
    }
}

/// An event as a measure sees it.
struct Seen<'e> {
    event: &'e EventRef<'e>,
    happening: Option<&'e Happening>,
    names: &'e Happenings,
    threads: &'e Threads,
    /// In which it happened.
    thread: Option<Thread>,
    /// Its name was asked for.
    asked: Asked,
}

/// What begins and ends latencies of one kind.
trait Measure: std::fmt::Debug {
    /// The next event.
    fn event(&mut self, seen: &Seen<'_>);

    /// A thread has ended, or its number is another's from now on.
    fn thread_ended(&mut self, _tid: u32) {}

    /// Something is missing from the kernel's events of a CPU (or of any), or from those of programs.
    fn lost(&mut self, cpu: Option<CpuId>, of_program: bool);

    /// Its reports.
    fn reports(self: Box<Self>, names: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport>;

    /// Another one in the same state.
    fn boxed(&self) -> Box<dyn Measure>;
}

/// The analysis.
#[derive(Debug)]
pub struct Latencies {
    questions: Vec<Question>,
    happenings: Happenings,
    threads: Threads,
    filter: LatencyFilter,
    measures: Vec<Box<dyn Measure>>,
    span: Span,
    missing: Missing,
    /// By class: its name was asked for.
    asked: Vec<Asked>,
    /// By stream: it is a program's.
    of_program: Vec<bool>,
}

impl Clone for Latencies {
    fn clone(&self) -> Latencies {
        Latencies {
            questions: self.questions.clone(),
            happenings: self.happenings.clone(),
            threads: self.threads.clone(),
            filter: self.filter.clone(),
            measures: self.measures.iter().map(|measure| measure.boxed()).collect(),
            span: self.span,
            missing: self.missing.clone(),
            asked: self.asked.clone(),
            of_program: self.of_program.clone(),
        }
    }
}

impl Latencies {
    /// Answers questions. Events before [`LatencyFilter::since_ns`] are to be there, too: they say what has begun. `devices`: names
    /// for those that the trace has none for.
    #[must_use]
    pub fn new(questions: &[Question], filter: &LatencyFilter, devices: &DeviceNames) -> Latencies {
        let collected = || Collected::new(filter);
        let measure = |question: &Question| -> Box<dyn Measure> {
            match question {
                Question::Syscalls => Box::new(syscalls::Syscalls::new(collected())),
                Question::Block => Box::new(block::Block::new(collected(), devices)),
                Question::Irq => Box::new(interrupts::Interrupts::new(interrupts::Which::Irq, filter)),
                Question::Softirq => {
                    Box::new(interrupts::Interrupts::new(interrupts::Which::Softirq, filter))
                }
                Question::Wakeup => Box::new(wakeup::Wakeup::new(collected())),
                Question::Pair(pair) => Box::new(pair::Pair::new(pair, collected())),
            }
        };
        Latencies {
            questions: questions.to_vec(),
            happenings: Happenings::default(),
            threads: Threads::default(),
            filter: filter.clone(),
            measures: questions.iter().map(measure).collect(),
            span: Span::default(),
            missing: Missing::default(),
            asked: Vec::new(),
            of_program: Vec::new(),
        }
    }

    fn asked(&mut self, event: &EventRef<'_>) -> Asked {
        let of = |class: &EventClass| Asked::of(&self.filter.events, &class.name);
        let known = self.asked.len();
        self.asked.extend(event.schema.classes.iter().skip(known).map(of));
        let known = self.of_program.len();
        let streams = event.schema.streams.iter().skip(known);
        self.of_program.extend(streams.map(|stream| stream.domain == Domain::Program));
        self.asked.get(event.class.0 as usize).copied().unwrap_or_default()
    }

    /// Who runs, and who does no longer.
    fn after(&mut self, event: &EventRef<'_>, happening: &Happening) {
        match happening {
            Happening::Kernel(EventKind::SchedSwitch { prev_tid, prev_state, preempt, next_tid, .. }, _) => {
                let Some(cpu) = event.cpu else { return };
                let gone = (prev_state.is_dead() && !preempt && prev_tid.0 != 0).then_some(prev_tid.0);
                let hidden = self.threads.on(cpu).is_some_and(|current| current != prev_tid.0);
                self.missing.gaps += u64::from(hidden && self.counts(event.time_ns));
                self.threads.switch(cpu, next_tid.0);
                if let Some(tid) = gone {
                    self.ended(tid, false);
                }
            }
            Happening::Kernel(EventKind::ProcessFork { child_tid, .. }, _) => {
                self.ended(child_tid.0, true);
            }
            _ => {}
        }
    }

    fn ended(&mut self, tid: u32, has_name: bool) {
        self.threads.ended(tid, has_name);
        self.measures.iter_mut().for_each(|measure| measure.thread_ended(tid));
    }

    fn counts(&self, time_ns: i64) -> bool {
        self.filter.since_ns.is_none_or(|since_ns| time_ns >= since_ns)
    }
}

impl Analysis for Latencies {
    type Report = Vec<LatencyReport>;

    fn wants(&self, class: &EventClass) -> bool {
        let of_pair = |question: &Question| match question {
            Question::Pair(pair) => pair.begin.matches(class) || pair.end.matches(class),
            Question::Block => block::is_request(class),
            _ => false,
        };
        is_known(class) || self.questions.iter().any(of_pair)
    }

    fn event(&mut self, event: &EventRef<'_>) {
        if self.counts(event.time_ns) {
            self.span.at(event.time_ns);
        }
        let asked = self.asked(event);
        let happening = self.happenings.of(event);
        if let Some(happening) = &happening {
            self.threads.names(happening);
        }
        let thread = self.threads.of(event);
        let seen = Seen {
            event,
            happening: happening.as_ref(),
            names: &self.happenings,
            threads: &self.threads,
            thread,
            asked,
        };
        self.measures.iter_mut().for_each(|measure| measure.event(&seen));
        if let Some(happening) = &happening {
            self.after(event, happening);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        let of_program = lost
            .stream
            .is_some_and(|stream| self.of_program.get(stream.0 as usize).copied().unwrap_or_default());
        if !of_program {
            self.threads.lost(lost.cpu);
        }
        self.measures.iter_mut().for_each(|measure| measure.lost(lost.cpu, of_program));
        if lost.until_ns.is_none_or(|until_ns| self.counts(until_ns)) {
            self.missing.lost(lost);
        }
    }

    fn finish(self) -> Vec<LatencyReport> {
        let (names, of) = (&self.happenings, (self.span, &self.missing));
        self.measures.into_iter().flat_map(|measure| measure.reports(names, of)).collect()
    }
}
